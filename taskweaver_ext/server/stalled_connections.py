"""Ends connections of clients that take nothing of what they are sent, or ask for nothing.

A stream that was given up is not closed before all that was written to it has been taken, and a
connection on which no whole request ever comes would stay for good: each would cost a descriptor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol


class _Waiting(NamedTuple):
    """What a connection waits for its client to do, and since when."""

    untaken_bytes: int
    last_request: object
    since: float


class StalledConnections:
    """Which connections wait for their clients. Belongs to the event loop."""

    def __init__(self, seconds: float) -> None:
        """End those that have waited for so long."""
        self._seconds = seconds
        self._waiting: dict[Any, _Waiting] = {}

    def look(self, connections: Iterable[Any]) -> None:
        """Look at uvicorn's connections, now and then."""
        before, self._waiting = self._waiting, {}
        for connection in list(connections):
            waiting = _waiting(connection)
            if waiting is None:
                continue
            earlier = before.get(connection)
            if earlier is not None and _is_the_same(earlier, waiting):
                waiting = waiting._replace(since=earlier.since)
            if waiting.since + self._seconds <= time.monotonic():
                connection.transport.abort()
            else:
                self._waiting[connection] = waiting


def _waiting(connection: Any) -> _Waiting | None:  # noqa: ANN401 - either protocol of uvicorn
    transport: asyncio.Transport = connection.transport
    untaken = transport.get_write_buffer_size()
    request = connection.cycle if isinstance(connection, H11Protocol) else None
    is_asked = request is not None and not request.response_complete
    if untaken or (isinstance(connection, H11Protocol) and not is_asked):
        return _Waiting(untaken, request, time.monotonic())
    return None


def _is_the_same(earlier: _Waiting, now: _Waiting) -> bool:
    """Whether the client has done nothing: what it has not taken can only have grown."""
    if earlier.untaken_bytes or now.untaken_bytes:
        return 0 < earlier.untaken_bytes <= now.untaken_bytes
    return earlier.last_request is now.last_request
