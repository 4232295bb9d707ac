"""One-shot programs and shells end with an owner that is killed, wherever their children went."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from taskweaver_ext.ces.inside.spawner.process_tree import ProcessFamily
from taskweaver_ext.ces.programs.orphan_killer import OrphanKiller
from tests.support.executions import wait_until

PROGRAM = """
import sys
from taskweaver_ext import ProcessExecutor, ShellExecutor
with {executor} as executor:
    executor.execute({code!r}, on_output=lambda _stream, text: print(text, end="", flush=True))
"""
CHILDREN = """
sleep {seconds} &
setsid sleep {seconds} &
env -i setsid sleep {seconds} &
(setsid nohup sleep {seconds} >&- 2>&- &) &
bash -c 'exec -a other sleep {seconds}' &
until [[ $(pgrep -cf 'sleep {seconds}|other {seconds}') -ge 5 ]]; do sleep 0.01; done
echo ready
sleep {seconds}
"""
OWNERS = {
    "a program": 'ProcessExecutor("bash", default_timeout=None)',
    "a shell": "ShellExecutor()",
}


@pytest.fixture
def seconds() -> Iterator[str]:
    """A time to sleep that tells the processes of a test from all others."""
    seconds = f"1000.{random.randrange(10**9):09}"
    yield seconds
    for process in _sleeping(seconds):
        process.kill()


def _sleeping(seconds: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if seconds in (process.info["cmdline"] or []):
            found.append(process)
    return found


def _kill_when_ready(owner: subprocess.Popen[str], how: signal.Signals | None) -> None:
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == "ready\n"
        if how is not None:
            owner.send_signal(how)
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("stopped_first", [None, signal.SIGSTOP])
@pytest.mark.parametrize("name", OWNERS)
def test_what_a_killed_owner_ran_ends_with_all_its_children(
    name: str, stopped_first: signal.Signals | None, seconds: str
) -> None:
    program = PROGRAM.format(executor=OWNERS[name], code=CHILDREN.format(seconds=seconds))
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)

    _kill_when_ready(owner, stopped_first)

    wait_until(lambda: not _sleeping(seconds))


def test_what_a_killed_command_line_ran_ends_too(seconds: str) -> None:
    command = [sys.executable, "-m", "taskweaver_ext.cli", "exec", "bash", "--timeout", "0"]
    owner = subprocess.Popen(
        [*command, "-c", CHILDREN.format(seconds=seconds)], stdout=subprocess.PIPE, text=True
    )

    _kill_when_ready(owner, None)

    wait_until(lambda: not _sleeping(seconds))


def test_it_ends_with_the_last_family_and_harms_no_other(seconds: str) -> None:
    killer = OrphanKiller()
    bystander = subprocess.Popen(["sleep", seconds], start_new_session=True)
    before = psutil.Process(os.getpid()).children()

    killer.watch(ProcessFamily(0, "a" * 32))
    killer.watch(ProcessFamily(bystander.pid, "b" * 32))
    leave = killer.stay_for(killer)
    killer.forget("b" * 32)
    killer.forget("a" * 32)
    stayed = psutil.Process(os.getpid()).children()
    leave()

    assert len(stayed) == len(before) + 1
    assert psutil.Process(os.getpid()).children() == before
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
