"""A process that leads a session of its own, with everything that it starts.

Works on this machine and, sent along with the rest of this folder, in containers.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .process_tree import (
    MARK,
    ProcessFamily,
    ProcessSeen,
    kill_family,
    name_of_pipe,
    signal_processes,
    ticks_since_boot,
)

_LIVENESS_SECONDS = 0.02
_RECENT_SECONDS = 1.0
"""Process ids are not used up within this time."""

_LAUNCHER = """
import os, resource, sys
count = int(sys.argv[1])
for entry in sys.argv[2 : 2 + count]:
    name, wanted, slack = entry.split(":")
    number = getattr(resource, name)
    ceiling = resource.getrlimit(number)[1]
    hard = int(wanted) + int(slack)
    hard = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
    resource.setrlimit(number, (min(int(wanted), hard), hard))
os.execv(sys.argv[2 + count], sys.argv[3 + count :])
"""
"""Limits itself, then becomes the program: in the forked child no Python may run, and
limits set from outside come too late for what starts quickly."""


def new_mark() -> str:
    """A mark that no other process has."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class ProcessEnd:
    """How a process came to its end."""

    code: int | None
    """Its exit code, or a signal's number below zero; None when it is not known."""
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    was_out_of_memory: bool = False
    """Whether it was killed while the system killed processes to free memory."""


class StartedProcess:
    """A process of ours; no other code may wait for it."""

    def __init__(
        self,
        path: str,
        command: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        limits: Sequence[str] = (),
        has_lifeline: bool = False,
        mark: str = "",
    ) -> None:
        """Start it; raises OSError, or ValueError for what no process can be given.

        Args:
            command: The name it is called by, and its arguments.
            limits: What its processes may use: "RLIMIT_NAME:VALUE:SLACK", the slack being
                what the hard limit lies above.
            has_lifeline: Whether what it starts can also be known by a pipe that it inherits.
            mark: What it and all that it starts carry in their environment; by default a new one.
        """
        command = list(command)
        if limits:
            launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(len(limits)), *limits]
            path, command = sys.executable, [*launcher, path, *command]
        self.mark = mark or new_mark()
        self._out_of_memory_kills = _out_of_memory_kills()
        started_ticks = ticks_since_boot()
        pipe = os.pipe() if has_lifeline else ()
        try:
            self._process = subprocess.Popen(
                command,
                executable=path,
                env={**environment, MARK: self.mark},
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pipe[1:],
                start_new_session=True,
                preexec_fn=_heed_interrupts if _are_interrupts_ignored() else None,
            )
            lifeline = name_of_pipe(pipe[1]) if pipe else ""
            self.family = ProcessFamily(self.pid, self.mark, started_ticks, lifeline)
            self.family.tag()
        finally:
            for descriptor in pipe:
                os.close(descriptor)
        self._started_at = time.monotonic()
        self.descriptor: int | None = None
        """Readable once it has ended; None where the system does not tell."""
        with contextlib.suppress(AttributeError, OSError):
            self.descriptor = os.pidfd_open(self.pid)

    @property
    def pid(self) -> int:
        """Its process id, which is also its session and group."""
        return self._process.pid

    def has_ended(self, wait_seconds: float = 0.0) -> bool:
        """Whether it has ended, though perhaps not what it started; after a moment's wait."""
        if self.descriptor is None:
            return self._has_ended_by(time.monotonic() + wait_seconds)
        poller = select.poll()
        poller.register(self.descriptor, select.POLLIN)
        return bool(poller.poll(wait_seconds * 1000))

    def _has_ended_by(self, deadline: float) -> bool:
        while self._process.poll() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LIVENESS_SECONDS)
        return True

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        # Not Popen.send_signal, which collects a process that has ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send its group a signal."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def members(self) -> list[ProcessSeen]:
        """What lives of it and of all that it started."""
        return list(self.family.members(is_recent=self._is_recent))

    def signal_members(
        self, members: Iterable[ProcessSeen], number: int, wait_seconds: float = 0.0
    ) -> None:
        """Send a signal to some of them, and wait a moment for their end."""
        signal_processes(members, signal.Signals(number), wait_seconds=wait_seconds)

    def kill_all(self) -> None:
        """Kill it with everything it started."""
        kill_family(self.family, is_recent=self._is_recent)

    def wait(self) -> int:
        """Its exit code once it has ended; negative for the signal that ended it.

        Its process id stays taken until `collect`: what it left running is known by it.
        """
        if not hasattr(os, "waitid"):
            return self._process.wait()
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # other code of this program collects all children
            ended = None
        if ended is None:
            return 0
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def collect(self) -> ProcessEnd:
        """Wait for it, and say how it ended; afterwards its id may be another's."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        process = self._process
        if process.returncode is not None:
            return self._end(process.returncode)
        try:
            _, status, used = os.wait4(self.pid, 0)
        except ChildProcessError:  # other code of this program collects all children
            process.returncode = 0  # and is not to be asked for again
            return ProcessEnd(None)
        signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        process.returncode = -signal_number if signal_number else os.WEXITSTATUS(status)
        return self._end(process.returncode, used)

    def _end(
        self,
        code: int,
        used: resource.struct_rusage | None = None,
    ) -> ProcessEnd:
        was_killed = code == -signal.SIGKILL
        was_out_of_memory = was_killed and _out_of_memory_kills() > self._out_of_memory_kills
        if used is None:
            return ProcessEnd(code, was_out_of_memory=was_out_of_memory)
        unit = 1 if sys.platform == "darwin" else 1024
        # A child counts the memory it shared with us before it became another program.
        ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = used.ru_maxrss * unit if used.ru_maxrss > ours else None
        return ProcessEnd(code, peak, used.ru_utime + used.ru_stime, was_out_of_memory)

    @property
    def _is_recent(self) -> bool:
        return time.monotonic() < self._started_at + _RECENT_SECONDS


def find_program(command: str, environment: Mapping[str, str]) -> str | None:
    """The path of a program, looked for where the process itself would look."""
    return shutil.which(command, path=environment.get("PATH", os.defpath))


def complaint_about_folder(path: str) -> str:
    """What keeps a process from running in a folder: "absent", "file", "closed", or nothing."""
    if not os.path.exists(path):
        return "absent"
    if not os.path.isdir(path):
        return "file"
    return "" if os.access(path, os.X_OK) else "closed"


def _out_of_memory_kills() -> int:
    """How many processes the system has killed to free memory, in all containers."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat", "rb") as file:
        return int(file.read().partition(b"\noom_kill ")[2].split(b"\n", 1)[0])
    return 0


def _are_interrupts_ignored() -> bool:
    """Whether we were started where Ctrl-C is for others, as by `&` in a script."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
