"""The command line: in a process of its own, or in ours."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from taskweaver_ext.cli.main import main

PROGRAM = [sys.executable, "-m", "taskweaver_ext.cli"]

StartProgram: TypeAlias = Callable[..., Any]
"""Returns a `Popen` whose output can be read, which its type does not say."""


def exit_code_of(*arguments: str) -> int:
    """Run a command in our process and return its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


@contextmanager
def starting(command: str, *, cwd: Path, environ: Mapping[str, str]) -> Iterator[StartProgram]:
    """Starts a command with pipes, as often as it is called; what still runs then is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*PROGRAM, command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=environ,
            # Under `nohup` we ignore it, and programs would go on doing so.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
