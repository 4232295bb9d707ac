"""What the system shows of our own environment: no more than the programs we start have of it.

Linux shows the memory in which a process was given its variables to everybody
of the same user, for as long as it lives (`ps e`, `/proc/PID/environ`). A shell
or a kernel finds there what was kept out of its own environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from taskweaver_ext.machine.child_environment import is_passed_on

_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48
"""Fields of /proc/PID/stat, counted behind the name."""


def hide_what_is_not_passed_on() -> None:
    """Wipe it where the system shows it; for us every variable stays what it is.

    For a program of ours, as it starts and has one thread: it moves variables that C code could
    be reading. Where a system is not Linux, or not as expected, nothing happens.
    """
    start, shown = _shown_environment()
    for entry in shown.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name and not is_passed_on(os.fsdecode(name), os.fsdecode(value)):
            _move(name)
            ctypes.memset(start, 0, len(entry))
        start += len(entry) + 1


def _shown_environment() -> tuple[int, bytes]:
    """The memory that the system shows: where it is, and what is in it."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
        shown = Path("/proc/self/environ").read_bytes()
        if start and end - start == len(shown) and ctypes.string_at(start, len(shown)) == shown:
            return start, shown
    return 0, b""


def _move(name: bytes) -> None:
    """Have C code find a variable elsewhere, with the value that it has now."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value: bytes | None = getenv(name)
    if value is not None:
        os.putenv(name, value)
