"""`taskweaver-ext kernels` sees the kernels of every process, living and left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.sessions.session_info import sessions_of_this_user
from taskweaver_ext.cli.kernels import command
from tests.support.executions import kernel_pid, wait_until

OWNER = """
import sys
from taskweaver_ext import Environment
with Environment(sys.argv[1]) as environment:
    environment.start_session("elsewhere-" + sys.argv[2])
    environment.execute_code("elsewhere-" + sys.argv[2], sys.stdin.read(), timeout=60)
"""


def _list_kernels(*options: str) -> str:
    result = CliRunner().invoke(command, list(options))
    assert result.exit_code == 0
    return result.stdout


def _kernel(session_id: str) -> dict[str, Any] | None:
    kernels = json.loads(_list_kernels("--json"))
    return next((k for k in kernels if k["session_id"] == session_id), None)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process with a busy kernel in a session named after this one."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "work"), str(os.getpid())],
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("import time; time.sleep(60)")
    process.stdin.close()
    yield process
    process.kill()
    process.wait()


def test_kernels_of_this_process_are_listed_with_what_they_are_doing(tmp_path: Path) -> None:
    name = f"looked-at-{os.getpid()}"
    while_busy: list[str] = []
    with Environment(tmp_path) as environment:
        environment.start_session(name)
        pid = kernel_pid(environment, name)
        environment.execute_code(
            name, "print(1)", on_output=lambda *_: while_busy.append(_list_kernels())
        )
        lines = _list_kernels().splitlines()
        kernel = _kernel(name)

    assert lines[0].split()[:4] == ["SESSION", "HOST", "STATE", "PID"]
    assert [line.split()[1:4] for line in lines if line.startswith(name)] == [
        ["local", "idle", str(pid)]
    ]
    assert [line.split()[2] for line in while_busy[0].splitlines() if name in line] == ["busy"]
    assert kernel is not None
    assert kernel["owner_pid"] == os.getpid()
    assert kernel["memory_bytes"] > 1 << 20
    assert _kernel(name) is None


def test_kernels_of_another_process_are_seen_and_stale_when_it_was_killed(
    owner: subprocess.Popen[str],
) -> None:
    name = f"elsewhere-{os.getpid()}"
    wait_until(lambda: (_kernel(name) or {}).get("state") == "busy")

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    left = _kernel(name)

    assert left is not None
    assert left["state"] == "stale"
    assert left["memory_bytes"] is None
    _list_kernels("--clean")
    assert _kernel(name) is None


def test_a_container_or_gateway_kernel_would_have_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskweaver_ext.ces.kernels.local.host.LocalKernelHost.folder", None)
    name = f"apart-{os.getpid()}"
    with Environment(tmp_path) as environment:
        environment.start_session(name)
        assert _kernel(name) is not None
    assert _kernel(name) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"session_id": "x", "owner_start_ticks": 1}'])
def test_a_record_that_makes_no_sense_is_passed_over(content: str, tmp_path: Path) -> None:
    (tmp_path / "taskweaver-odd").mkdir()
    (tmp_path / "taskweaver-odd" / "session.json").write_text(content)

    assert sessions_of_this_user(tmp_path) == []
