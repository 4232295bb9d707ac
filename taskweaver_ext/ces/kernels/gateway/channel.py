"""A websocket to one kernel behind a gateway, which says when it is broken or silent."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import Any

import websocket

from taskweaver_ext.ces.kernels.gateway.api import GatewayApi
from taskweaver_ext.ces.kernels.gateway.messages import (
    SUBPROTOCOL,
    Channel,
    GatewayMessage,
    GatewayMessages,
)

PING_SECONDS = 1.0
SILENCE_SECONDS = 4.0
"""After so long without a sign, not even an answer to pings, the channel counts as broken."""

_STALL_SECONDS = 5.0
"""How long the rest of a frame may take once its beginning is here."""
_DATA = (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT)


class ChannelRefusedError(ConnectionError):
    """The gateway answers, but not with a channel to this kernel."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the gateway answered {status}")
        self.status = status


class NotListeningError(ConnectionError):
    """The gateway was a process of this machine, and is no more."""


class GatewayChannel:
    """An open websocket. Everything raises ConnectionError once it is broken.

    Threads:
        `send` may be called from any thread; the rest belongs to one.
    """

    def __init__(
        self, api: GatewayApi, kernel_id: str, messages: GatewayMessages, seconds: float
    ) -> None:
        self._messages = messages
        self._websocket: Any = websocket.WebSocket(  # typed in parts only
            enable_multithread=True,
            skip_utf8_validation=True,
            sockopt=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            sslopt={"context": api.tls} if api.tls else None,
        )
        path = f"/api/kernels/{kernel_id}/channels?session_id={messages.session_id}"
        try:
            self._connect(api.address.websocket_url + path, api.headers, seconds)
        except websocket.WebSocketBadStatusException as error:
            raise ChannelRefusedError(error.status_code) from error
        except (websocket.WebSocketException, OSError) as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            has_ended = is_refused and api.address.is_on_this_machine
            kind = NotListeningError if has_ended else ConnectionError
            raise kind(f"no websocket to {api.url}: {error}") from error
        self._websocket.settimeout(_STALL_SECONDS)
        self.heard_at = self._pinged_at = time.monotonic()
        """When the gateway last gave a sign of life."""

    def _connect(self, url: str, headers: dict[str, str], seconds: float) -> None:
        """Ask for the fast protocol; do without if that is refused."""
        options: dict[str, Any] = {
            "timeout": seconds,
            "header": [f"{name}: {value}" for name, value in headers.items()],
            "suppress_origin": True,
        }
        try:
            self._websocket.connect(url, subprotocols=[SUBPROTOCOL], **options)
        except (websocket.WebSocketBadStatusException, websocket.WebSocketTimeoutException):
            raise
        except websocket.WebSocketException:
            self._websocket.connect(url, **options)
        self._messages.is_old_protocol = self._websocket.subprotocol != SUBPROTOCOL

    def fileno(self) -> int:
        """The descriptor to wait on."""
        descriptor: int = self._websocket.fileno()
        return descriptor

    def acknowledge_quickly(self) -> None:
        """Called before waiting: a delayed acknowledgement would hold the gateway up for 40 ms."""
        with contextlib.suppress(AttributeError, OSError):
            self._websocket.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def has_more_than_the_socket_shows(self) -> bool:
        """Whether decrypted bytes are waiting, which no descriptor tells of."""
        stream = self._websocket.sock
        return isinstance(stream, ssl.SSLSocket) and stream.pending() > 0

    def is_readable(self) -> bool:
        """Whether there is something to read now."""
        poller = select.poll()
        poller.register(self, select.POLLIN)
        return self.has_more_than_the_socket_shows() or bool(poller.poll(0))

    def send(
        self,
        channel: Channel,
        header: dict[str, str],
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Send a message."""
        payload = self._messages.pack(channel, header, content, metadata or {})
        text_or_binary = _DATA[self._messages.is_old_protocol]
        try:
            self._websocket.send(payload, text_or_binary)
        except (websocket.WebSocketException, OSError) as error:
            raise ConnectionError(str(error)) from error

    def read(self) -> GatewayMessage | None:
        """Read the next frame, which must have begun to arrive; None if it is no message."""
        try:
            opcode, data = self._websocket.recv_data(control_frame=True)
        except (websocket.WebSocketException, OSError) as error:
            raise ConnectionError(str(error)) from error
        self.heard_at = time.monotonic()
        if opcode in _DATA:
            return self._messages.unpack(data, is_text=opcode == websocket.ABNF.OPCODE_TEXT)
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            raise ConnectionError("the gateway closed the websocket")
        return None

    def keep_alive(self) -> float:
        """Ping when it is time; returns when that is the next time. Call when nothing is read."""
        now = time.monotonic()
        if now - self._pinged_at >= PING_SECONDS:
            if self._pinged_at - self.heard_at >= SILENCE_SECONDS:
                raise ConnectionError(f"not a sign for {now - self.heard_at:.0f} s")
            self._pinged_at = now
            try:
                self._websocket.ping()
            except (websocket.WebSocketException, OSError) as error:
                raise ConnectionError(str(error)) from error
        return self._pinged_at + PING_SECONDS

    def close(self) -> None:
        """Close without ceremony: the gateway may not answer."""
        self._websocket.shutdown()
