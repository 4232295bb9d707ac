"""Output that is not sent yet: it leaves at once or soon, in order, and is never dropped.

The first piece after quiet is sent by the thread that wrote it (a partial
line waits a moment for its newline); then what is written is sent in short
batches. Each execution has a queue of its own, in which text, messages and its
end stand in the order in which they happened.
"""

from __future__ import annotations

import contextvars
import itertools
import os
import select
import struct
import threading
import time
from typing import Any, NoReturn

from .child_pipes import ChildPipes
from .wire import (
    ENDED,
    HEADER,
    MAX_RUNS_BYTES,
    RUN_COUNT,
    RUN_LENGTH,
    RUNS,
    STDOUT,
    FrameSender,
)

BATCH_SECONDS = 0.015
PARTIAL_LINE_SECONDS = 0.003

_FULL_CHARACTERS = 1 << 16
_FULL_WRITES = 8192
_FEW_RUNS = 4
_NEVER = float("inf")

_monotonic = time.monotonic


class PendingOutput(list):  # type: ignore[type-arg]  # a plain name costs nothing when it is called
    """What one execution has said, told apart by type because that costs the writer least.

    A text was written to standard output, a tuple of one text to standard error, and a list of
    kind and text, or bytes, is a message.
    """

    __slots__ = ("is_scheduled", "ordinal")

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        self.ordinal = ordinal
        self.is_scheduled = False
        """True while writers may append and go on: it will be sent in a moment."""


pending_of_execution: contextvars.ContextVar[PendingOutput] = contextvars.ContextVar(
    "taskweaver_output"
)
"""Belongs to the execution that the running thread or task belongs to."""


class OutputQueue:
    """Send what executions say, soon and in order.

    Threads:
        Any thread appends to a `PendingOutput` and only then asks whether a send is
        scheduled; the thread that holds the wire empties it. `_send_batch` clears
        `is_scheduled` before it looks for the last time, so nothing is left behind. A
        thread of its own sends what no writer would: the tail of a batch, and what
        child processes write.
    """

    def __init__(self, wire: FrameSender, pipes: ChildPipes) -> None:
        self.latest = PendingOutput(0)
        """Of the execution that a thread without a context of its own is taken to belong to."""
        self._active = {0: self.latest}
        """By ordinal: the latest execution, and earlier ones that say something late."""
        self._wire = wire
        self._pipes = pipes
        self._frames: list[bytes] = []
        """What is being drained; not empty where that has failed."""
        self._is_ending = False
        self._characters = 0
        self._last_sent = 0.0
        self._due = _NEVER
        self._alarm, self._alarm_writer = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(self._alarm_writer, False)
        self._thread = threading.Thread(
            target=self._send_what_is_due, name="taskweaver-output", daemon=True
        )

    def start(self) -> None:
        """Begin to send by itself."""
        self._thread.start()

    def begin(self, ordinal: int) -> None:
        """An execution starts, with its own pipes and with quiet."""
        self.latest = self._active[ordinal] = PendingOutput(ordinal)
        pending_of_execution.set(self.latest)
        new_pipes = self._pipes.begin(ordinal)
        if new_pipes:
            self._wire.send_pipes(ordinal, new_pipes)
            self._ring()
        self._last_sent = 0.0

    def say(self, kind: int, text: str | bytes) -> None:
        """Append a message of the running execution and send it, after all that came before."""
        self._append(kind, text)
        self.flush()

    def say_first(self, kind: int, text: str) -> None:
        """Send a message of an execution that has said nothing yet; for what follows it is quiet.

        It is gone before code runs, which may keep every other thread from running.
        """
        frame = b"".join(_frame(kind, self.latest.ordinal, text))
        self._wire.send_all(lambda: frame)
        # Rung before code runs: a first line must not be cut by the thread that this wakes.
        self._set_alarm(_monotonic() + PARTIAL_LINE_SECONDS)

    def say_apart(self, kind: int, text: str) -> None:
        """Send a message that belongs to no execution, past all that waits."""
        frame = b"".join(_frame(kind, 0, text))
        self._wire.send_all(lambda: frame)

    def end(self, text: str) -> None:
        """Append the end of the running execution and send it, after all that came before."""
        self._is_ending = True  # before it is there: the other thread may send it
        self.say(ENDED, text)

    def _append(self, kind: int, text: str | bytes) -> None:
        pending = pending_of_execution.get(self.latest)
        pending.append([kind, text])
        self._active[pending.ordinal] = pending

    def schedule(self, pending: PendingOutput, text: str) -> None:
        """Decide when a text that was just appended is sent."""
        self._active[pending.ordinal] = pending
        self._characters += len(text)
        if self._characters >= _FULL_CHARACTERS or len(pending) >= _FULL_WRITES:
            self.flush()
            return
        now = _monotonic()
        if now - self._last_sent < BATCH_SECONDS:
            pending.is_scheduled = True
            self._set_alarm(now + BATCH_SECONDS)
        elif pending.is_scheduled or text.endswith("\n"):
            self.flush()
        else:
            self._set_alarm(now + PARTIAL_LINE_SECONDS)

    def flush(self) -> None:
        """Send all that was said so far; what child processes wrote goes first."""
        if self._wire.send_all(self._drain):
            self._last_sent = _monotonic()
        else:
            self._set_alarm(_monotonic() + BATCH_SECONDS)

    def settle(self, ending: dict[str, int]) -> None:
        """Send all that was said so far and make sure that it arrives: we may end in this way."""
        self.flush()
        self._wire.settle(ending)

    def break_down(self) -> NoReturn:
        """End this process: code has broken what would go on."""
        self._wire.break_down()

    def flush_text(self) -> None:
        """Send what was written because its writer asks for it."""
        now = _monotonic()
        if self._wire.flushes_at_once or now - self._last_sent >= BATCH_SECONDS:
            self.flush()
        else:
            self._set_alarm(now + BATCH_SECONDS)

    def before_child_starts(self) -> None:
        """Called before a child process starts: it must not overtake what was said before."""
        self._pipes.may_have_children = True
        self.flush()

    def _drain(self) -> bytes:
        """Empty the pipes and the queues into frames, one for each run of one stream.

        How long the queues are is noted before the pipes are read: what was printed after a
        child's end comes after all that the child wrote.
        """
        frames = self._frames
        is_end, self._is_ending = self._is_ending, False
        counts = [(pending, len(pending)) for pending in tuple(self._active.values())]
        for ordinal, kind, text in self._pipes.read(is_end=is_end):
            frames += _frame(kind, ordinal, text)
        self._characters = 0
        for pending, count in counts:
            if count:
                # Only then forgotten: code at the limit of recursion or memory may fail in here.
                frames += _frames_of(pending.ordinal, pending[:count])
                del pending[:count]
            if pending is not self.latest and not pending.is_scheduled:
                self._forget(pending)
        drained = b"".join(frames)
        self._frames = []
        return drained

    def _forget(self, pending: PendingOutput) -> None:
        """Drop an earlier execution that has become silent, unless a writer has just appended."""
        self._active.pop(pending.ordinal, None)
        if pending:
            self._active[pending.ordinal] = pending

    def _set_alarm(self, due: float) -> None:
        if due < self._due:
            self._due = due
            self._ring()

    def _ring(self) -> None:
        try:
            os.write(self._alarm_writer, b"!")
        except BlockingIOError:
            return  # the last one has not been read yet

    def _send_what_is_due(self) -> None:
        while True:
            ready = self._wait()
            if self._wire.fileno() in ready:
                self._wire.receive()
            if self._alarm in ready:
                os.read(self._alarm, 512)
            if ready - {self._alarm, self._wire.fileno()}:
                self.flush()
            if _monotonic() >= self._due:
                self._send_batch()

    def _wait(self) -> set[int]:
        """Wait until a pipe or the alarm is readable, or a batch is due."""
        poller = select.poll()
        for descriptor in (self._alarm, self._wire.fileno(), *self._pipes.descriptors()):
            poller.register(descriptor, select.POLLIN)
        wait_seconds = self._due - _monotonic()
        forever = wait_seconds == _NEVER
        return {
            descriptor
            for descriptor, _ in poller.poll(None if forever else max(0.0, wait_seconds * 1000))
        }

    def _send_batch(self) -> None:
        """Send the tail of a batch; come again for as long as there is something to send."""
        self._due = _NEVER
        for pending in tuple(self._active.values()):
            pending.is_scheduled = False
            pending.is_scheduled = bool(pending)  # also what slipped in just now
        if any(self._active.values()):
            self.flush()
            self._set_alarm(_monotonic() + BATCH_SECONDS)

    def after_fork_in_child(self) -> None:
        """A forked child starts with nothing to send and no thread that sends."""
        for pending in self._active.values():
            pending.clear()
        self._frames.clear()
        self._wire.after_fork_in_child()
        self._pipes.after_fork_in_child()


def _frames_of(ordinal: int, said: list[Any]) -> list[bytes]:
    try:
        return _frame(STDOUT, ordinal, "".join(said))
    except TypeError:  # not only standard output
        frames: list[bytes] = []
    runs: list[str] = []
    for kind, run in itertools.groupby(said, type):
        if kind is str:
            runs.append("".join(run))
        elif kind is tuple:
            if not runs:
                runs.append("")  # standard output comes first, if only with nothing
            runs.append("".join(itertools.chain.from_iterable(run)))
        else:
            frames += _frames_of_runs(ordinal, runs)
            runs = []
            for message_kind, text in run:
                frames += _frame(message_kind, ordinal, text)
    return frames + _frames_of_runs(ordinal, runs)


def _frames_of_runs(ordinal: int, runs: list[str]) -> list[bytes]:
    """Make frames of texts of stdout and stderr in turn, stdout's first: one frame if there are
    many, so that a change of the stream costs next to nothing."""
    if len(runs) <= _FEW_RUNS:
        return [part for i, text in enumerate(runs) for part in _frame(i % 2, ordinal, text)]
    texts = ["".join(runs[0::2]), "".join(runs[1::2])]
    payloads = list(map(_encoded, texts))
    size = RUN_COUNT.size * (1 + len(runs)) + len(payloads[0]) + len(payloads[1])
    if size > MAX_RUNS_BYTES:
        return [part for i, text in enumerate(runs) for part in _frame(i % 2, ordinal, text)]
    is_plain = texts[0].isascii() and texts[1].isascii()
    lengths = map(len, runs if is_plain else map(_encoded, runs))
    table = struct.pack(f"!{len(runs)}{RUN_LENGTH}", *lengths)
    return [HEADER.pack(RUNS, ordinal, size), RUN_COUNT.pack(len(runs)), table, *payloads]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _frame(kind: int, ordinal: int, text: str | bytes) -> list[bytes]:
    payload = text if isinstance(text, bytes) else _encoded(text)
    return [HEADER.pack(kind, ordinal, len(payload)), payload] if payload else []
