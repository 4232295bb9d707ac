"""A line to a kernel that is opened again when it breaks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from taskweaver_ext.ces.kernels.gateway.channel import (
    GatewayLine,
    LineRefusedError,
    NobodyListensError,
)
from taskweaver_ext.ces.kernels.gateway.messages import Channel, GatewayMessages

OpenLine = Callable[[GatewayMessages, float], GatewayLine]

_LINE_SECONDS = 5.0
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)
_RETURN_SECONDS = 2.0
"""How long a gateway of this machine may be gone: its kernels have ended with it."""

_log = logging.getLogger(__name__)


class NoMoreLineError(Exception):
    """There will be no other line; its text says why."""


class LastingLine:
    """One websocket after another, all of one session.

    Threads:
        `send` may be called from any thread; the rest belongs to one, which
        alone replaces `current`. Sending on one that was just closed is a
        ConnectionError like any other.
    """

    def __init__(self, open_line: OpenLine, reconnect_seconds: float) -> None:
        """Belong to a kernel.

        Args:
            open_line: Called for the first line and after each break.
            reconnect_seconds: How long the gateway may be out of reach.
        """
        self._open_line = open_line
        self._reconnect_seconds = reconnect_seconds
        self._messages = GatewayMessages()
        self.current: GatewayLine | None = None
        self._lost_at = 0.0
        self._heard_at = 0.0
        self._failures = 0

    def open(self, seconds: float) -> None:
        """Open the first line; raises ConnectionError."""
        self.current = self._open_line(self._messages, seconds)

    def send(
        self,
        channel: Channel,
        message_type: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Send if there is a line, and return the message's id.

        A line that is broken is noticed by whoever reads it.
        """
        header = self._messages.header(message_type)
        line = self.current
        if line is not None:
            try:
                line.send(channel, header, content, metadata)
            except ConnectionError as error:
                _log.debug("could not send %s: %s", message_type, error)
        return header["msg_id"]

    def lose(self, error: ConnectionError) -> None:
        """Close the line, which is broken."""
        _log.info("the line to a gateway's kernel broke: %s", error)
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
        """Try to open another line.

        Returns:
            For how many seconds nothing was heard; None when there is no line yet.

        Raises:
            NoMoreLineError: There will be none.
        """
        try:
            self.current = self._open_line(self._messages, _LINE_SECONDS)
        except LineRefusedError as error:
            raise NoMoreLineError(f"the gateway does not know it any more ({error})") from error
        except ConnectionError as error:
            self._failures += 1
            lost_seconds = time.monotonic() - self._lost_at
            has_ended = isinstance(error, NobodyListensError)
            if lost_seconds > (_RETURN_SECONDS if has_ended else self._reconnect_seconds):
                why = f"the gateway was out of reach for {lost_seconds:.0f} s: {error}"
                raise NoMoreLineError(why) from error
            return None
        return time.monotonic() - self._heard_at

    def close(self) -> None:
        """Close the line that there is."""
        if self.current is not None:
            self.current.close()
