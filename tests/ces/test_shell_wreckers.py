"""Whatever a command does to its shell, the next one runs, and a lost state is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.programs import shell_reader
from taskweaver_ext.ces.shell import ShellExecutor
from tests.support.executions import LIMIT_SECONDS, wait_until
from tests.support.wreckers import SHELL_WRECKERS

HANGS_SECONDS = 5.0
"""What a command may take that leaves a shell which does not come back to its input."""


def _kinds(result: ExecutionResult) -> set[str]:
    return {notice.kind for notice in result.notices}


@pytest.mark.parametrize("name", SHELL_WRECKERS)
def test_the_command_after_a_wrecker_runs_and_a_lost_state_is_said(
    tmp_path: Path, name: str
) -> None:
    log = tmp_path / "log"
    with ShellExecutor(tmp_path) as shell:
        shell.execute("kept=1", timeout=LIMIT_SECONDS)
        wrecked = shell.execute(SHELL_WRECKERS[name], timeout=HANGS_SECONDS)
        after = shell.execute(
            f"command echo ran >>'{log}'; command echo here", timeout=LIMIT_SECONDS
        )
        again = shell.execute('command echo "[$kept]"', timeout=LIMIT_SECONDS)

    assert again.is_success
    assert log.read_text() == "ran\n", "once, however often it was tried"
    assert "".join(after.stdout) == "here\n"
    was_lost = "".join(again.stdout) == "[]\n" and name != "all variables are unset"
    was_told = not wrecked.variables_survived or "restarted" in _kinds(after) | _kinds(again)
    assert was_lost == was_told


def test_a_shell_that_cannot_run_commands_is_replaced_by_one_that_runs_them(
    tmp_path: Path,
) -> None:
    with ShellExecutor(tmp_path) as shell:
        shell.execute("set -r")
        result = shell.execute("echo here >file; cat file")

    assert "".join(result.stdout) == "here\n"
    (notice,) = result.notices
    assert notice.kind == "restarted"
    assert "it could not run commands any more" in notice.message


def test_an_init_script_after_which_no_command_can_run_ends_in_an_error(tmp_path: Path) -> None:
    with ShellExecutor(tmp_path, init_script="set -r") as shell:
        result = shell.execute("echo never", timeout=LIMIT_SECONDS)

    assert result.status is ExecutionStatus.ERROR
    assert result.stdout == []


def test_a_stopped_shell_is_replaced_once_it_has_not_begun_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ShellExecutor(tmp_path) as shell:
        pid = int("".join(shell.execute("echo $$").stdout))
        shell.execute("(sleep 0.2; kill -STOP $$) & disown")
        wait_until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
        monkeypatch.setattr(shell_reader, "BEGIN_SECONDS", 2.0)

        result = shell.execute("echo never", timeout=LIMIT_SECONDS)
        monkeypatch.setattr(shell_reader, "BEGIN_SECONDS", LIMIT_SECONDS)
        after = shell.execute("echo here", timeout=LIMIT_SECONDS)

    assert result.status is ExecutionStatus.DIED
    assert result.death is not None
    assert result.death.cause == "unresponsive"
    assert "was alive but did not begin within 2 s" in result.death.detail
    assert not result.variables_survived
    assert "".join(after.stdout) == "here\n"
    assert "restarted" in _kinds(after)
