"""What a kernel behind a gateway says: one stream of bytes, complete and in order.

`inside/kernel/iopub_sender.py` is its other end. We tell how far we have
received; what has been lost on its way, or dropped by the gateway, we ask for
again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from taskweaver_ext.ces.inside.kernel.iopub_sender import RECEIVED, RESEND
from taskweaver_ext.ces.kernels.client.frames import FrameReader
from taskweaver_ext.ces.kernels.client.host import Received
from taskweaver_ext.ces.kernels.gateway.channel import ReconnectingChannel
from taskweaver_ext.ces.kernels.gateway.messages import FramesPiece

_PAUSE_SECONDS = 0.01
"""Between two messages of a kernel whose gateway has dropped some: 100 in a second."""
_ASK_AGAIN_SECONDS = 2.0


class ReceivedFrames:
    """The frames of one kernel, and the asking for those that are missing."""

    def __init__(self, channel: ReconnectingChannel) -> None:
        self._channel = channel
        self._frames = FrameReader()
        self._received_bytes = 0
        self._request_id = ""
        """Which message asked for the missing and was not answered yet."""
        self._asked_at = 0.0
        self._is_slowed_down = False
        self.ending: dict[str, int] = {}
        """How the kernel said that it might end, if that was its last word."""

    @property
    def has_begun(self) -> bool:
        """Whether the kernel has said anything at all."""
        return self._received_bytes > 0

    def accept(self, piece: FramesPiece) -> bytes | None:
        """Add a piece of the stream; return what of it is new, None if one before is missing."""
        known = self._received_bytes - piece.start
        if known < 0:
            self.ask_for_the_missing()
            return None
        if piece.answers == self._request_id:
            self._request_id = ""
        fresh = piece.data[known:]
        self._received_bytes += len(fresh)
        if fresh or piece.ending is not None:
            self.ending = piece.ending or {}
        return fresh

    def read(self, fresh: bytes) -> Iterator[Received]:
        """Give what is in new bytes."""
        return self._frames.feed(fresh)

    def confirm(self) -> None:
        """Tell the kernel how far we have received."""
        self._channel.send("control", RECEIVED, {"received": self._received_bytes})

    def ask_for_the_missing(self) -> None:
        """Have everything sent again that we have not received, unless that was asked already."""
        if not self._request_id:
            self._ask({})

    def ask_again_if_unanswered(self) -> None:
        """The answer itself may have been dropped."""
        if self._request_id and time.monotonic() - self._asked_at > _ASK_AGAIN_SECONDS:
            self._ask({})

    def begin_again(self) -> None:
        """The channel is another: what was asked before will not be answered."""
        self._ask({})

    def slow_down(self) -> None:
        """Have the missing sent again, and everything more slowly from now on."""
        self._is_slowed_down = True
        self._ask({"pause_seconds": _PAUSE_SECONDS})

    def was_not_understood(self, request_id: str) -> bool:
        """Whether a kernel that has got to the end of this request is not ours (any more)."""
        is_unanswered = request_id != "" and request_id == self._request_id
        return is_unanswered and self.has_begun and not self._is_slowed_down

    def _ask(self, more: dict[str, float]) -> None:
        self._asked_at = time.monotonic()
        content = {"received": self._received_bytes, **more}
        self._request_id = self._channel.send("control", RESEND, content)
