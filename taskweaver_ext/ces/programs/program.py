"""One program from its start to its end: its process, its output, its limits.

The program leads a session and a group of its own. When it ends, everything it
started ends with it, wherever it moved to.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath, StreamName, Usage
from taskweaver_ext.ces.programs.process_output import OnBytes, OutputPipe, ReadEnd
from taskweaver_ext.ces.programs.site import ProcessSettings, ProgramSite

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
_LIVENESS_SECONDS = 0.02
"""How often to look whether the program lives, where the system does not tell."""


def reason_to_stop(kill_after: float | None) -> StopReason:
    """Whether a cancelled program is killed at once; else it is soon, should nothing else help."""
    return "kill" if kill_after == 0 else "interrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """What a program may use; None is no limit. They bind each of its processes."""

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    file_bytes: int | None = None
    """How large a file it may write."""

    def entries(self) -> tuple[str, ...]:
        """The limits as a site takes them: name, value, slack before the hard limit."""
        # Reserved address space is not memory, so RLIMIT_AS would stop programs that
        # use little; but only Linux counts all private memory as data.
        memory = "RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS"
        wanted = (
            (memory, self.memory_bytes, 0),
            ("RLIMIT_CPU", self.cpu_seconds, 1),
            ("RLIMIT_FSIZE", self.file_bytes, 0),
        )
        return tuple(
            f"{name}:{value}:{slack}" for name, value, slack in wanted if value is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    """How a program came to its end."""

    exit_code: int | None
    """None when a signal ended it, or it is not known."""
    signal: int | None = None
    stopped_for: StopReason | None = None
    """Why we ended it; None when it ended by itself."""
    was_out_of_memory: bool = False
    """Whether the system killed it to free memory."""
    death: KernelDeath | None = None
    """How the place it ran in ended, if that is why it did."""
    limits_met: tuple[str, ...] = ()
    """The limits of that place that it met, in words."""
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

    def request(self, kill_after: float | None) -> None:
        """Ask for the stop, as `CancellationToken.cancel` does; asking again may make it harder."""
        reason = reason_to_stop(kill_after)
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
        site: ProgramSite,
        settings: ProcessSettings,
        *,
        on_bytes: OnBytes,
        on_binary: OnBytes | None,
        read_notices: Callable[[HostNotice], None],
        has_too_much_output: Callable[[], bool],
    ) -> None:
        self._site = site
        self._settings = settings
        self._on_bytes = on_bytes
        self._on_binary = on_binary
        self._take_news = read_notices
        self._has_too_much_output = has_too_much_output
        self._pipes: list[OutputPipe] = []
        self._stopped_for: StopReason | None = None
        self._steps: Iterator[tuple[signal.Signals, float]] = iter(())
        self._next_step_at: float | None = None

    def start(self) -> None:
        """Start the process; raises OSError, or ValueError for what no process can be given."""
        process = self._process = self._site.start(self._settings)
        ends: tuple[tuple[ReadEnd | None, StreamName], ...] = (
            (process.stdout, "stdout"),
            (process.stderr, "stderr"),
        )
        self._pipes = [
            OutputPipe(end, stream, self._on_bytes, self._on_binary)
            for end, stream in ends
            if end is not None
        ]

    def supervise(self, deadline: float | None, stop: StopRequest) -> ProgramEnd:
        """Read its output until it has ended; end it when asked to, or at the deadline."""
        try:
            self._read_until_ended(deadline, stop)
            if self._stopped_for is None:
                self._linger(stop)
            self._process.kill_all()
            for pipe in self._pipes:
                pipe.drain()
        finally:
            for pipe in self._pipes:
                pipe.close()
        return self._collect()

    def _read_until_ended(self, deadline: float | None, stop: StopRequest) -> None:
        process = self._process
        pipes = {pipe.descriptor: pipe for pipe in self._pipes}
        poller = select.poll()
        for descriptor in (*pipes, stop.fileno(), process.descriptor):
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll(self._milliseconds_to_wait(deadline)):
                if descriptor in pipes:
                    pipes[descriptor].read()
                    if not pipes[descriptor].is_open:
                        poller.unregister(descriptor)
                elif descriptor == process.descriptor:
                    for notice in process.read_notices():
                        self._take_news(notice)
                    if process.has_ended():
                        return
                else:
                    stop.acknowledge()
                    self._stop(stop.reason or "interrupt")
            if process.descriptor is None and process.has_ended():
                return
            if self._has_too_much_output():
                self._stop("output_limit")
            self._escalate(deadline)

    def _milliseconds_to_wait(self, deadline: float | None) -> float | None:
        moments = [deadline if self._stopped_for is None else None, self._next_step_at]
        if self._process.descriptor is None:
            moments.append(time.monotonic() + _LIVENESS_SECONDS)
        wanted = [moment for moment in moments if moment is not None]
        return max(0.0, min(wanted) - time.monotonic()) * 1000 if wanted else None

    def _escalate(self, deadline: float | None) -> None:
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
            self._process.kill_all()
        else:
            self._process.signal_group(number)

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
        """Let go of the process, which has ended, and say how it did."""
        limits_met = self._process.limits_met()
        death = self._process.death()
        end = self._process.collect()
        code = end.code
        return ProgramEnd(
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            stopped_for=self._stopped_for,
            was_out_of_memory=end.was_out_of_memory and self._stopped_for is None,
            death=death,
            limits_met=tuple(limits_met),
            usage=Usage(peak_memory_bytes=end.peak_memory_bytes, cpu_seconds=end.cpu_seconds),
        )
