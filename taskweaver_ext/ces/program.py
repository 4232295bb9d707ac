"""One program from its start to its end: its process, its output, its limits.

The program leads a session and a group of its own. When it ends, everything it
started ends with it, wherever it moved to.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from taskweaver_ext.ces.process_output import OutputPipe, TakeBytes
from taskweaver_ext.ces.process_tree import (
    MARK,
    ProcessFamily,
    kill_family,
    name_of_pipe,
    ticks_since_boot,
)
from taskweaver_ext.ces.results import Usage

StopReason: TypeAlias = Literal["timeout", "interrupt", "output_limit", "kill"]

_STEPS: dict[StopReason, tuple[tuple[signal.Signals, float], ...]] = {
    "timeout": ((signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0)),
    "interrupt": ((signal.SIGINT, 1.0), (signal.SIGTERM, 0.5), (signal.SIGKILL, 1.0)),
    "output_limit": ((signal.SIGTERM, 0.5), (signal.SIGKILL, 1.0)),
    "kill": ((signal.SIGKILL, 1.0),),
}
"""Which signals end a program, and how long each is given to work."""

_LINGER_SECONDS = 0.2
"""How long others may go on writing once the program itself has ended."""
_RECENT_SECONDS = 1.0
"""Process ids are not used up within this time."""
_LIVENESS_SECONDS = 0.02
"""How often to look whether the program lives, where the system does not tell."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """What a program may use; None is no limit. They bind each of its processes."""

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    file_bytes: int | None = None
    """How large a file it may write."""

    def entries(self) -> list[str]:
        """The limits as the launcher reads them: name, value, slack before the hard limit."""
        # Reserved address space is not memory, so RLIMIT_AS would stop programs that
        # use little; but only Linux counts all private memory as data.
        memory = "RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS"
        wanted = (
            (memory, self.memory_bytes, 0),
            ("RLIMIT_CPU", self.cpu_seconds, 1),
            ("RLIMIT_FSIZE", self.file_bytes, 0),
        )
        return [f"{name}:{value}:{slack}" for name, value, slack in wanted if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSettings:
    """What a program is started with."""

    path: str
    command: tuple[str, ...]
    """The name it is called by, and its arguments."""
    cwd: Path
    environment: Mapping[str, str]
    stdin: bytes | None = None
    """None: the program finds the end of its input at once."""
    limits: ProgramLimits = field(default_factory=ProgramLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    """How a program came to its end."""

    exit_code: int | None
    """None when a signal ended it, or nobody knows."""
    signal: signal.Signals | int | None = None
    stopped_for: StopReason | None = None
    """Why we ended it; None when it ended by itself."""
    was_out_of_memory: bool = False
    """Whether the system killed it to free memory."""
    usage: Usage = field(default_factory=Usage)


class StopRequest:
    """A wish to stop that a poll loop can wait for.

    Threads:
        Any thread may call `request`, at any time. `_lock` guards the pipe
        against being closed meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._receiver, self._sender = os.pipe()
        self._is_open = True
        self.reason: StopReason | None = None

    def request(self, reason: StopReason) -> None:
        """Ask for the stop; asking again may only make it harder."""
        with self._lock:
            if self._is_open and self.reason not in (reason, "kill"):
                self.reason = reason
                os.write(self._sender, b"!")

    def fileno(self) -> int:
        """Readable while there is a request that `acknowledge` has not seen."""
        return self._receiver

    def acknowledge(self) -> None:
        """Make the descriptor quiet again."""
        os.read(self._receiver, 16)

    def close(self) -> None:
        """Let go of the pipe; later requests do nothing."""
        with self._lock:
            self._is_open = False
            os.close(self._receiver)
            os.close(self._sender)


class Program:
    """A process and all it starts, owned by the thread that calls `start` and `supervise`."""

    def __init__(
        self,
        settings: ProgramSettings,
        *,
        take: TakeBytes,
        take_binary: TakeBytes | None,
        has_too_much_output: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._take = take
        self._take_binary = take_binary
        self._has_too_much_output = has_too_much_output
        self._mark = uuid.uuid4().hex
        self._pipes: list[OutputPipe] = []
        self._stopped_for: StopReason | None = None
        self._steps: Iterator[tuple[signal.Signals, float]] = iter(())
        self._next_step_at: float | None = None

    def start(self) -> None:
        """Start the process; raises OSError, or ValueError for what no process can be given."""
        settings = self._settings
        path, command = settings.path, list(settings.command)
        if entries := settings.limits.entries():
            launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(len(entries)), *entries]
            path, command = sys.executable, [*launcher, path, *command]
        self._out_of_memory_kills = _out_of_memory_kills()
        started_ticks = ticks_since_boot()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            outputs = _pipe(ours, theirs)
            errors = _pipe(ours, theirs)
            lifeline = _pipe(theirs, theirs)
            self._process = subprocess.Popen(
                command,
                executable=path,
                env={**settings.environment, MARK: self._mark},
                cwd=settings.cwd,
                stdin=theirs.enter_context(_input_file(settings.stdin)),
                stdout=outputs[1],
                stderr=errors[1],
                pass_fds=[lifeline[1]],
                start_new_session=True,
            )
            self._family = ProcessFamily(
                self._process.pid, self._mark, started_ticks, name_of_pipe(lifeline[1])
            )
            self._family.tag()
            ours.pop_all()
        self._started_at = time.monotonic()
        self._pipes = [
            OutputPipe(outputs[0], "stdout", self._take, self._take_binary),
            OutputPipe(errors[0], "stderr", self._take, self._take_binary),
        ]

    def supervise(self, deadline: float | None, stop: StopRequest) -> ProgramEnd:
        """Read its output until it has ended; end it when asked to, or at the deadline."""
        pidfd = _open_pidfd(self._process.pid)
        try:
            self._read_until_ended(pidfd, deadline, stop)
            if self._stopped_for is None:
                self._linger(stop)
            is_recent = time.monotonic() < self._started_at + _RECENT_SECONDS
            kill_family(self._family, is_recent=is_recent)
            for pipe in self._pipes:
                pipe.drain()
        finally:
            if pidfd is not None:
                os.close(pidfd)
            for pipe in self._pipes:
                pipe.close()
        return self._collect()

    def _read_until_ended(
        self, pidfd: int | None, deadline: float | None, stop: StopRequest
    ) -> None:
        pipes = {pipe.descriptor: pipe for pipe in self._pipes}
        poller = select.poll()
        for descriptor in (*pipes, stop.fileno(), *([] if pidfd is None else [pidfd])):
            poller.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll(self._milliseconds_to_wait(pidfd, deadline)):
                if descriptor in pipes:
                    pipes[descriptor].read()
                    if not pipes[descriptor].is_open:
                        poller.unregister(descriptor)
                elif descriptor == pidfd:
                    return
                else:
                    stop.acknowledge()
                    self._stop(stop.reason or "interrupt")
            if pidfd is None and self._process.poll() is not None:
                return
            if self._has_too_much_output():
                self._stop("output_limit")
            self._take_next_step(deadline)

    def _milliseconds_to_wait(self, pidfd: int | None, deadline: float | None) -> float | None:
        moments = [deadline if self._stopped_for is None else None, self._next_step_at]
        if pidfd is None:
            moments.append(time.monotonic() + _LIVENESS_SECONDS)
        wanted = [moment for moment in moments if moment is not None]
        return max(0.0, min(wanted) - time.monotonic()) * 1000 if wanted else None

    def _take_next_step(self, deadline: float | None) -> None:
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            self._stop("timeout")
        if self._next_step_at is not None and now >= self._next_step_at:
            self._step()

    def _stop(self, reason: StopReason) -> None:
        """Begin to end the program, for the first reason only; but "kill" comes first of all."""
        if self._stopped_for is None:
            self._stopped_for = reason
        elif reason != "kill":
            return
        self._steps = iter(_STEPS[reason])
        self._step()

    def _step(self) -> None:
        number, seconds = next(self._steps, (signal.SIGKILL, 1.0))
        self._next_step_at = time.monotonic() + seconds
        if number is signal.SIGKILL:
            kill_family(self._family)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _linger(self, stop: StopRequest) -> None:
        """Let others that write to the same pipes finish, for a moment."""
        deadline = time.monotonic() + _LINGER_SECONDS
        while open_pipes := {pipe.descriptor: pipe for pipe in self._pipes if pipe.is_open}:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or stop.reason is not None or self._has_too_much_output():
                return
            poller = select.poll()
            for descriptor in open_pipes:
                poller.register(descriptor, select.POLLIN)
            for descriptor, _ in poller.poll(remaining * 1000):
                open_pipes[descriptor].read()

    def _collect(self) -> ProgramEnd:
        """Wait for the process, which has ended, and say how it did."""
        process = self._process
        usage = Usage()
        if process.returncode is None:
            try:
                _, status, used = os.wait4(process.pid, 0)
            except ChildProcessError:  # somebody else in this program collects all children
                return ProgramEnd(exit_code=None, stopped_for=self._stopped_for)
            process.returncode = os.waitstatus_to_exitcode(status)
            usage = _usage(used)
        code = process.returncode
        was_killed = code == -signal.SIGKILL and self._stopped_for is None
        return ProgramEnd(
            exit_code=code if code >= 0 else None,
            signal=_signal(-code) if code < 0 else None,
            stopped_for=self._stopped_for,
            was_out_of_memory=was_killed and _out_of_memory_kills() > self._out_of_memory_kills,
            usage=usage,
        )


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with their stacks."""
    receiver, sender = os.pipe()
    reading.callback(os.close, receiver)
    writing.callback(os.close, sender)
    return receiver, sender


@contextlib.contextmanager
def _input_file(data: bytes | None) -> Iterator[int]:
    """A file for a process to read; unlike a pipe it needs nobody to write it."""
    if data is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile(buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        file.seek(0)
        yield file.fileno()


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _usage(used: resource.struct_rusage) -> Usage:
    unit = 1 if sys.platform == "darwin" else 1024
    # A child counts the memory it shared with us before it became another program.
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Usage(
        peak_memory_bytes=used.ru_maxrss * unit if used.ru_maxrss > ours else None,
        cpu_seconds=used.ru_utime + used.ru_stime,
    )


def _signal(number: int) -> signal.Signals | int:
    try:
        return signal.Signals(number)
    except ValueError:
        return number  # a real-time signal without a name


def _out_of_memory_kills() -> int:
    """How many processes the system has killed to free memory, in all containers."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat", "rb") as file:
        return int(file.read().partition(b"\noom_kill ")[2].split(b"\n", 1)[0])
    return 0
