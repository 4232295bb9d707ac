"""How much of the server one client can use: connections, requests per second, size of bodies."""

from __future__ import annotations

import time
from collections import OrderedDict

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from taskweaver_ext.config.settings import ServerConfig
from taskweaver_ext.server.failures import RefusedError, answer_to

_MAX_ADDRESSES = 10_000


class RequestRates:
    """A bucket of requests for each client address, filled again at a steady rate.

    Belongs to the event loop.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._burst = 2 * per_second
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By address: how many may come at once, and since when that is so."""

    def admits(self, address: str) -> bool:
        """Count a request; False when it comes too soon after others."""
        now = time.monotonic()
        left, since = self._left.pop(address, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        is_admitted = left >= 1
        self._left[address] = (left - is_admitted, now)
        if len(self._left) > _MAX_ADDRESSES:
            self._left.popitem(last=False)
        return is_admitted


class Limits:
    """Refuses what is too much, before anything is done for it. Belongs to the event loop."""

    def __init__(self, app: ASGIApp, settings: ServerConfig) -> None:
        self._app = app
        self._max_connections = settings.max_connections
        self._rates = RequestRates(settings.requests_per_second)
        self._settings = settings
        self.open_count = 0
        """How many requests and streams are open now."""
        self.request_count = 0
        self.refused_count = 0
        """How many of them were too much."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        self.request_count += 1
        if problem := self._problem(scope):
            self.refused_count += 1
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(answer_to(problem))
            else:
                await answer_to(problem)(scope, receive, send)
            return
        self.open_count += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.open_count -= 1

    def _problem(self, scope: Scope) -> RefusedError | None:
        if self.open_count >= self._max_connections:
            return RefusedError(
                503,
                "too_many_connections",
                f"{self._max_connections} connections are open already (server.max_connections)."
                " Close one, or try again later.",
            )
        address = scope["client"][0] if scope.get("client") else ""
        if not self._rates.admits(address):
            return RefusedError(
                429,
                "too_many_requests",
                f"More than {self._settings.requests_per_second} requests per second"
                " (server.requests_per_second). Try again in a second.",
            )
        return None


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read a whole body that is not too large.

    Raises:
        RefusedError: It is.
    """
    refuse_large(request, max_bytes)
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > max_bytes:
            raise too_large(max_bytes)
        pieces.append(piece)
    return b"".join(pieces)


def refuse_large(request: Request, max_bytes: int) -> None:
    """Refuse a body that says of itself that it is too large, before it comes."""
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > max_bytes:
        raise too_large(max_bytes)


def too_large(max_bytes: int) -> RefusedError:
    """Say that a body is too large."""
    return RefusedError(413, "too_large", f"This may have at most {max_bytes:,} bytes.")
