"""Standard output and error of a kernel: text streams that write into an `OutputQueue`."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable

from .output_queue import OutputQueue, pending_of_execution
from .wire import STDOUT

_MAX_PIECE_CHARACTERS = 1 << 18
_LARGE_WRITE = 512
_LOOK_EVERY = 0xFF
"""Writes that may go by, as a mask, before one looks whether the queue is full."""


class TextStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of the kernel."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    write_through = False

    def __init__(self, queue: OutputQueue, kind: int) -> None:
        self.name = "<stdout>" if kind == STDOUT else "<stderr>"
        self.mode = "w"
        self.buffer = _ByteStream(self)
        self._descriptor = 1 if kind == STDOUT else 2
        self._queue = queue
        self.write = _writer(queue, kind)  # type: ignore[method-assign]

    def flush(self) -> None:
        """Send what was written; free when there is nothing."""
        if pending_of_execution.get(self._queue.latest):
            self._queue.flush_text()

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The execution's pipe, for child processes that are given this stream."""
        return self._descriptor

    def isatty(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Flush only: a kernel's streams stay open for the next execution."""
        self.flush()

    def reconfigure(self, **_settings: object) -> None:
        """Change nothing: any text can be written, and leaves at once."""
        self.flush()

    def detach(self) -> _ByteStream:  # type: ignore[override]
        """Give the bytes beneath, and stay usable: there is only one standard output."""
        return self.buffer

    def write_to_descriptor(self) -> None:
        """Write to the execution's pipe instead of the queue, in a forked child."""

        def write(text: str) -> int:
            view = memoryview(text.encode("utf-8", self.errors))
            while view:
                view = view[os.write(self._descriptor, view) :]
            return len(text)

        self.write = write  # type: ignore[method-assign]


def _writer(queue: OutputQueue, kind: int) -> Callable[[str], int]:
    """Make a stream's `write`: a function that finds all it needs without looking it up."""
    is_output = kind == STDOUT
    pending_or = pending_of_execution.get

    def write(text: str) -> int:
        """Take a text; it is sent at once or within a batch."""
        if text.__class__ is str and (size := len(text)) < _LARGE_WRITE:
            pending = pending_or(queue.latest)
            pending.append(text if is_output else (text,))
            if not pending.is_scheduled or not len(pending) & _LOOK_EVERY:
                queue.schedule(pending, text)
            return size
        return write_closely(text)

    def write_closely(text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        plain = str.__str__(text)  # what is kept must not be of a class of the user's
        pending = pending_or(queue.latest)
        for start in range(0, len(plain), _MAX_PIECE_CHARACTERS):
            piece = plain[start : start + _MAX_PIECE_CHARACTERS]
            pending.append(piece if is_output else (piece,))
            queue.schedule(pending, piece)
        return len(plain)

    return write


class _ByteStream(io.RawIOBase):
    """`sys.stdout.buffer`: bytes that become text as soon as their characters are whole."""

    mode = "wb"

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream
        self.name = stream.name
        self.raw = self
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def flush(self) -> None:
        """Send what was written."""
        self._stream.flush()

    def close(self) -> None:
        """Flush only: code that wraps these bytes closes them when it drops the wrapper."""
        self.flush()

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._stream.write(self._decoder.decode(view.tobytes()))
        return len(view)

    def end_character(self) -> None:
        """Write half a character as it is: what completes it does not come any more."""
        if rest := self._decoder.decode(b"", final=True):
            self._stream.write(rest)
