"""Lines from a descriptor: bounded, and to be called off from any thread."""

from __future__ import annotations

import contextlib
import os
import select
import threading

from taskweaver_ext.closing import Closeable

READ_BYTES = 65536


class LineReader(Closeable):
    """Read lines as they come; whether the reader of our own output has gone is noticed, too.

    Threads:
        One thread reads and waits; `wake` is for any other, also after `close`. `_lock` keeps
        `wake` from a descriptor that has been closed.
    """

    def __init__(self, source: int, output: int, max_line_bytes: int) -> None:
        """Begin with nothing read.

        Args:
            source: The descriptor to read from.
            output: Where what we have to say goes.
            max_line_bytes: Longer lines are left out.
        """
        self._source = source
        self._max_line_bytes = max_line_bytes
        self._pending = bytearray()
        self._searched = 0
        """Up to where there is no end of a line."""
        self._is_skipping = False
        """Whether the line that comes is too long already."""
        self._lock = threading.Lock()
        self._is_closed = False
        self._woken, self.wake_descriptor = os.pipe()
        """For `signal.set_wakeup_fd`: else a signal that comes just before a wait is not heard."""
        os.set_blocking(self.wake_descriptor, False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._poll.register(output, 0)  # only tells when its reader is gone
        self._output = output
        self.output_is_gone = False
        """Whether nothing that we write is read any more."""
        self.is_at_end = False
        """Whether everything has been read."""

    def read_line(self) -> bytes | None:
        """Wait for a line and return it; None at the end, or when something else has happened.

        Raises:
            ValueError: A line was too long and was left out; the next call returns what follows.
        """
        self._poll.register(self._source, select.POLLIN)
        try:
            while (end := self._pending.find(b"\n", self._searched)) < 0:
                self._limit_pending()
                if not self._read_more():
                    return self._rest() if self.is_at_end else None
        finally:
            self._poll.unregister(self._source)
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        self._searched = 0
        if self._is_skipping or len(line) > self._max_line_bytes:
            self._is_skipping = False
            raise ValueError(f"it has more than {self._max_line_bytes:,} bytes")
        return line

    def _limit_pending(self) -> None:
        """Drop what has come of a line that is too long."""
        if len(self._pending) > self._max_line_bytes:
            self._is_skipping = True
            self._pending.clear()
        self._searched = len(self._pending)

    def wait(self) -> None:
        """Sleep until `wake` is called, or the reader of our output has gone."""
        self._wait()

    def wake(self) -> None:
        """Make `read_line` or `wait` return, now or when it is next called."""
        with self._lock, contextlib.suppress(BlockingIOError):  # woken many times already
            if not self._is_closed:
                os.write(self.wake_descriptor, b"x")

    def close(self) -> None:
        """Let go of the descriptors that were made here."""
        with self._lock:
            if not self._is_closed:
                os.close(self._woken)
                os.close(self.wake_descriptor)
            self._is_closed = True

    def _rest(self) -> bytes | None:
        """Return a last line without an end, if there is one."""
        rest, self._pending = bytes(self._pending), bytearray()
        return None if self._is_skipping else rest or None

    def _read_more(self) -> bool:
        """Wait for more; False when there is none, for now or for ever."""
        if not self._wait():
            return False
        try:
            piece = os.read(self._source, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # the terminal is gone, or the input was closed
            piece = b""
        self._pending += piece
        self.is_at_end = not piece
        return not self.is_at_end

    def _wait(self) -> bool:
        """Return whether there may be something to read, and nothing else has happened."""
        ready = dict(self._poll.poll())
        if self._woken in ready:
            os.read(self._woken, READ_BYTES)
            return False
        if self._output in ready:
            self.output_is_gone = True
            self._poll.unregister(self._output)  # it would not stop saying so
            return False
        return True
