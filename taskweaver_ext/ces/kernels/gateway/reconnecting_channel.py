"""A channel to a kernel that is opened again when it breaks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from taskweaver_ext.ces.kernels.gateway.channel import (
    ChannelRefusedError,
    GatewayChannel,
    NotListeningError,
)
from taskweaver_ext.ces.kernels.gateway.messages import Channel, GatewayMessages

OpenChannel = Callable[[GatewayMessages, float], GatewayChannel]

_CHANNEL_SECONDS = 5.0
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)
_RETURN_SECONDS = 2.0
"""How long a gateway of this machine may be gone: its kernels have ended with it."""

_log = logging.getLogger(__name__)


class ChannelLostError(Exception):
    """There will be no other channel; its text says why."""


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

        A channel that is broken is noticed by whoever reads it.
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
