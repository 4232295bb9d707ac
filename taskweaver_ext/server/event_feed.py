"""The newest events of the sessions as lines of JSON, made once, for any number of clients.

A client pulls: it asks for what comes after the last event that it has, at its own pace. What is
no longer kept here comes from the session's memory or its journal, so that nothing is ever missed;
the memory of all sessions together is bounded by one number.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from itertools import islice

from taskweaver_ext.events.event_json import event_line
from taskweaver_ext.events.types import SessionEventHandler, TaskWeaverEvent

BYTES_OF_A_LINE = 100
"""What keeping a line costs besides its text."""


class RecentEvents:
    """How much the feeds of a server keep; the oldest lines go first, whichever session said them.

    Threads:
        `lock` guards the queue of all lines and the lines of every feed.
    """

    def __init__(self, max_bytes: int) -> None:
        self.lock = threading.Lock()
        self._max_bytes = max_bytes
        self._kept: deque[tuple[EventFeed, int]] = deque()
        self.kept_bytes = 0

    def count(self, feed: EventFeed, size: int) -> None:
        """A feed has got a line, and others may have to go; called with the lock."""
        self._kept.append((feed, size))
        self.kept_bytes += size
        while self.kept_bytes > self._max_bytes and len(self._kept) > 1:
            oldest, its_size = self._kept.popleft()
            oldest.forget_oldest()
            self.kept_bytes -= its_size


class EventFeed(SessionEventHandler):
    """The newest events of one session, in order and without a gap.

    Threads:
        `handle` is called by the threads that emit; it never waits for a client. `wait` and
        `close` belong to the event loop. The lock of `RecentEvents` guards `_lines`.
    """

    def __init__(
        self, recent: RecentEvents, loop: asyncio.AbstractEventLoop, last_seq: int
    ) -> None:
        """Begin after an event that is kept elsewhere."""
        self._recent = recent
        self._loop = loop
        self._lines: deque[str] = deque()
        self._is_woken = False
        self._waiting: set[asyncio.Future[None]] = set()
        self.last_seq = last_seq
        """The number of the newest event."""
        self.is_closed = False
        """Whether nothing more will come, because the server ends or the session was deleted."""

    def handle(self, event: TaskWeaverEvent) -> None:
        """Keep an event, and wake the clients that wait."""
        line = event_line(event)
        with self._recent.lock:
            if self._lines and event.seq != self.last_seq + 1:
                self._lines.clear()  # some have come while no process of ours had the session
            self._lines.append(line)
            self.last_seq = event.seq
            self._recent.count(self, len(line) + BYTES_OF_A_LINE)
        self.wake()

    def go_on_from(self, seq: int) -> None:
        """There are events up to this one that are kept elsewhere alone."""
        with self._recent.lock:
            if seq > self.last_seq:
                self._lines.clear()
                self.last_seq = seq
        self.wake()

    def forget_oldest(self) -> None:
        """Drop a line; called with the lock."""
        if self._lines:
            self._lines.popleft()

    def lines_after(self, seq: int, max_bytes: int) -> list[str] | None:
        """Return the next lines after an event, about so much; None if they are kept elsewhere."""
        with self._recent.lock:
            first = self.last_seq + 1 - len(self._lines)
            if seq + 1 < first:
                return None
            lines = []
            for line in islice(self._lines, seq + 1 - first, None):
                lines.append(line)
                max_bytes -= len(line)
                if max_bytes < 0:
                    break
            return lines

    async def wait(self, after: int, seconds: float) -> bool:
        """Sleep until there is an event after that number; False when there is none by then."""
        if self.last_seq > after or self.is_closed:
            return True
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(future)
        return True

    def wake(self) -> None:
        """Let those that wait look again; from any thread, and cheap if it was just called."""
        with self._recent.lock:
            if self._is_woken:
                return
            self._is_woken = True
        with contextlib.suppress(RuntimeError):  # the loop has ended, and no client is left
            self._loop.call_soon_threadsafe(self._wake_waiting)

    def close(self) -> None:
        """End the streams of all clients."""
        self.is_closed = True
        self.wake()

    def _wake_waiting(self) -> None:
        with self._recent.lock:
            self._is_woken = False
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
