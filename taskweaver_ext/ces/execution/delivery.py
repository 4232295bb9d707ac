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
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.output_runs import STREAMS, OutputRuns, RunLengths
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.machine.private_files import make_private_folder
from taskweaver_ext.text.truncation import incomplete_bytes

_HELD_BYTES = 1 << 20
_HELD_ENTRIES = 10_000
_HELD_CHARACTERS = 1 << 24
"""Of events that wait in memory."""
_EVENT_CHARACTERS = 500
"""What an event takes beside its text, in characters."""
_SMALLEST_PIECE = 1 << 16
_LARGEST_PIECE = 1 << 22
_MAX_RUNS = 1 << 20
"""Runs whose order is remembered while the caller is late; beyond, the last two grow."""


class OutputPiece(NamedTuple):
    """Text of one stream, and which part of that stream's record it is."""

    stream: StreamName
    text: str
    offset: int
    size: int
    """In bytes of the record; the text has others where those are not UTF-8."""


class OutputTexts:
    """Text that is ready for callbacks: runs of one stream each, in order.

    Belongs to the thread that received it.
    """

    def __init__(
        self, lengths: Sequence[int], data: Sequence[bytes], offsets: tuple[int, int]
    ) -> None:
        """Make runs ready.

        Args:
            data: What the runs of each stream make together.
            offsets: Where in the records that begins.
        """
        self._lengths = lengths
        self._data = data
        self._offsets = offsets
        self.left_bytes = sum(lengths)
        """How much has not been given yet."""

    def __iter__(self) -> Iterator[OutputPiece]:
        """Give run after run."""
        texts = [data.decode() if data.isascii() else data for data in self._data]
        starts = [0, 0]
        number = 1
        for size in self._lengths:
            number ^= 1
            start = starts[number]
            starts[number] = end = start + size
            self.left_bytes -= size
            if piece := texts[number][start:end]:
                text = piece if isinstance(piece, str) else piece.decode("utf-8", "replace")
                offset = self._offsets[number] + start
                yield OutputPiece(STREAMS[number], text, offset, len(piece))


Delivered: TypeAlias = OutputTexts | ExecutionEvent


class _Held:
    """Runs of text that wait in memory."""

    def __init__(self, offsets: tuple[int, int]) -> None:
        self.runs = RunLengths()
        self.pieces: tuple[list[bytes], list[bytes]] = ([], [])
        self._offsets = offsets
        """Where in the records they start."""

    def texts(self) -> OutputTexts:
        """Make all of it ready for callbacks."""
        data = [b"".join(pieces) for pieces in self.pieces]
        return OutputTexts(self.runs.lengths, data, self._offsets)


class _Recorded:
    """Runs of text that wait in the record."""

    def __init__(self, offsets: tuple[int, int]) -> None:
        self.runs = RunLengths()
        self._offsets = offsets
        """Where the rest of each stream's part starts."""
        self._taken = 0
        """How many of the runs are used up."""

    @property
    def is_full(self) -> bool:
        """Whether the order of more runs is not remembered."""
        return len(self.runs.lengths) >= _MAX_RUNS and self._taken <= len(self.runs.lengths) - 2

    def read(self, max_bytes: int) -> tuple[list[int], tuple[int, int]]:
        """Use up the first runs, or up to `max_bytes` of one.

        Returns their lengths, stdout's first, and where the text of each stream starts.
        """
        lengths = self.runs.lengths
        used = [0] * (self._taken % 2)
        left = max_bytes
        while self._taken < len(lengths) and (lengths[self._taken] <= left or left == max_bytes):
            size = min(lengths[self._taken], left)
            used.append(size)
            left -= size
            lengths[self._taken] -= size
            if lengths[self._taken]:
                break
            self._taken += 1
        self._taken = min(self._taken, len(lengths) - 1)
        starts = self._offsets
        self._offsets = starts[0] + sum(used[0::2]), starts[1] + sum(used[1::2])
        return used, starts

    @property
    def is_partly_read(self) -> bool:
        """Whether the run goes on of which something was read last."""
        return bool(self.runs.lengths[self._taken])

    def give_back(self, size: int) -> None:
        """Undo the end of a `read`: the piece ended within a character."""
        self.runs.lengths[self._taken] += size
        first, second = self._offsets
        self._offsets = (first, second - size) if self._taken % 2 else (first - size, second)

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left in any run."""
        return self._taken >= len(self.runs.lengths) - 1 and not self.runs.lengths[-1]


@dataclass(frozen=True, slots=True)
class _WaitingEvent:
    """An event while it waits: in memory, or at an offset of the file."""

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
        self._waiting: deque[_WaitingEvent | _Held | _Recorded] = deque()
        self._event_file = _EventFile(sink.folder)
        self._waiting_bytes = 0
        self._held_bytes = 0
        self._held_characters = 0
        self._is_finished = False
        self._is_woken = False

    def put(self, event: ExecutionEvent, characters: int = 0) -> None:
        """Queue an event, with how many characters it holds if those may be many."""
        with self._changed:
            self._waiting.append(self._keep(event, characters + _EVENT_CHARACTERS))
            self._changed.notify()

    def _keep(self, event: ExecutionEvent, characters: int) -> _WaitingEvent:
        if self._held_characters + characters > _HELD_CHARACTERS:
            # On a full disk it stays in memory after all, as it does once the caller is gone.
            with contextlib.suppress(OSError, ValueError):
                return _WaitingEvent(None, characters, self._event_file.write(event))
        self._held_characters += characters
        return _WaitingEvent(event, characters)

    def put_output(self, stream: StreamName, data: bytes, offsets: tuple[int, int]) -> None:
        """Queue output of one stream; the record has what comes from these offsets on."""
        number = STREAMS.index(stream)
        with self._changed:
            last = self._last_text(len(data), offsets)
            if isinstance(last, _Held):
                last.pieces[number].append(data)
            if isinstance(last, _Recorded) and last.is_full:
                last.runs.add_to_last(number, len(data))
            else:
                last.runs.add(number, len(data))
            self._changed.notify()

    def put_runs(self, runs: OutputRuns, offsets: tuple[int, int]) -> None:
        """Queue output of both streams, as `put_output` does."""
        with self._changed:
            last = self._last_text(len(runs), offsets)
            if isinstance(last, _Held):
                for pieces, data in zip(last.pieces, runs.data, strict=True):
                    pieces.append(data)
            if isinstance(last, _Recorded) and last.is_full:
                for number, data in enumerate(runs.data):
                    last.runs.add_to_last(number, len(data))
            else:
                last.runs.extend(runs.lengths)
            self._changed.notify()

    def _last_text(self, size: int, offsets: tuple[int, int]) -> _Held | _Recorded:
        """What the next text of this size joins: what waits in the record, or in memory."""
        self._waiting_bytes += size
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, _Recorded):
            return last
        if self._is_late():
            last = _Recorded(offsets)
            self._waiting.append(last)
            return last
        self._held_bytes += size
        if not isinstance(last, _Held):
            last = _Held(offsets)
            self._waiting.append(last)
        return last

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
        """Wait for the next event or pieces of text; None when time is up or all is taken."""
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
            if isinstance(first, _WaitingEvent):
                return self._read_waiting(first)
            texts = first.texts()
            self._held_bytes -= texts.left_bytes
            self._waiting_bytes -= texts.left_bytes
            return texts

    def _read_waiting(self, waiting: _WaitingEvent) -> ExecutionEvent:
        if waiting.event is None:
            return self._event_file.read(waiting.offset)
        self._held_characters -= waiting.characters
        return waiting.event

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

    @property
    def waiting_events(self) -> int:
        """How many events that are no text have not been taken."""
        with self._changed:
            return sum(isinstance(waiting, _WaitingEvent) for waiting in self._waiting)

    def _is_late(self) -> bool:
        is_full = self._held_bytes > _HELD_BYTES or len(self._waiting) > _HELD_ENTRIES
        return is_full and self._sink.is_on_disk

    def _read_recorded(self, recorded: _Recorded) -> OutputTexts:
        """Read the next runs from the record, or a piece of one; larger the later we are."""
        piece = min(max(self._waiting_bytes // 8, _SMALLEST_PIECE), _LARGEST_PIECE)
        lengths, starts = recorded.read(piece)
        data = [
            self._sink.read(stream, start, size) if (size := sum(lengths[number::2])) else b""
            for number, (stream, start) in enumerate(zip(STREAMS, starts, strict=True))
        ]
        number = (len(lengths) - 1) % 2
        if recorded.is_partly_read and (cut_off := incomplete_bytes(data[number])):
            recorded.give_back(cut_off)
            lengths[-1] -= cut_off
        self._waiting_bytes -= sum(lengths)
        if recorded.is_used_up:
            self._waiting.popleft()
        return OutputTexts(lengths, data, starts)
