"""The channel to one kernel behind a gateway: a websocket, and another one when it breaks."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import websocket

from taskweaver_ext.ces.kernels.gateway.api import GatewayApi
from taskweaver_ext.ces.kernels.gateway.messages import (
    SUBPROTOCOL,
    Channel,
    GatewayMessage,
    GatewayMessages,
)
from taskweaver_ext.ces.kernels.gateway.websocket_handshake import open_websocket
from taskweaver_ext.ces.kernels.gateway.websocket_messages import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    WebsocketReader,
)
from taskweaver_ext.errors import ProtocolError

PING_SECONDS = 1.0
SILENCE_SECONDS = 4.0
"""After so long without a sign, not even an answer to pings, the channel counts as broken."""

MESSAGE_SECONDS = 60.0
"""How long a message may take from its first byte to its last; some are a quarter of a MB."""

_STALL_SECONDS = 5.0
"""How long one step of sending or receiving may take."""
_SEND_SECONDS = 30.0
"""How long a message may take that we send; some are 10 MB."""
_RECEIVE_BYTES = 1 << 18
_MAX_WORDS = 300
_CHANNEL_SECONDS = 5.0
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)
_RETURN_SECONDS = 2.0
"""How long a gateway of this machine may be gone: its kernels have ended with it."""

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
        `send` may be called from any thread; the rest belongs to one. `_lock` is
        held while a frame is sent, so that frames stay whole.
    """

    def __init__(
        self, api: GatewayApi, kernel_id: str, messages: GatewayMessages, seconds: float
    ) -> None:
        self._messages = messages
        self._lock = threading.Lock()
        path = f"/api/kernels/{kernel_id}/channels?session_id={messages.session_id}"
        url = api.address.websocket_url + path
        try:
            opened = open_websocket(url, api.headers, api.tls, seconds, SUBPROTOCOL)
        except websocket.WebSocketBadStatusException as error:
            raise ChannelRefusedError(error.status_code) from error
        except (websocket.WebSocketException, OSError) as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            has_ended = is_refused and api.address.is_on_this_machine
            kind = NotListeningError if has_ended else ConnectionError
            words = str(error)[:_MAX_WORDS]
            raise kind(f"no websocket to {api.url}: {words}") from error
        messages.is_old_protocol = opened.subprotocol != SUBPROTOCOL
        self._socket = opened.socket
        self._socket.settimeout(_STALL_SECONDS)
        self._reader = WebsocketReader()
        self._message_began_at: float | None = None
        self.heard_at = self._pinged_at = time.monotonic()
        """When the gateway last gave a sign of life."""

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def acknowledge_quickly(self) -> None:
        """Called before waiting: a delayed acknowledgement would hold the gateway up for 40 ms."""
        with contextlib.suppress(AttributeError, OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def has_more_than_the_socket_shows(self) -> bool:
        """Whether decrypted bytes are waiting, which no descriptor tells of."""
        stream = self._socket
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
        self._send_frame(payload, TEXT if self._messages.is_old_protocol else BINARY)

    def _send_frame(self, payload: bytes, opcode: int) -> None:
        """Send a frame; a gateway that takes it by the byte counts as one that does not."""
        deadline = time.monotonic() + _SEND_SECONDS
        frame = memoryview(websocket.ABNF.create_frame(payload, opcode).format())
        try:
            with self._lock:
                while frame:
                    frame = frame[self._socket.send(frame) :]
                    if frame and time.monotonic() > deadline:
                        raise ConnectionError(f"it took no message within {_SEND_SECONDS:g} s")
        except OSError as error:
            with contextlib.suppress(OSError):  # half a frame: nothing that follows would be heard
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            raise ConnectionError(str(error)) from error

    def read(self) -> Iterator[GatewayMessage]:
        """Read what has arrived, which must be something, and give what messages it completes.

        Raises:
            ProtocolError: It makes no sense, or comes too slowly to make any.
        """
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise ConnectionError(str(error)) from error
        if not data:
            raise ConnectionError("the gateway closed the connection")
        self.heard_at = time.monotonic()
        arrived = self._reader.feed(data)
        self._limit_time_of_message(has_completed_one=bool(arrived))
        if pings := [message for message in arrived if message.opcode == PING]:
            self._send_frame(pings[-1].data, PONG)  # which answers those before it
        for message in arrived:
            if message.opcode == CLOSE:
                raise ConnectionError("the gateway closed the websocket")
            elif message.opcode in (TEXT, BINARY):
                unpacked = self._messages.unpack(message.data, is_text=message.opcode == TEXT)
                if unpacked is not None:
                    yield unpacked

    def _limit_time_of_message(self, *, has_completed_one: bool) -> None:
        now = time.monotonic()
        if self._reader.is_complete:
            self._message_began_at = None
        elif self._message_began_at is None or has_completed_one:
            self._message_began_at = now
        elif now - self._message_began_at > MESSAGE_SECONDS:
            raise ProtocolError(
                f"The gateway sends so slowly that a message took more than {MESSAGE_SECONDS:g} s."
            )

    def keep_alive(self) -> float:
        """Ping when it is time; returns when that is the next time. Call when nothing is read."""
        now = time.monotonic()
        if now - self._pinged_at >= PING_SECONDS:
            if self._pinged_at - self.heard_at >= SILENCE_SECONDS:
                raise ConnectionError(f"not a sign for {now - self.heard_at:.0f} s")
            self._pinged_at = now
            self._send_frame(b"", PING)
        return self._pinged_at + PING_SECONDS

    def close(self) -> None:
        """Close without ceremony: the gateway may not answer."""
        self._socket.close()


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
