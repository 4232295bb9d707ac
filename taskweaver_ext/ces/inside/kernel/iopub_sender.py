"""Send frames on Jupyter's iopub channel, for kernels that can only be reached that way.

ZeroMQ and gateways drop what comes too fast, and a connection that breaks loses
what was on its way. So the frames are one stream of bytes: each
message says where in it its piece begins, the client says on the control
channel how far it has received, what it has not received is kept and can be
sent again, and a writer waits when too much of that has gathered.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from typing import Any

from .deferred_signals import DeferredSignals
from .wire import FrameSender, end_with_all_children

FRAMES = "taskweaver_frames"
"""A message on iopub: its content says where its one buffer belongs."""
RECEIVED = "taskweaver_received"
"""A message on control: so many bytes have been received; what is older can be forgotten."""
RESEND = "taskweaver_resend"
"""A message on control: the same, and all that comes after it is to be sent again."""
ASKED = "taskweaver_asked"
"""A message on control: a question, to be answered while code runs."""
END = "taskweaver_end"
"""A message on control: this process must end now, whatever it does."""

_MAX_PIECE_BYTES = 1 << 18
_WINDOW_BYTES = 1 << 22
_WINDOW_MESSAGES = 400
"""Below ZeroMQ's own limit, above which it drops."""
_RECEIPT_BYTES = 1 << 19
_RECEIPT_MESSAGES = 50
_WAIT_MILLISECONDS = 1000
_SETTLE_SECONDS = 2.0


class IopubSender(FrameSender):
    """Frames as messages, with receipts.

    Threads:
        `_rest` is what `_lock` guards in the base class. `_guard` guards
        everything about what has been received, which the control thread
        changes; it is never held while waiting.
    """

    flushes_at_once = False

    def __init__(self, kernel: Any, signals: DeferredSignals) -> None:
        super().__init__(signals)
        self._session = kernel.session
        self._socket = kernel.iopub_socket
        self._topic = kernel._topic(FRAMES)
        self._guard = threading.Lock()
        self._sent = 0
        self._received = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._unasked_bytes = 0
        self._unasked_messages = 0
        self._pause_seconds = 0.0
        self._receipts = 0
        self._control_thread: int = getattr(kernel.control_thread, "ident", 0)
        self._never_readable, self._writer = os.pipe()
        self._room, self._room_writer = os.pipe()
        for descriptor in (self._room, self._room_writer):
            os.set_blocking(descriptor, False)
        kernel.control_handlers.update(
            {
                RECEIVED: self._receive_receipt,
                RESEND: self._send_again,
                ASKED: self._receive_question,
                END: self._end,
            }
        )

    def fileno(self) -> int:
        """Nothing tells us that the client is gone: it may come back on another connection."""
        return self._never_readable

    def send_all(self, drain: Any) -> bool:
        """As elsewhere, but never on the thread that brings the receipts: it must not wait."""
        return threading.get_ident() != self._control_thread and super().send_all(drain)

    def settle(self, ending: dict[str, int]) -> None:
        """Wait a moment until the client has received all and knows what may happen now.

        Not on the thread that brings the receipts, which interrupts and ends us by signals.
        """
        if threading.get_ident() == self._control_thread:
            return
        deadline = time.monotonic() + _SETTLE_SECONDS

        def ask_for_receipt() -> bytes:
            with self._guard:
                self._receipts = 0
                self._publish(self._sent, b"", wants_receipt=True, ending=ending)
            return b""

        # Within `send_all`: a signal handler that prints in the middle must not wait for us.
        self.send_all(ask_for_receipt)
        while (self._kept or not self._receipts) and time.monotonic() < deadline:
            self._wait_for_receipt(int((deadline - time.monotonic()) * 1000))

    def _send_rest(self) -> None:
        while self._rest:
            if self._is_full():
                # Nothing is half done here, so an interrupt may come through.
                self._signals.release()
                self._wait_for_receipt(_WAIT_MILLISECONDS)
                self._signals.hold()
                continue
            piece = bytes(self._rest[:_MAX_PIECE_BYTES])
            self._rest = self._rest[_MAX_PIECE_BYTES:]
            with self._guard:
                self._keep_and_publish(piece)
            if self._pause_seconds:
                time.sleep(self._pause_seconds)

    def _is_full(self) -> bool:
        return self._sent - self._received >= _WINDOW_BYTES or len(self._kept) >= _WINDOW_MESSAGES

    def _keep_and_publish(self, piece: bytes) -> None:
        start = self._sent
        self._sent += len(piece)
        self._kept.append((start, piece))
        self._unasked_bytes += len(piece)
        self._unasked_messages += 1
        wants_receipt = (
            self._unasked_bytes >= _RECEIPT_BYTES or self._unasked_messages >= _RECEIPT_MESSAGES
        )
        if wants_receipt:
            self._unasked_bytes = self._unasked_messages = 0
        self._publish(start, piece, wants_receipt=wants_receipt)

    def _publish(self, start: int, piece: bytes, **more: Any) -> None:
        self._session.send(
            self._socket,
            FRAMES,
            {"start": start, **more},
            ident=self._topic,
            buffers=[piece],
        )

    def _wait_for_receipt(self, milliseconds: int) -> None:
        poller = select.poll()
        poller.register(self._room, select.POLLIN)
        if poller.poll(max(0, milliseconds)):
            try:
                os.read(self._room, 512)
            except BlockingIOError:
                return  # another thread that waits was faster

    def _receive_receipt(self, _stream: Any, _ident: Any, message: dict[str, Any]) -> None:
        with self._guard:
            self._forget(int(message["content"]["received"]))
        self._tell_that_there_is_room()

    def _send_again(self, _stream: Any, _ident: Any, message: dict[str, Any]) -> None:
        content = message["content"]
        with self._guard:
            self._pause_seconds = float(content.get("pause_seconds", self._pause_seconds))
            self._forget(int(content["received"]))
            for start, piece in self._kept:
                self._publish(start, piece)
            request = message["header"]["msg_id"]
            self._publish(self._sent, b"", wants_receipt=True, answers=request)
        self._tell_that_there_is_room()

    def _forget(self, received: int) -> None:
        while self._kept and self._kept[0][0] + len(self._kept[0][1]) <= received:
            self._kept.popleft()
        self._received = max(self._received, received)
        self._receipts += 1

    def _tell_that_there_is_room(self) -> None:
        try:
            os.write(self._room_writer, b"!")
        except BlockingIOError:
            return  # the last one has not been read yet

    def _receive_question(self, _stream: Any, _ident: Any, message: dict[str, Any]) -> None:
        self.on_question(message["content"])

    def _end(self, _stream: Any, _ident: Any, _message: Any) -> None:
        end_with_all_children()

    def after_fork_in_child(self) -> None:
        """A forked child publishes nothing."""
        super().after_fork_in_child()
        self._guard = threading.Lock()
        self._kept.clear()
