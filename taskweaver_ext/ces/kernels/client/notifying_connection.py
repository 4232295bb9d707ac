"""A connection that also says what happens to the place where its kernel runs."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import zmq

from taskweaver_ext.ces.execution.results import HostNotice
from taskweaver_ext.ces.kernels.client.host import (
    ExecuteRequest,
    ExecutionEnded,
    ExecutionReply,
    KernelGone,
    Received,
)
from taskweaver_ext.ces.kernels.client.wire import WireConnection

LimitsMet: TypeAlias = Callable[[ExecutionReply | None], Iterable[str]]
"""Says which limits were met since it was asked last, given the reply to what has ended."""


class NotifyingConnection(WireConnection):
    """A `WireConnection` that carries notices of the host to executions.

    Threads:
        As its base; `notify` is safe from any thread, because a deque and
        `wake` are all it touches.
    """

    def __init__(
        self,
        *,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        key: str,
        wire: socket.socket,
        death_descriptor: int | None,
        limits_met: LimitsMet,
    ) -> None:
        """See the base class.

        Args:
            limits_met: Asked before and after each execution.
        """
        super().__init__(
            context=context, address=address, key=key, wire=wire, death_descriptor=death_descriptor
        )
        self._limits_met = limits_met
        self._notices: deque[HostNotice] = deque()
        self._is_running = False
        self._awaited_ordinal = 0
        self._is_paused = False

    @property
    def is_reachable(self) -> bool:
        """Not while the place is paused where the kernel runs."""
        return not self._is_paused

    @property
    def is_running(self) -> bool:
        """Whether an execution of code is under way."""
        return self._is_running

    def notify(self, notice: HostNotice) -> None:
        """Let the running execution know of something, or the next one."""
        if notice.status in ("paused", "resumed"):
            self._is_paused = notice.status == "paused"
        if notice.status == "resumed" and not self._is_running and self._has_paused_untold():
            self._notices.pop()  # no code was held up
            return
        self._notices.append(notice)
        self.wake()

    def _has_paused_untold(self) -> bool:
        with contextlib.suppress(IndexError):
            return self._notices[-1].status == "paused"
        return False

    def execute(self, request: ExecuteRequest) -> None:
        """Send a request; it hears what happened while nothing ran."""
        self._limits_met(None)  # what others met before is not its doing
        self._is_running = "command" not in request.metadata
        self._awaited_ordinal = request.ordinal
        super().execute(request)
        if self._notices:
            self.wake()

    def receive(self, timeout: float | None) -> Iterator[Received]:
        """As the base does, with notices in their place."""
        for received in super().receive(timeout):
            if isinstance(received, ExecutionEnded) and self._is_awaited(received):
                for message in self._limits_met(received.reply):
                    self._notices.append(HostNotice("limit", message))
                if self._is_running:
                    yield from self._drain_notices()
                self._is_running = False
            elif isinstance(received, KernelGone):
                yield from self._drain_notices()
            yield received
        if self._is_running:
            yield from self._drain_notices()

    def _is_awaited(self, ended: ExecutionEnded) -> bool:
        """Whether this is the end of what runs: code may forge any number of others."""
        is_awaited = ended.ordinal == self._awaited_ordinal
        if is_awaited:
            self._awaited_ordinal = 0
        return is_awaited

    def _drain_notices(self) -> Iterator[HostNotice]:
        with contextlib.suppress(IndexError):
            while True:
                yield self._notices.popleft()
