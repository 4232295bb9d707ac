"""An environment belongs to the process that opened it: its forks neither use nor end it."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.executions import LIMIT_SECONDS, has_ended, wait_until

PROGRAM = """
import gc, multiprocessing, os, signal, sys, time
from taskweaver_ext import Environment, SessionError

environment = Environment(sys.argv[1], warm_start=sys.argv[2] == "warm")
environment.start_session("s1")
environment.execute_code("s1", "x = 5")

def in_a_fork(function):
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join()
    return process.exitcode
"""

REFUSED = """
def use():
    for ask in (
        lambda: environment.execute_code("s1", "x"),
        lambda: environment.interrupt("s1"),
        lambda: environment.start_session("s2"),
        lambda: environment.stop_session("s1"),
    ):
        try:
            ask()
        except SessionError as error:
            assert str(os.getppid()) in str(error)
        else:
            sys.exit(1)
print(in_a_fork(use))
"""

LET_GO = """
def close():
    environment.close()
def forget():
    global environment
    del environment
    gc.collect()
print(in_a_fork(close), in_a_fork(forget))
"""

OWN = """
def open_another():
    with Environment(sys.argv[1] + "-own") as own:
        own.start_session("s1")
        sys.exit(int(own.execute_code("s1", "6 * 7").output))
print(in_a_fork(open_another))
"""

STILL_THERE = """
print(environment.execute_code("s1", "x").output)
environment.close()
"""

KILLED = """
fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
fork.start()
print(fork.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("code", "printed"),
    [(REFUSED, "0\n5\n"), (LET_GO, "0 0\n5\n"), (OWN, "42\n5\n")],
    ids=["uses it", "lets go of it", "opens its own"],
)
def test_a_fork_does_no_harm(tmp_path: Path, code: str, printed: str) -> None:
    program = PROGRAM + code + STILL_THERE

    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), "warm"],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )

    assert ended.stdout == printed, ended.stderr


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_no_kernel_outlives_a_killed_owner_whose_forks_do(tmp_path: Path, start: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + KILLED, str(tmp_path), start],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        fork = psutil.Process(int(owner.stdout.readline()))
        family = set(psutil.Process(owner.pid).children(recursive=True)) - {fork}
        owner.kill()
        owner.wait()

    try:
        assert len(family) >= 2  # a kernel, and its zygote or orphan killer
        for process in family:
            wait_until(partial(has_ended, process.pid))
        assert fork.is_running()
    finally:
        fork.kill()
