"""Open a websocket to a server that may be anything: within a time limit for all of it."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

import websocket

_LARGEST_ANSWER = 1 << 16
"""Bytes of headers that a server may answer with."""


@dataclass(frozen=True, slots=True)
class OpenWebsocket:
    """A connection on which both sides now send websocket frames."""

    socket: socket.socket
    subprotocol: str | None


def open_websocket(
    url: str,
    headers: dict[str, str],
    tls: ssl.SSLContext | None,
    seconds: float,
    subprotocol: str,
) -> OpenWebsocket:
    """Ask for a websocket with this protocol on it, and do without if that is refused.

    Redirects are not followed: what lets us in at one server is not for another.

    Raises:
        websocket.WebSocketException, OSError: There is none.
    """
    deadline = time.monotonic() + seconds
    opening: Any = _Opening(deadline, tls)  # typed in parts only
    options: dict[str, Any] = {
        "header": [f"{name}: {value}" for name, value in headers.items()],
        "suppress_origin": True,
        "redirect_limit": 0,
    }
    try:
        opening.connect(url, subprotocols=[subprotocol], timeout=seconds, **options)
    except (websocket.WebSocketBadStatusException, websocket.WebSocketTimeoutException):
        raise
    except websocket.WebSocketException:
        if (left := deadline - time.monotonic()) <= 0:
            raise
        opening.connect(url, timeout=left, **options)
    return OpenWebsocket(opening.connection(), opening.subprotocol)


class _Opening(websocket.WebSocket):
    """Connects as its base class does, but what is received then ends in time and in size."""

    def __init__(self, deadline: float, tls: ssl.SSLContext | None) -> None:
        self._deadline = deadline
        self._limited: _LimitedSocket | None = None
        super().__init__(
            sockopt=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            sslopt={"context": tls} if tls else None,
        )

    @property
    def sock(self) -> Any:  # noqa: ANN401 - as the base class has it
        return self._limited

    @sock.setter
    def sock(self, connected: socket.socket | None) -> None:
        """Called by the base class as soon as there is a connection, and when it is closed."""
        self._limited = None if connected is None else _LimitedSocket(connected, self._deadline)

    def connection(self) -> socket.socket:
        """What the websocket runs on."""
        assert self._limited is not None
        return self._limited.plain


class _LimitedSocket:
    """What the base class uses of a socket; receiving ends at a deadline and at a size."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self.plain = plain
        self._deadline = deadline
        self._room = _LARGEST_ANSWER

    def recv(self, size: int) -> bytes:
        """Receive at most so many bytes."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self._room <= 0:
            raise websocket.WebSocketException(
                f"it answered with more than {_LARGEST_ANSWER:,} bytes of headers"
            )
        self.plain.settimeout(left)
        data = self.plain.recv(size)
        self._room -= len(data)
        return data

    def send(self, data: bytes) -> int:
        """Send what there is room for."""
        return self.plain.send(data)

    def gettimeout(self) -> float | None:
        """How long the next step may take."""
        return self.plain.gettimeout()

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self.plain.fileno()

    def close(self) -> None:
        """Close the connection."""
        self.plain.close()
