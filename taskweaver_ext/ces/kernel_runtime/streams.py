"""Standard output and error of a kernel: seen at once, in order, never dropped.

The first piece after quiet is sent by the thread that wrote it (a partial
line waits a moment for its newline); then what is written is sent in short
batches. Text, messages and the end of an execution share one queue, so their
order outside is the order in which they happened.
"""

from __future__ import annotations

import codecs
import contextvars
import io
import itertools
import operator
import os
import select
import threading
import time
from collections import deque

from .child_pipes import ChildPipes
from .wire import HEADER, STDERR, STDOUT, FrameSender, end_with_all_children

BATCH_SECONDS = 0.015
PARTIAL_LINE_SECONDS = 0.003

KIND_BITS = 3
"""A key is an execution's ordinal and a frame's kind: ordinal << KIND_BITS | kind."""

_MAX_PIECE_CHARACTERS = 1 << 18
_FULL_CHARACTERS = 1 << 16
_FULL_WRITES = 8192
_LARGE_WRITE = 2048
_KIND_MASK = (1 << KIND_BITS) - 1

execution_key: contextvars.ContextVar[int] = contextvars.ContextVar("taskweaver_execution")
"""The execution that the running thread or task belongs to, as a key of kind 0."""

_monotonic = time.monotonic
_key_of = operator.itemgetter(0)
_text_of = operator.itemgetter(1)


class OutputQueue:
    """What was said and not yet sent.

    Threads:
        Any thread appends to `pending`; whoever has the wire's turn empties
        it. A thread of its own sends what nobody else would: the tail of a
        batch, and what child processes write.
    """

    def __init__(self, wire: FrameSender, pipes: ChildPipes) -> None:
        self.pending: deque[tuple[int, str]] = deque()
        self.is_hot = False
        """True while writers may append and go on: the thread will send in a moment."""
        self.latest_key = 0
        """The execution that a thread without a context of its own is taken to belong to."""
        self._wire = wire
        self._pipes = pipes
        self._characters = 0
        self._pipes_were_empty = False
        """At the last look, a moment ago: the next `_take` of the same flush need not look."""
        self._last_sent = 0.0
        self._due = float("inf")
        self._alarm, self._alarm_writer = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(self._alarm_writer, False)
        self._thread = threading.Thread(
            target=self._send_what_is_due, name="taskweaver-output", daemon=True
        )

    def start(self) -> None:
        """Begin to send by itself."""
        self._thread.start()

    @property
    def latest_ordinal(self) -> int:
        """The execution that began last."""
        return self.latest_key >> KIND_BITS

    def begin(self, ordinal: int) -> None:
        """An execution starts, with its own pipes and with quiet."""
        self.latest_key = ordinal << KIND_BITS
        execution_key.set(self.latest_key)
        new_pipes = self._pipes.begin(ordinal)
        if new_pipes:
            self._wire.send_pipes(ordinal, new_pipes)
            self._ring()
        self._last_sent = 0.0
        self.is_hot = False

    def say(self, kind: int, text: str) -> None:
        """Append a message of the running execution and send it, after all that came before."""
        self.pending.append((execution_key.get(self.latest_key) | kind, text))
        self.flush()

    def written(self, text: str) -> None:
        """Decide when a text that was just appended to `pending` is sent."""
        self._characters += len(text)
        if self._characters >= _FULL_CHARACTERS or len(self.pending) >= _FULL_WRITES:
            self.flush()
            return
        now = _monotonic()
        if now - self._last_sent < BATCH_SECONDS:
            self.is_hot = True
            self._set_alarm(now + BATCH_SECONDS)
        elif self.is_hot or text.endswith("\n"):
            self.flush()
        else:
            self._set_alarm(now + PARTIAL_LINE_SECONDS)

    def flush(self) -> None:
        """Send all that was said so far; what child processes wrote goes first."""
        self._wire.send_all(self._take)
        self._last_sent = _monotonic()

    def settle(self, ending: dict[str, int]) -> None:
        """Send all that was said so far and make sure that it arrives: we may end in this way."""
        self.flush()
        self._wire.settle(ending)

    def flush_text(self) -> None:
        """Send what was written because its writer asks for it."""
        if self._wire.flushes_at_once or _monotonic() - self._last_sent >= BATCH_SECONDS:
            self.flush()
        else:
            self.is_hot = True
            self._set_alarm(_monotonic() + BATCH_SECONDS)

    def children_may_start(self) -> None:
        """Called before a child process starts: it must not overtake what was said before."""
        self._pipes.may_have_children = True
        self.flush()

    def _take(self) -> bytes:
        """Empty the pipes and `pending` into frames, one for each run of one stream."""
        if self._pipes_were_empty and not self.pending:
            self._pipes_were_empty = False
            return b""
        frames: list[bytes] = []
        for ordinal, kind, text in self._pipes.read():
            _add_frame(frames, ordinal << KIND_BITS | kind, text)
        self._pipes_were_empty = not frames and bool(self.pending)
        count = min(len(self.pending), _FULL_WRITES)
        self._characters = 0
        taken = itertools.starmap(self.pending.popleft, itertools.repeat((), count))
        for key, run in itertools.groupby(taken, _key_of):
            if key & _KIND_MASK <= STDERR:
                _add_frame(frames, key, "".join(map(_text_of, run)))
            else:
                for _, text in run:
                    _add_frame(frames, key, text)
        return b"".join(frames)

    def _set_alarm(self, due: float) -> None:
        if due < self._due:
            self._due = due
            self._ring()

    def _ring(self) -> None:
        try:
            os.write(self._alarm_writer, b"!")
        except BlockingIOError:
            return  # it has not even heard the last one

    def _send_what_is_due(self) -> None:
        while True:
            ready = self._wait()
            if self._wire.fileno() in ready:
                end_with_all_children()
            if self._alarm in ready:
                os.read(self._alarm, 512)
            if ready - {self._alarm}:
                self.flush()
            if _monotonic() >= self._due:
                self._send_batch()

    def _wait(self) -> set[int]:
        """Wait until a pipe or the alarm is readable, or a batch is due."""
        poller = select.poll()
        for descriptor in (self._alarm, self._wire.fileno(), *self._pipes.descriptors()):
            poller.register(descriptor, select.POLLIN)
        wait_seconds = self._due - _monotonic()
        forever = wait_seconds == float("inf")
        return {
            descriptor
            for descriptor, _ in poller.poll(None if forever else max(0.0, wait_seconds * 1000))
        }

    def _send_batch(self) -> None:
        """Send the tail of a batch; stay hot for as long as there is something to send."""
        self._due = float("inf")
        if not self.pending:
            self.is_hot = False
        if self.pending:  # also what slipped in while it became cold
            self.flush()
            self.is_hot = True
            self._due = _monotonic() + BATCH_SECONDS

    def let_go_in_child(self) -> None:
        """A forked child starts with nothing to send and no thread that sends."""
        self.pending.clear()
        self._wire.let_go_in_child()
        self._pipes.let_go_in_child()


class TextStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of the kernel."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    __slots__ = ("_append", "_get_key", "_kind", "_pending", "_queue")  # read at every write

    def __init__(self, queue: OutputQueue, kind: int) -> None:
        self.name = "<stdout>" if kind == STDOUT else "<stderr>"
        self.mode = "w"
        self.buffer = _ByteStream(self)
        self._descriptor = 1 if kind == STDOUT else 2
        self._queue = queue
        self._kind = kind
        self._pending = queue.pending
        self._append = queue.pending.append
        self._get_key = execution_key.get

    def write(self, text: str) -> int:
        """Take a text; it is sent at once or within a batch."""
        queue = self._queue
        # Off the clock while hot: only every 256th write, or a large one, looks closer.
        if queue.is_hot and text.__class__ is str and len(text) < _LARGE_WRITE:
            if text:
                self._append((self._get_key(queue.latest_key) | self._kind, text))
                if not len(self._pending) & 255:
                    queue.written(text)
            return len(text)
        return self._write_closely(text)

    def _write_closely(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        queue = self._queue
        for start in range(0, len(text), _MAX_PIECE_CHARACTERS):
            piece = text[start : start + _MAX_PIECE_CHARACTERS]
            self._append((self._get_key(queue.latest_key) | self._kind, piece))
            queue.written(piece)
        return len(text)

    def flush(self) -> None:
        """Send what was written; free when there is nothing."""
        if self._pending:
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

    def write_to_descriptor_from_now_on(self) -> None:
        """In a forked child the pipe is the way out, for it carries the execution's name."""

        def write(text: str) -> int:
            view = memoryview(text.encode("utf-8", self.errors))
            while view:
                view = view[os.write(self._descriptor, view) :]
            return len(text)

        self.write = write  # type: ignore[method-assign]


class _ByteStream(io.RawIOBase):
    """`sys.stdout.buffer`: bytes that become text as soon as their characters are whole."""

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._stream.write(self._decoder.decode(view.tobytes()))
        return len(view)


def _add_frame(frames: list[bytes], key: int, text: str) -> None:
    payload = text.encode("utf-8", "backslashreplace")
    frames.append(HEADER.pack(key & _KIND_MASK, key >> KIND_BITS, len(payload)))
    frames.append(payload)
