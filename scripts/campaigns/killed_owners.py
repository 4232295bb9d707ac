"""Owners and zygotes that are killed at any moment leave no kernel, shell, program or child."""

from __future__ import annotations

import contextlib
import random
import signal
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
from taskweaver_ext import Environment, EnvMode, ExecutorRegistry

CHILDREN = (
    "import subprocess\\n"
    "subprocess.Popen(['sleep', '1000'])\\n"
    "subprocess.Popen(['sleep', '1000'], start_new_session=True)\\n"
    "subprocess.Popen(['bash', '-c', 'sleep 1000 >&- 2>&- & setsid sleep 1000'])\\n"
    "subprocess.Popen(['bash', '-c', '(setsid nohup sleep 1000 &) &'])\\n"
)
folder, mode, guard, warm = sys.argv[1:]
environment = Environment(
    folder,
    EnvMode(mode),
    spare_kernels=1 if mode == "local" else 0,
    guard=guard == "True",
    warm_start=warm == "True",
)
print("environment", flush=True)
environment.start_session("s1")
print("kernel", flush=True)
environment.execute_code("s1", CHILDREN)
print("children", flush=True)
registry = ExecutorRegistry(environment, "s1")
shell = registry.get("bash")
shell.execute("sleep 1000 & setsid sleep 1000 &")
print("shell", flush=True)
program = registry.get("python", fresh=True)
threading.Thread(target=program.execute, args=(CHILDREN + "input(); while_ = 1",)).start()
threading.Thread(
    target=program.execute, args=(CHILDREN + "import time; time.sleep(1000)",)
).start()
threading.Thread(target=shell.execute, args=("setsid sleep 1000 & sleep 1000",)).start()
print("programs", flush=True)
environment.execute_code("s1", CHILDREN + "while True: pass")
"""
STEPS = ("", "environment\n", "kernel\n", "children\n", "shell\n", "programs\n")
MODES = (
    ("local", False, True),
    ("local", False, False),
    ("local", True, True),
    ("sandbox", False, True),
)
"""Where code runs, whether it is guarded, and whether kernels are forked from a zygote."""


def main(rounds: int, seed: int) -> int:
    """Kill so many owners; a failed assertion says in which round something has survived."""
    choose = random.Random(seed)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            play(Path(folder), choose, number)
    return 0


def play(folder: Path, choose: random.Random, number: int) -> None:
    """Start an owner, kill it some moment after one of its steps, and wait for the end of all."""
    step, mark, mode = choose.choice(STEPS), str(uuid.uuid4()), choose.choice(MODES)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), *map(str, mode)],
        env=child_environment({MARK: mark}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        while step and (line := owner.stdout.readline()) != step:
            assert line, f"round {number}: the owner ended before {step!r}"
        time.sleep(choose.uniform(0, 0.3))  # that it comes at any moment is the point
        how = _kill_in_some_order(psutil.Process(owner.pid), choose)
        owner.wait()
    try:
        wait_until(lambda: not _marked(mark))
    except AssertionError:
        left = [process.cmdline() for process in _marked(mark)]
        raise AssertionError(
            f"round {number}: {mode} after {step!r}, killed {how}, there still runs {left}"
        ) from None


def _kill_in_some_order(owner: psutil.Process, choose: random.Random) -> list[str]:
    """Kill an owner, perhaps its zygote too, before or after, and perhaps stop them first."""
    zygotes = [child for child in owner.children() if "zygote_main" in " ".join(_command(child))]
    victims = choose.choice(([owner], [owner, *zygotes], [*zygotes, owner]))
    if choose.random() < 0.3:
        for process in choose.sample([owner, *zygotes], k=choose.randint(1, 1 + len(zygotes))):
            _send(process, signal.SIGSTOP)
    for process in victims:
        _send(process, signal.SIGKILL)
        time.sleep(choose.choice((0.0, choose.uniform(0, 0.2))))
    return ["owner" if process is owner else "zygote" for process in victims]


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def _marked(mark: str) -> list[psutil.Process]:
    """Return the processes that an owner has started, by what they have inherited."""
    return [process for process in psutil.process_iter() if _inherited(process) == mark]


def _inherited(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:  # it has ended, or is not ours
        return None
