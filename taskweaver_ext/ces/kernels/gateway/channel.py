"""The channel to one kernel behind a gateway: a websocket, and another one when it breaks."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import time
from collections.abc import Callable
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
_CHANNEL_SECONDS = 5.0
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)
_RETURN_SECONDS = 2.0
"""How long a gateway of this machine may be gone: its kernels have ended with it."""
_DATA = (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT)

_log = logging.getLogger(__name__)


class ChannelRefusedError(ConnectionError):
    """The gateway answers, but not with a channel to this kernel."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the gateway answered {status}")
        self.status = status


class NotListeningError(ConnectionError):
    """The gateway was a process of this machine, and is no more."""


class ChannelLostError(Exception):
    """There will be no other channel; its text says why."""


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


OpenChannel = Callable[[GatewayMessages, float], GatewayChannel]


class ReconnectingChannel:
    """One websocket after another, all of one session.

    Threads:
        `send` may be called from any thread; the rest belongs to one, which
        alone replaces `current`. Sending on one that was just closed is a
        ConnectionError like any other.
    """

    def __init__(self, open_channel: OpenChannel, reconnect_seconds: float) -> None:
        """Belong to a kernel.

        Args:
            open_channel: Called for the first channel and after each break.
            reconnect_seconds: How long the gateway may be out of reach.
        """
        self._open_channel = open_channel
        self._reconnect_seconds = reconnect_seconds
        self._messages = GatewayMessages()
        self.current: GatewayChannel | None = None
        self._lost_at = 0.0
        self._heard_at = 0.0
        self._failures = 0

    def open(self, seconds: float) -> None:
        """Open the first channel; raises ConnectionError."""
        self.current = self._open_channel(self._messages, seconds)

    def send(
        self,
        channel: Channel,
        message_type: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Send if there is a channel, and return the message's id.

        A channel that is broken is noticed where it is read.
        """
        header = self._messages.header(message_type)
        if self.current is not None:
            try:
                self.current.send(channel, header, content, metadata)
            except ConnectionError as error:
                _log.debug("could not send %s: %s", message_type, error)
        return header["msg_id"]

    def lose(self, error: ConnectionError) -> None:
        """Close the channel, which is broken."""
        _log.info("the channel to a gateway's kernel broke: %s", error)
        self._lost_at = time.monotonic()
        if self.current is not None:
            self._heard_at = self.current.heard_at
            self.current.close()
        self.current = None
        self._failures = 0

    @property
    def retry_seconds(self) -> float:
        """How long to wait before trying to open another."""
        return _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]

    def reopen(self) -> float | None:
        """Try to open another channel.

        Returns:
            For how many seconds nothing was heard; None when there is no channel yet.

        Raises:
            ChannelLostError: There will be none.
        """
        try:
            self.current = self._open_channel(self._messages, _CHANNEL_SECONDS)
        except ChannelRefusedError as error:
            raise ChannelLostError(f"the gateway does not know it any more ({error})") from error
        except ConnectionError as error:
            self._failures += 1
            lost_seconds = time.monotonic() - self._lost_at
            has_ended = isinstance(error, NotListeningError)
            if lost_seconds > (_RETURN_SECONDS if has_ended else self._reconnect_seconds):
                why = f"the gateway was out of reach for {lost_seconds:.0f} s: {error}"
                raise ChannelLostError(why) from error
            return None
        return time.monotonic() - self._heard_at

    def close(self) -> None:
        """Close the channel that there is."""
        if self.current is not None:
            self.current.close()
