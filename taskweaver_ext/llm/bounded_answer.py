"""Bound what an HTTP client of a vendor's SDK reads of one answer, whatever the server sends.

The SDKs collect a line, an event and the body of an error in memory until they are complete, and
their HTTP library unpacks what is compressed, however much it becomes. How long an answer may take
is not decided here: `ReplyStream` cuts the connection at its time limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol

from taskweaver_ext.llm.endpoint import Endpoint
from taskweaver_ext.llm.model_errors import BrokenStreamError, RequestRefusedError

UNCOMPRESSED = {"accept-encoding": "identity"}
"""The header that asks for answers that can be bounded."""

LONGEST_EVENT = 256 * 1024
"""Bytes; providers send a few hundred, and some the whole of a reply."""

LONGEST_ERROR_BODY = 64 * 1024
"""Bytes; what comes behind them is not read."""

MOST_VALUES = 2000
"""In one event, which has a few dozen: an SDK makes objects of up to 20 kB out of each."""

_TOO_SHORT_TO_COUNT = 1024

_END_OF_EVENT = re.compile(rb"\n\r?\n|\r\r")


class _Body(Protocol):
    """The body of an answer, as HTTP libraries have it."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


def bound_answer(response: Any, endpoint: Endpoint) -> None:  # noqa: ANN401  an SDK's library's
    """Bound an answer whose body has not been read; a `response` event hook.

    Raises:
        RequestRefusedError: It is compressed, though that was not asked for.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise RequestRefusedError(
            f"{endpoint.place} answered with compressed data (HTTP {response.status_code},"
            " content-encoding), which was not asked for. Check llm.api_base, and what stands in"
            " between, such as a proxy."
        )
    body: _Body = response.stream
    has_failed = response.status_code >= 300
    pieces = _beginning(body) if has_failed else _with_bounded_events(body, endpoint)
    response.stream = _bounded_kind(type(body))(pieces, body.close)


@cache
def _bounded_kind(kind: type[Any]) -> Callable[[Iterator[bytes], Callable[[], None]], Any]:
    """Return a class for bodies: the HTTP library accepts only what derives from its own."""

    class BoundedBody(kind):  # type: ignore[misc]  # known when it runs
        def __init__(self, pieces: Iterator[bytes], close: Callable[[], None]) -> None:
            self._pieces = pieces
            self._close = close

        def __iter__(self) -> Iterator[bytes]:
            return self._pieces

        def close(self) -> None:
            self._close()

    return BoundedBody


def _beginning(body: _Body) -> Iterator[bytes]:
    """Yield no more of an error than can matter."""
    room = LONGEST_ERROR_BODY
    for piece in body:
        yield piece[:room]
        room -= len(piece)
        if room <= 0:
            return


def _with_bounded_events(body: _Body, endpoint: Endpoint) -> Iterator[bytes]:
    """Yield the pieces of a stream, as long as no event in it is too large."""
    event = bytearray()
    for piece in body:
        searched = max(0, len(event) - 2)
        event += piece
        ended = 0
        for end in _END_OF_EVENT.finditer(event, searched):
            _check_event(event[ended : end.end()], endpoint)
            ended = end.end()
        del event[:ended]
        _check_event(event if len(event) > LONGEST_EVENT else b"", endpoint)
        yield piece


def _check_event(event: bytes | bytearray, endpoint: Endpoint) -> None:
    if len(event) > LONGEST_EVENT:
        size = f"more than {LONGEST_EVENT:,} bytes"
    elif len(event) > _TOO_SHORT_TO_COUNT and _has_many_values(event):
        size = f"more than {MOST_VALUES:,} values"
    else:
        return
    raise BrokenStreamError(
        f"{endpoint.place} sent {size} as one event of a reply. Ask again; if it goes on, check"
        " that llm.api_base speaks the protocol of llm.api_type."
    )


def _has_many_values(event: bytes | bytearray) -> bool:
    lines = (line for line in event.splitlines() if line.startswith(b"data:"))
    try:
        pending = [json.loads(b"\n".join(line[5:] for line in lines))]
    except (ValueError, RecursionError):
        return False  # the SDK will find the same
    count = 0
    while pending and count <= MOST_VALUES:
        value = pending.pop()
        count += 1
        if isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value
    return count > MOST_VALUES
