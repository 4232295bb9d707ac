"""The events of a session and our replies as lines, in one order, at the pace of their reader."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from taskweaver_ext.console.screen import write_all
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.event_json import event_line
from taskweaver_ext.events.types import SessionEventHandler, TaskWeaverEvent

MAX_READ_BYTES = 256 * 1024
MAX_WAITING_REPLIES = 1000
"""So many commands may be done ahead of a reader that does not look; then they wait for it."""

_logger = logging.getLogger(__name__)


class LineWriter(SessionEventHandler):
    """Write to a descriptor what happens and what we reply; a reply after what came before it.

    Events are pulled, so that a slow reader holds back nothing: as a handler of events this only
    hears that there are some.

    Threads:
        `taskweaver-lines` writes, and alone touches `_written`; the rest is for any thread.
        `_changed` guards the other fields and is not held while writing or reading events.
    """

    def __init__(
        self,
        emitter: SessionEventEmitter,
        descriptor: int,
        on_failure: Callable[[], None],
        first_line: str = "",
    ) -> None:
        """Begin to write, from the first event of this process on.

        Args:
            on_failure: Called once if nothing can be written any more, on the thread that writes.
            first_line: Comes before everything else.
        """
        self._emitter = emitter
        self._descriptor = descriptor
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._replies = deque([(0, first_line)] if first_line else [])
        self._has_news = True
        self._is_hurried = False
        self._is_ending = False
        self._written = emitter.began_after
        self.failure: Exception | None = None
        """Why nothing can be written any more."""
        self._thread = threading.Thread(target=self._run, name="taskweaver-lines", daemon=True)
        emitter.register(self)
        self._thread.start()

    def handle(self, event: TaskWeaverEvent) -> None:
        """Hear that there is something to pull."""
        with self._changed:
            self._has_news = True
            self._changed.notify_all()

    def reply(self, line: str) -> None:
        """Write a line after all events that have happened by now.

        Where too many replies wait already, this waits for the reader.
        """
        last_seq = self._emitter.last_seq
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._replies) < MAX_WAITING_REPLIES or self._is_hurried
            )
            self._replies.append((last_seq, line))
            self._has_news = True
            self._changed.notify_all()

    def hurry(self) -> None:
        """Let no thread wait for the reader any more: the end is near."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()

    def close(self, seconds: float | None = None) -> bool:
        """Write what is left and end; say whether all of it was written.

        Args:
            seconds: How long its reader may take; None: as long as it likes.
        """
        self._emitter.unregister(self)
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._thread.join(seconds)
        return not self._thread.is_alive() and self.failure is None

    def _run(self) -> None:
        try:
            while self._wait_for_news():
                self._write_what_is_there()
        except Exception as error:  # whatever it is, no thread is to wait for this one
            if not isinstance(error, OSError):
                _logger.exception("Events cannot be written any more")
            self.failure = error
            self.hurry()
            self._on_failure()

    def _wait_for_news(self) -> bool:
        """Sleep until there is something to write; False when nothing more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_news or self._is_ending)
            has_news, self._has_news = self._has_news, False
            return has_news

    def _write_what_is_there(self) -> None:
        while True:
            with self._changed:
                reply = self._next_reply()
            if reply is not None:
                self._put(reply)
            elif events := self._emitter.read(self._written, MAX_READ_BYTES):
                self._put("".join(map(event_line, events)))
                self._written = events[-1].seq
            else:
                return

    def _next_reply(self) -> str | None:
        if not self._replies or self._replies[0][0] > self._written:
            return None
        self._changed.notify_all()
        return self._replies.popleft()[1]

    def _put(self, text: str) -> None:
        write_all(self._descriptor, text.encode("ascii"))
