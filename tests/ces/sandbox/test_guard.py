"""What a guard keeps local kernels, shells and programs from, and what the command line hides."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext import Environment, ExecutionStatus, ExecutorRegistry, ProcessExecutor
from taskweaver_ext.ces.inside.sandbox import landlock
from taskweaver_ext.ces.sandbox import sandbox
from tests.support.sandboxes import NOBODY, make_world

pytestmark = pytest.mark.skipif(landlock.version() < 6, reason="signals need Linux 6.12")

ATTEMPTS = """
import ctypes, json, os, signal
PID = OWNER
found = []
def attempt(name, action):
    try:
        action()
        found.append(name)
    except OSError:
        pass
def trace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0x4206, ctypes.c_long(PID), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
attempt("environ", lambda: open(f"/proc/{PID}/environ", "rb").read())
attempt("memory", lambda: os.open(f"/proc/{PID}/mem", os.O_RDONLY))
attempt("trace", trace)
attempt("signal", lambda: os.kill(PID, signal.SIGCONT))
attempt("files", lambda: os.listdir(os.path.expanduser("~")))
print(json.dumps(sorted(found)))
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ExecutorRegistry]:
    with (
        Environment(tmp_path, guard=True) as environment,
        ExecutorRegistry(environment, "s1") as registry,
    ):
        yield registry


def attempts_on(owner: int | str) -> str:
    return ATTEMPTS.replace("OWNER", str(owner))


@pytest.mark.parametrize("how", ["kernel", "shell", "program"])
def test_guarded_code_does_nothing_to_us_and_all_else(how: str, guarded: ExecutorRegistry) -> None:
    code = attempts_on(os.getpid())

    if how == "shell":
        command = f"{sys.executable} - <<'END'\n{code}\nEND"
        result = guarded.get("bash").execute(command, timeout=60)
    else:
        result = guarded.get("python", fresh=how == "program").execute(code, timeout=60)

    assert json.loads("".join(result.stdout)) == ["files"], result.stderr


def test_without_a_guard_it_can() -> None:
    with ProcessExecutor("python") as python:
        result = python.execute(attempts_on(os.getpid()), timeout=60)

    assert {"signal", "environ", "files"} <= set(json.loads("".join(result.stdout)))


def test_interrupts_time_limits_and_restarts_work_with_a_guard(tmp_path: Path) -> None:
    with Environment(tmp_path, guard=True) as environment:
        environment.start_session("s1")
        stopped = environment.execute_code("s1", "import time; time.sleep(1000)", timeout=1)
        environment.restart_session("s1")
        died = environment.execute_code("s1", "import os; os.kill(os.getpid(), 9)")
        after = environment.execute_code("s1", "print(1)")

    assert stopped.status is ExecutionStatus.TIMEOUT
    assert died.death is not None
    assert died.death.signal == signal.SIGKILL
    assert after.stdout == ["1\n"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("command", ["run", "exec"])
def test_what_the_command_line_runs_cannot_look_into_it(command: str) -> None:
    language = ["python"] if command == "exec" else []
    program = [sys.executable, "-m", "taskweaver_ext.cli", command, *language]
    with make_world(NOBODY) as world:
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(world.folder / "outside/home"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        }
        run = subprocess.run(
            world.as_user([*program, "-c", attempts_on("os.getppid()")]),
            cwd=world.working_folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert json.loads(run.stdout) == ["files", "signal"], run.stderr


def test_where_a_guard_has_gaps_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 3)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    old, root = sandbox.find_gaps_of_guard()

    assert "since Linux 6.12" in old
    assert "runs as root" in root
