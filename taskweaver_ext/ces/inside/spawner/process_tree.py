"""Find and end all processes that something of ours started, wherever they moved to.

A process that leaves its group and its parents is still known by one of the
things it inherited: its session, a mark in the environment it was started
with, a tag among its resource limits, which stays where a program clears the
environment, and the end of a pipe, which is there from the very start. Linux
only; elsewhere the group is all that can be reached.

Works on this machine and, sent along with the rest of this folder, in containers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

if sys.platform == "linux":
    import resource

MARK = "TASKWEAVER_PROCESS_MARK"
"""The variable whose value marks a process and what it starts."""

_PROC = Path("/proc")
_KILL_SECONDS = 5.0
_ROUND_SECONDS = 0.1
_SHORT_RANGE = 256
"""Process ids that are looked at one by one rather than by listing all."""
_TAG_BASE = 1 << 61
_MARK_IN_ENVIRONMENT = f"{MARK}=".encode()


@dataclass(frozen=True)
class ProcessSeen:
    """What the system says of a living process."""

    pid: int
    parent: int
    session: int
    start_ticks: int
    """When it was started, in clock ticks since boot."""
    mark: str = ""
    """The mark it was started with, where that was looked at."""


@dataclass(frozen=True)
class ProcessFamily:
    """The processes that descend from one that was started with a mark."""

    leader: int
    mark: str
    """Starts with hexadecimal digits; a part after a "-" tells sub-families apart."""
    started_ticks: int = 0
    """A moment before the leader's start; older processes are not looked at."""
    lifeline: str = ""
    """The pipe whose end the leader was given, as `name_of_pipe` has it."""

    def tag(self) -> None:
        """Let the leader and what it starts from now on be known by their limits, too.

        The limit is one that only binds real-time processes, and is as good as none.
        """
        if sys.platform == "linux":
            with contextlib.suppress(OSError, ValueError):
                _, hard = resource.prlimit(self.leader, resource.RLIMIT_RTTIME)
                if hard == resource.RLIM_INFINITY:
                    resource.prlimit(self.leader, resource.RLIMIT_RTTIME, (self.tag_value, hard))

    def members(self, *, is_recent: bool = False) -> Iterator[ProcessSeen]:
        """The living members, the leader included.

        Args:
            is_recent: The leader was started so short ago that process ids cannot have
                been used up since; then only those after its own are looked at.
        """
        for pid in _candidates(self.leader) if is_recent else _all_pids():
            seen = look_at(pid)
            if seen is not None and self._holds(seen):
                yield replace(seen, mark=mark_of(pid))

    def _holds(self, seen: ProcessSeen) -> bool:
        if seen.session == self.leader or seen.pid == self.leader:
            return True
        if seen.start_ticks < self.started_ticks:
            return False
        if f" {self.tag_value} ".encode() in _read(seen.pid, "limits"):
            return True
        if mark_of(seen.pid).startswith(self.mark):
            return True
        return bool(self.lifeline) and self.lifeline in _open_files(seen.pid)

    @property
    def tag_value(self) -> int:
        """The limit that members have, in microseconds of real-time work."""
        return _TAG_BASE + int(self.mark.partition("-")[0][:14], 16)


def kill_family(family: ProcessFamily, *, is_recent: bool = False) -> None:
    """Kill all members of a family.

    Repeats until none is left, because a process may start another while we look.
    The leader must not have been waited for: its number could be another's by now.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(family.leader, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        found = list(family.members(is_recent=is_recent))
        if not found:
            return
        signal_processes(found, signal.SIGKILL, wait_seconds=_ROUND_SECONDS)


def signal_processes(
    processes: Iterable[ProcessSeen], number: signal.Signals, *, wait_seconds: float = 0.0
) -> None:
    """Send a signal to processes that were seen, and wait a moment for them to end."""
    deadline = time.monotonic() + wait_seconds
    descriptors = []
    try:
        for process in processes:
            with contextlib.suppress(OSError):  # it ended, is a thread, or is not ours to end
                descriptor = _open_process(process.pid)
                if descriptor is not None:
                    descriptors.append(descriptor)
                now = look_at(process.pid)
                if now is None or now.start_ticks != process.start_ticks:
                    continue  # its number is another's by now
                if descriptor is None:
                    os.kill(process.pid, number)
                else:
                    signal.pidfd_send_signal(descriptor, number)
        for descriptor in descriptors if wait_seconds else ():
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _open_process(pid: int) -> int | None:
    """A descriptor of a process; None where the system has none, or a sandbox refuses it."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise


def look_at(pid: int) -> ProcessSeen | None:
    """What is known of a process; None when it has ended."""
    # The name is in parentheses and may hold anything, spaces and parentheses too.
    fields = _read(pid, "stat").rpartition(b") ")[2].split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return ProcessSeen(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def wait_status_of(pid: int) -> int | None:
    """How a process ended that its parent has not collected yet; None when that cannot be seen."""
    fields = _read(pid, "stat").rpartition(b") ")[2].split()
    return int(fields[49]) if len(fields) > 49 and fields[0] == b"Z" else None


def mark_of(pid: int) -> str:
    """The mark a process was started with; empty when it has none, or is not ours to see."""
    for entry in _read(pid, "environ").split(b"\0"):
        if entry.startswith(_MARK_IN_ENVIRONMENT):
            return entry[len(_MARK_IN_ENVIRONMENT) :].decode("ascii", "replace")
    return ""


def name_of_pipe(descriptor: int) -> str:
    """What the system calls the pipe behind a descriptor of ours."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def ticks_since_boot() -> int:
    """The time, as the start times of processes have it."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _candidates(leader: int) -> Iterable[int]:
    """The ids given out since the leader's, if they are few; else all there are."""
    try:
        last = int((_PROC / "loadavg").read_bytes().split()[4])
    except (OSError, IndexError, ValueError):
        return _all_pids()
    if leader <= last < leader + _SHORT_RANGE:
        return range(leader, last + 1)
    return _all_pids()


def _all_pids() -> Iterator[int]:
    if _PROC.is_dir():
        for name in os.listdir(_PROC):
            if name.isdigit():
                yield int(name)


def _open_files(pid: int) -> set[str]:
    names = set()
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                names.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return names


def _read(pid: int, name: str) -> bytes:
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return b""  # it ended while we looked
    finally:
        os.close(descriptor)
