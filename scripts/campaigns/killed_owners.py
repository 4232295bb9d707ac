"""Owners that are killed at any moment leave no kernel, shell or child behind."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil

from taskweaver_ext.machine.child_environment import child_environment
from tests.support.executions import wait_until

ROUNDS = 100

MARK = "TASKWEAVER_CAMPAIGN"
"""A variable that whatever an owner starts inherits."""

OWNER = """
import sys, threading
from taskweaver_ext import Environment, ExecutorRegistry

CHILDREN = (
    "import subprocess\\n"
    "subprocess.Popen(['sleep', '1000'])\\n"
    "subprocess.Popen(['sleep', '1000'], start_new_session=True)\\n"
    "subprocess.Popen(['bash', '-c', 'sleep 1000 >&- 2>&- & setsid sleep 1000'])\\n"
)
environment = Environment(sys.argv[1], spare_kernels=1)
print("environment", flush=True)
environment.start_session("s1")
print("kernel", flush=True)
environment.execute_code("s1", CHILDREN)
print("children", flush=True)
shell = ExecutorRegistry(environment, "s1").get("bash")
shell.execute("sleep 1000 & setsid sleep 1000 &")
print("shell", flush=True)
threading.Thread(target=shell.execute, args=("setsid sleep 1000 & sleep 1000",)).start()
environment.execute_code("s1", CHILDREN + "while True: pass")
"""
STEPS = ("", "environment\n", "kernel\n", "children\n", "shell\n")


def main(rounds: int, seed: int) -> int:
    """Kill so many owners; a failed assertion says in which round something has survived."""
    choose = random.Random(seed)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            play(Path(folder), choose, number)
    return 0


def play(folder: Path, choose: random.Random, number: int) -> None:
    """Start an owner, kill it some moment after one of its steps, and wait for the end of all."""
    step, mark = choose.choice(STEPS), str(uuid.uuid4())
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        env=child_environment({MARK: mark}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        while step and (line := owner.stdout.readline()) != step:
            assert line, f"round {number}: the owner ended before {step!r}"
        time.sleep(choose.uniform(0, 0.3))  # that it comes at any moment is the point
        owner.kill()
        owner.wait()
    try:
        wait_until(lambda: not _marked(mark))
    except AssertionError:
        left = [process.cmdline() for process in _marked(mark)]
        raise AssertionError(f"round {number}: after {step!r} there still runs {left}") from None


def _marked(mark: str) -> list[psutil.Process]:
    """Return the processes that an owner has started, by what they have inherited."""
    return [process for process in psutil.process_iter() if _inherited(process) == mark]


def _inherited(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:  # it has ended, or is not ours
        return None
