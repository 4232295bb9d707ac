"""End all processes that something of ours started, wherever they moved to.

A process that leaves its group and its parents is still known by a mark in
the environment it was started with. Linux only; elsewhere the group is all
that can be reached.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "TASKWEAVER_PROCESS_MARK"
"""The variable whose value marks a process and what it starts."""

_PROC = Path("/proc")
_ROUNDS = 20
_ROUND_SECONDS = 0.05


def kill_process_tree(leader: int, mark: str) -> None:
    """Kill the group and session led by `leader`, and every process that carries `mark`.

    Repeats until none is left, because a process may start another while we look.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(_ROUNDS):
        found = list(_living(leader, mark))
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS if _ else 0.001)


def _living(leader: int, mark: str) -> Iterator[int]:
    if not _PROC.is_dir():
        return
    wanted = f"{MARK}={mark}".encode()
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit():
            continue
        try:
            state, session = _state_and_session(entry.path)
            if state in "ZX":
                continue
            if session == leader or wanted in _environment(entry.path):
                yield int(entry.name)
        except OSError:
            continue  # it ended, or is not ours to see


def _state_and_session(process_path: str) -> tuple[str, int]:
    with open(f"{process_path}/stat", "rb") as file:
        # The name is in parentheses and may hold anything, spaces and parentheses too.
        fields = file.read().rpartition(b") ")[2].split()
    return fields[0].decode(), int(fields[3])


def _environment(process_path: str) -> list[bytes]:
    with open(f"{process_path}/environ", "rb") as file:
        return file.read().split(b"\0")
