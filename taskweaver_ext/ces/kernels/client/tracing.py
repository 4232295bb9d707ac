"""To look for a fault: every message to and from kernels, every stage of a start.

Both are asked for by `Tracing` and go to this module's logger. Otherwise they cost nothing:
connections are wrapped only then.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from taskweaver_ext.ces.kernels.client.host import (
    ExecuteRequest,
    KernelConnection,
    Received,
    StartedKernel,
)

LOGGER_NAME = __name__

_MAX_CHARACTERS = 1000

_log = logging.getLogger(LOGGER_NAME)


def traced(kernel: StartedKernel, name: str) -> StartedKernel:
    """The kernel, with a connection that logs what goes through it."""
    return replace(kernel, connection=TracedConnection(kernel.connection, name))


class TracedConnection:
    """A `KernelConnection` that logs what passes through another one."""

    def __init__(self, connection: KernelConnection, name: str) -> None:
        self._connection = connection
        self._name = name

    def execute(self, request: ExecuteRequest) -> None:
        """Log and send a request."""
        self._say(">", repr(request))
        self._connection.execute(request)

    def answer(self, text: str) -> None:
        """Send an answer; what it says may be a password."""
        self._say(">", f"answer of {len(text)} characters")
        self._connection.answer(text)

    def ask_if_alive(self) -> None:
        """Log and ask the kernel whether it still works."""
        self._say(">", "alive?")
        self._connection.ask_if_alive()

    def ask(self, question: dict[str, Any]) -> None:
        """Log and ask what is answered while code runs."""
        self._say(">", repr(question))
        self._connection.ask(question)

    @property
    def is_reachable(self) -> bool:
        """Whether a silent kernel could be heard now."""
        return self._connection.is_reachable

    @property
    def tells_beginnings(self) -> bool:
        """Whether code is heard to begin in any case."""
        return self._connection.tells_beginnings

    def request_shutdown(self) -> None:
        """Log and ask the kernel to end."""
        self._say(">", "shutdown request")
        self._connection.request_shutdown()

    def receive(self, timeout: float | None) -> Iterator[Received]:
        """Log what is received before it is given."""
        for received in self._connection.receive(timeout):
            self._say("<", repr(received))
            yield received

    def wake(self) -> None:
        """Make `receive` return."""
        self._connection.wake()

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()

    def _say(self, direction: str, text: str) -> None:
        if len(text) > _MAX_CHARACTERS:
            text = f"{text[:_MAX_CHARACTERS]}... ({len(text):,} characters)"
        _log.info("kernel %s %s %s", self._name, direction, text)


@dataclass(slots=True)
class _Clock:
    """When a start began, and when its last stage was reached."""

    name: str
    began_at: float
    last_at: float


_clock: ContextVar[_Clock | None] = ContextVar("startup_clock", default=None)


@contextlib.contextmanager
def startup_stages(name: str) -> Iterator[None]:
    """Log the stages that are reached within the block."""
    now = time.monotonic()
    token = _clock.set(_Clock(name, now, now))
    try:
        yield
        reached("done")
    finally:
        _clock.reset(token)


def reached(stage: str) -> None:
    """A start has come so far; called on the thread that starts the kernel."""
    clock = _clock.get()
    if clock is None:
        return
    now = time.monotonic()
    total, step = (now - clock.began_at) * 1000, (now - clock.last_at) * 1000
    clock.last_at = now
    _log.info("start of kernel %s: %s after %.1f ms (+%.1f ms)", clock.name, stage, total, step)
