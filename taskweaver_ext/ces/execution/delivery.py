"""The hand-over of an execution's events from the reader to the caller's thread.

The reader never waits for the caller. A caller that is late is not given more
than a bounded amount to hold: text beyond it stays in the record, and is read
from there, in larger pieces, when the caller gets to it; large events, such as
pictures, wait in a file.
"""

from __future__ import annotations

import contextlib
import pickle
import tempfile
import threading
from array import array
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.output_sink import STREAMS, OutputSink
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.machine.private_files import make_private_folder
from taskweaver_ext.text.truncation import incomplete_bytes

_HELD_BYTES = 1 << 20
_HELD_ENTRIES = 10_000
_HELD_CHARACTERS = 1 << 24
"""Of events that wait in memory."""
_SMALLEST_PIECE = 1 << 16
_LARGEST_PIECE = 1 << 22
_MAX_RUNS = 1 << 20
"""Runs whose order is remembered while the caller is late; beyond, the last two grow."""


@dataclass(frozen=True, slots=True)
class OutputText:
    """Text of one stream, ready for a callback."""

    stream: StreamName
    text: str


Delivered: TypeAlias = OutputText | ExecutionEvent


@dataclass(slots=True)
class _Held:
    """Text of one stream that waits in memory."""

    stream: StreamName
    pieces: list[bytes]


@dataclass(slots=True)
class _Recorded:
    """Runs of text that wait in the record."""

    offsets: dict[StreamName, int] = field(default_factory=dict)
    """Where the rest of each stream's part starts."""
    lengths: array[int] = field(default_factory=lambda: array("Q", [0]))
    """Of runs of stdout and stderr in turn, stdout's first."""
    taken: int = 0
    """How many of `lengths` are used up."""

    def add(self, stream: StreamName, size: int, offset: int) -> None:
        """Append to the last run, or start the next."""
        self.offsets.setdefault(stream, offset)
        if (len(self.lengths) - 1) % 2 != STREAMS.index(stream):
            if len(self.lengths) >= _MAX_RUNS and self.taken <= len(self.lengths) - 2:
                self.lengths[-2] += size
                return
            self.lengths.append(0)
        self.lengths[-1] += size

    def read(self, max_bytes: int) -> tuple[StreamName, int, int]:
        """Use up to `max_bytes` of the first run: its stream, offset and size."""
        while self.taken < len(self.lengths) - 1 and not self.lengths[self.taken]:
            self.taken += 1
        stream = STREAMS[self.taken % 2]
        size = min(self.lengths[self.taken], max_bytes)
        offset = self.offsets[stream]
        self.lengths[self.taken] -= size
        self.offsets[stream] += size
        return stream, offset, size

    def give_back(self, stream: StreamName, size: int) -> None:
        """Undo the end of a `read`: the piece ended within a character."""
        self.lengths[self.taken] += size
        self.offsets[stream] -= size

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left in any run."""
        return self.taken >= len(self.lengths) - 1 and not self.lengths[-1]


@dataclass(frozen=True, slots=True)
class _LargeEvent:
    """An event that counts while it waits: in memory, or at an offset of the file."""

    event: ExecutionEvent | None
    characters: int
    offset: int = 0


class _EventFile:
    """Keeps events where they take no memory, until they are wanted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None

    def write(self, event: ExecutionEvent) -> int:
        """Append an event and return where it is; raises OSError."""
        if self._file is None:
            make_private_folder(self._folder)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see `close`
        offset = self._file.seek(0, 2)
        pickle.dump(event, self._file)
        self._file.flush()
        return offset

    def read(self, offset: int) -> ExecutionEvent:
        """Give back the event that was written there."""
        assert self._file is not None
        self._file.seek(offset)
        event: ExecutionEvent = pickle.load(self._file)
        return event

    def close(self) -> None:
        """Forget all of them."""
        if self._file is not None:
            self._file.close()


class Delivery:
    """A queue of events whose text is bounded in memory and complete all the same.

    Threads:
        The reader calls `put`, `put_output` and `finish`, the caller's thread
        `receive`. `_changed` guards all fields and is never held while calling out.
        Whether it is finished, and then drained, is asked for every piece and
        needs no lock: once that is true it stays true, and nothing is added.
    """

    def __init__(self, sink: OutputSink) -> None:
        self._sink = sink
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[ExecutionEvent | _LargeEvent | _Held | _Recorded] = deque()
        self._event_file = _EventFile(sink.folder)
        self._waiting_bytes = 0
        self._held_bytes = 0
        self._held_characters = 0
        self._is_finished = False
        self._is_woken = False

    def put(self, event: ExecutionEvent, characters: int = 0) -> None:
        """Queue an event, with how many characters it holds if those may be many."""
        with self._changed:
            self._waiting.append(self._keep(event, characters) if characters else event)
            self._changed.notify()

    def _keep(self, event: ExecutionEvent, characters: int) -> _LargeEvent:
        if self._held_characters + characters > _HELD_CHARACTERS:
            # On a full disk it stays in memory after all, as it does once the caller is gone.
            with contextlib.suppress(OSError, ValueError):
                return _LargeEvent(None, characters, self._event_file.write(event))
        self._held_characters += characters
        return _LargeEvent(event, characters)

    def put_output(self, stream: StreamName, data: bytes, offset: int) -> None:
        """Queue output that the record already has at `offset`."""
        with self._changed:
            self._waiting_bytes += len(data)
            last = self._waiting[-1] if self._waiting else None
            if isinstance(last, _Recorded):
                last.add(stream, len(data), offset)
            elif self._is_late():
                recorded = _Recorded()
                recorded.add(stream, len(data), offset)
                self._waiting.append(recorded)
            else:
                self._held_bytes += len(data)
                if isinstance(last, _Held) and last.stream == stream:
                    last.pieces.append(data)
                else:
                    self._waiting.append(_Held(stream, [data]))
            self._changed.notify()

    def finish(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self._is_finished = True
            self._changed.notify()

    def wake(self) -> None:
        """Have the caller's thread look around although there is nothing to receive."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def receive(self, timeout: float | None) -> Delivered | None:
        """Wait for the next event or piece of text; None when time is up or all is taken."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._is_finished or self._is_woken, timeout
            )
            self._is_woken = False
            if not self._waiting:
                return None
            first = self._waiting[0]
            if isinstance(first, _Recorded):
                return self._read_recorded(first)
            self._waiting.popleft()
            if isinstance(first, _LargeEvent):
                return self._read_large(first)
            if not isinstance(first, _Held):
                return first
            data = b"".join(first.pieces)
            self._held_bytes -= len(data)
            self._waiting_bytes -= len(data)
        return OutputText(first.stream, data.decode("utf-8", "replace"))

    def _read_large(self, large: _LargeEvent) -> ExecutionEvent:
        if large.event is None:
            return self._event_file.read(large.offset)
        self._held_characters -= large.characters
        return large.event

    def close(self) -> None:
        """Let go of what was not taken."""
        with self._changed:
            self._waiting.clear()
            self._event_file.close()

    @property
    def is_finished(self) -> bool:
        """Whether nothing more comes; what is queued can still be taken."""
        return self._is_finished

    @property
    def is_drained(self) -> bool:
        """Whether all has been taken and nothing more comes."""
        return self._is_finished and not self._waiting

    @property
    def waiting_bytes(self) -> int:
        """How much text has not been taken."""
        with self._changed:
            return self._waiting_bytes

    def _is_late(self) -> bool:
        is_full = self._held_bytes > _HELD_BYTES or len(self._waiting) > _HELD_ENTRIES
        return is_full and self._sink.is_spilled

    def _read_recorded(self, recorded: _Recorded) -> OutputText:
        """Read the next piece of the first run from the record; larger the later we are."""
        piece = min(max(self._waiting_bytes // 8, _SMALLEST_PIECE), _LARGEST_PIECE)
        stream, offset, size = recorded.read(piece)
        data = self._sink.read(stream, offset, size)
        cut_off = 0 if len(data) < size else incomplete_bytes(data)
        if cut_off:
            recorded.give_back(stream, cut_off)
        self._waiting_bytes -= size - cut_off
        if recorded.is_used_up:
            self._waiting.popleft()
        return OutputText(stream, data[: len(data) - cut_off].decode("utf-8", "replace"))
