"""Capabilities: what root may do beyond files of its own, given up for good."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import struct
from collections.abc import Iterable

from .system_calls import call, prctl

_SET_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDS = 38, 24
_AMBIENT, _CLEAR_AMBIENT = 47, 4
_SET_DUMPABLE = 4
_VERSION_3 = 0x20080522

LOOKING_INTO_PROCESSES = (
    *(16, 17, 19, 21),  # SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN
    *(38, 39, 40),  # PERFMON, BPF, CHECKPOINT_RESTORE
)
"""The ways around what a process may see of others."""


def give_up_new_privileges() -> None:
    """Let no program that is executed from here on have more rights than we (setuid)."""
    prctl(_SET_NO_NEW_PRIVILEGES, 1)


def give_up_capabilities(numbers: Iterable[int] | None = None) -> None:
    """Give up capabilities, all of them by default; who has none loses nothing."""
    mask = 0 if numbers is None else ~sum(1 << number for number in numbers)
    _drop_from_bounds(range(64) if numbers is None else numbers)
    with contextlib.suppress(OSError):  # Linux before 4.3 has no such set
        prctl(_AMBIENT, _CLEAR_AMBIENT)
    effective, permitted = _held()
    sets = [effective & mask, permitted & mask, 0]
    low = [value & 0xFFFFFFFF for value in sets]
    high = [value >> 32 & 0xFFFFFFFF for value in sets]
    call("capset", struct.pack("=Ii", _VERSION_3, 0), struct.pack("=6I", *low, *high))


def hide_memory() -> None:
    """Keep processes of the same user from reading our memory, environment and descriptors."""
    prctl(_SET_DUMPABLE, 0)


def show_memory() -> None:
    """Take that back, as for a process that was forked from one that hides."""
    prctl(_SET_DUMPABLE, 1)


def _drop_from_bounds(numbers: Iterable[int]) -> None:
    try:
        for number in numbers:
            prctl(_DROP_FROM_BOUNDS, number)
    except OSError as error:
        # Only root may, and need; and there are fewer than 64.
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise


def _held() -> tuple[int, int]:
    """Which are in effect, and which could be."""
    sets = ctypes.create_string_buffer(24)
    call("capget", struct.pack("=Ii", _VERSION_3, 0), sets)
    low, high = struct.unpack("=3I3I", sets.raw)[:3], struct.unpack("=3I3I", sets.raw)[3:]
    return low[0] | high[0] << 32, low[1] | high[1] << 32
