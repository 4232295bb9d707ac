"""The lines we talk to bash in: what it answers counts, and only for what was asked last."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from taskweaver_ext.ces.programs.bash import BashProcess, SentCommand
from taskweaver_ext.ces.programs.local_site import LocalFolder, LocalSite
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.machine.child_environment import child_environment
from tests.support.executions import LIMIT_SECONDS, wait_until


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[BashProcess]:
    bash = BashProcess(LocalSite(), "/bin/bash", tmp_path, child_environment())
    yield bash
    bash.close()


def finish(bash: BashProcess, command: SentCommand) -> tuple[str, int | None]:
    """Read until the command has ended; give what it wrote and its exit code."""
    while command.exit_code is None:
        assert select.select([bash.reports], [], [], LIMIT_SECONDS)[0]
        bash.read_reports(command)
    text = os.read(command.stdout.descriptor, 65536).decode()
    os.close(command.stdout.descriptor)
    os.close(command.stderr.descriptor)
    bash.forget(command)
    return text, command.exit_code


def test_a_command_is_answered_with_its_exit_code(bash: BashProcess) -> None:
    command = bash.send("echo hi; (exit 3)", None)

    assert finish(bash, command) == ("hi\n", 3)
    assert command.has_started


def test_an_answer_from_before_an_interrupt_does_not_count(bash: BashProcess) -> None:
    command = bash.send("echo hi", None)
    wait_until(lambda: select.select([command.stdout.descriptor], [], [], 0)[0])
    bash.begin_interrupt()
    bash.finish_interrupt(command, hangs_by_itself=True)

    finish(bash, command)

    assert command.wanted_report == 1
    assert finish(bash, bash.send("echo the next is whole", None)) == ("the next is whole\n", 0)


def test_answers_to_other_commands_do_not_count(bash: BashProcess, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = bash.send("echo one", None)
    wait_until(lambda: select.select([first.stdout.descriptor], [], [], 0)[0])
    assert os.read(first.stdout.descriptor, 65536) == b"one\n"
    wait_until(lambda: _is_at_its_end(first.stdout.descriptor))
    second = bash.send(f"echo two; until [ -e {gate} ]; do sleep 0.01; done", None)
    wait_until(lambda: select.select([second.stdout.descriptor], [], [], 0)[0])

    bash.read_reports(second)

    assert second.has_started
    assert second.exit_code is None
    gate.touch()
    assert finish(bash, second) == ("two\n", 0)
    os.close(first.stdout.descriptor)
    os.close(first.stderr.descriptor)


def _is_at_its_end(descriptor: int) -> bool:
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False


def test_what_users_write_to_our_line_is_skipped(bash: BashProcess) -> None:
    finish(bash, bash.send("PROMPT_COMMAND='echo 1 0 ended 7; printf partial'; echo", None))

    assert finish(bash, bash.send("echo hi", None)) == ("hi\n", 0)


class FullSite(LocalSite):
    """This machine, with room for one pipe only."""

    def make_folder(self) -> LocalFolder:
        return FullFolder()


class FullFolder(LocalFolder):
    """A folder in which every second pipe is one too many."""

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        if name.endswith("stderr"):
            raise OSError(errno.EMFILE, "no descriptor is left")
        return super().make_pipe(name)


def test_a_command_for_whose_pipes_there_is_no_room_leaves_none_open(tmp_path: Path) -> None:
    bash = BashProcess(FullSite(), "/bin/bash", tmp_path, child_environment())
    before = psutil.Process().num_fds()

    with pytest.raises(OSError, match="no descriptor is left"):
        bash.send("echo", None)

    assert psutil.Process().num_fds() == before
    bash.close()
