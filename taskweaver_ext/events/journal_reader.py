"""Read the journal of a session, also while another process writes it.

Nothing is kept in memory but the piece that is being read. Numbers grow from line to line, so a
place is found by halving the file. A torn last line is not there yet; lines that make no sense are
skipped and counted, and a `session_events_missed` event stands where events are missing. Events of
kinds that only a newer version knows are passed over.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import Any

from taskweaver_ext.ces.execution.event_json import UnknownKindError
from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.history import missed_events
from taskweaver_ext.events.journal_lines import (
    EPOCH_START,
    FORMAT,
    JOURNAL,
    LONGEST_HEADER,
    OUTPUT_START,
    RECORDS,
    RecordTexts,
    event_of_line,
    parsed_object,
    seq_of,
)
from taskweaver_ext.events.lines_of_file import LinesOfFile
from taskweaver_ext.events.types import EventType, RoundEventType, TaskWeaverEvent
from taskweaver_ext.machine.private_files import open_to_read

_NEAR_BYTES = 1 << 16
"""A place is found when it is at most so much further on."""
_LOOK_AHEAD_LINES = 16
"""A number that is too high for its place shows by what follows it."""
_PROBED_LINES = 5
_BYTES_OF_AN_EVENT = 200
"""What an event counts besides its text."""


class JournalReader(Closeable):
    """The journal in a session's folder; close it, or use it in a `with` block.

    Belongs to one thread.
    """

    def __init__(self, folder: Path) -> None:
        """Open a journal.

        Raises:
            SessionError: There is none, it cannot be read, or its format is newer.
        """
        try:
            self._descriptor = open_to_read(folder / JOURNAL)
        except OSError as error:
            raise SessionError(
                f"The folder {folder} has no journal that can be read ({error.strerror})."
            ) from error
        self._lines = LinesOfFile(self._descriptor)
        self._texts = RecordTexts(folder / RECORDS)
        self.skipped_lines = 0
        """How many lines made no sense so far."""
        try:
            header = self._read_header(folder)
        except BaseException:
            self.close()
            raise
        self.session_id = str(header.get("session_id") or folder.name)
        self.project = str(header.get("project") or "")
        created_at = header.get("created_at")
        self.created_at = float(created_at) if isinstance(created_at, int | float) else 0.0
        """When the session began, in seconds since 1970; 0 if that is not known."""

    def _read_header(self, folder: Path) -> dict[str, Any]:
        line = next(iter(self._lines.forward(0)), (0, b""))[1]
        if not line:
            raise SessionError(f"The journal in {folder} is empty.")
        header = parsed_object(line[:LONGEST_HEADER]) or {}
        version = header.get("format", FORMAT)
        if isinstance(version, int) and version > FORMAT:
            raise SessionError(
                f"The journal in {folder} has the format {version}; this version of"
                f" taskweaver-ext knows {FORMAT}. Install a newer one to use this session."
            )
        return header

    @property
    def missing_texts(self) -> int:
        """How many texts of output were not in their records so far, or not as a whole."""
        return self._texts.missing

    @property
    def complete_bytes(self) -> int:
        """The size of the file by now, without a torn last line."""
        return self._lines.end()

    @property
    def last_seq(self) -> int:
        """The number of the newest event by now, 0 before the first."""
        numbers = (seq_of(line) for _, line in self._lines.backward())
        return max(islice((one for one in numbers if one), _PROBED_LINES), default=0)

    @cached_property
    def epoch(self) -> int:
        """How many processes have worked on the session."""
        for line in self._lines.backward_beginning_with(EPOCH_START):
            if epoch := _epoch_of(line):
                return epoch
        return 1

    def last_seq_of(self, epoch: int) -> int:
        """The number of the newest event that a process of that epoch, or one before it, wrote."""
        last = 0
        for _, line in self._lines.backward():
            last = last or seq_of(line) or 0
            if last and line.startswith(EPOCH_START):
                if _epoch_of(line) <= epoch:
                    return last
                last = 0
        return last

    def events(self, after: int = 0, *, with_output: bool = True) -> Iterator[TaskWeaverEvent]:
        """Give the events after number `after`, oldest first, up to what is there by now.

        Args:
            with_output: Whether to give `post_execution_output` too, filled in from the records;
                otherwise such lines are not even parsed.
        """
        return self._events(self._offset_of(after), after, with_output=with_output)

    def events_of(self, *kinds: EventType) -> Iterator[TaskWeaverEvent]:
        """Give the events of some kinds, oldest first, without parsing the others."""
        last = 0
        for line in self._lines.beginning_with(_starts_of(kinds)):
            with suppress(UnknownKindError):
                event = event_of_line(line, self._texts)
                if event is None or not last < event.seq <= self.last_seq:
                    self.skipped_lines += 1
                    continue
                last = event.seq
                yield event

    def numbers_of(self, kind: EventType) -> list[int]:
        """Give the numbers of all events of a kind, oldest first."""
        [start] = _starts_of([kind])
        numbers = [seq_of(line) for line in self._lines.backward_beginning_with(start)]
        return [number for number in reversed(numbers) if number]

    @property
    def has_open_round(self) -> bool:
        """Whether a round has begun and not ended by now."""
        started, ended = (
            next((seq_of(line) for line in self._lines.backward_beginning_with(start)), 0) or 0
            for start in _starts_of([RoundEventType.round_start, RoundEventType.round_end])
        )
        return started > ended

    def last_page(self, max_events: int) -> list[TaskWeaverEvent]:
        """Give the newest events, oldest first, without reading the rest."""
        if max_events <= 0:
            return []
        numbered = (place for place in self._lines.backward() if seq_of(place[1]))
        first = deque(islice(numbered, max_events), maxlen=1)
        if not first:
            return []
        offset, line = first[0]
        before = (seq_of(line) or 1) - 1
        return list(deque(self._events(offset, before), maxlen=max_events))

    def read(self, after: int, max_bytes: int) -> list[TaskWeaverEvent]:
        """Give the next events after number `after`, at least one, of about so much text."""
        events: list[TaskWeaverEvent] = []
        for event in self.events(after):
            max_bytes -= len(event.msg) + _BYTES_OF_AN_EVENT
            if events and max_bytes < 0:
                break
            events.append(event)
        return events

    def close(self) -> None:
        """Let go of the files."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        self._texts.close()

    def _events(
        self, offset: int, after: int, *, with_output: bool = True
    ) -> Iterator[TaskWeaverEvent]:
        told = after
        for seq, line in self._numbered(offset, after):
            event = None
            if with_output or not line.startswith(OUTPUT_START):
                with suppress(UnknownKindError):  # it is there, for those who know what it is
                    event = event_of_line(line, self._texts)
                    if event is None or event.seq != seq:
                        self.skipped_lines += 1
                        continue
            if seq > told + 1:
                yield missed_events(told + 1, seq - 1)
            told = seq
            if event is not None:
                yield event

    def _numbered(self, offset: int, after: int) -> Iterator[tuple[int, bytes]]:
        """Give the lines of events whose numbers grow, as they must."""
        lines = (line for _, line in self._lines.forward(offset))
        ahead: deque[bytes] = deque()
        last = after
        while line := ahead.popleft() if ahead else next(lines, b""):
            seq = seq_of(line)
            if seq is None or seq <= last:
                self.skipped_lines += seq is None and _is_nonsense(line)
                continue
            if seq > last + 1:
                ahead.extend(islice(lines, _LOOK_AHEAD_LINES - len(ahead)))
                if any(last < (seq_of(one) or 0) < seq for one in ahead):
                    self.skipped_lines += 1
                    continue
            last = seq
            yield seq, line

    def _offset_of(self, after: int) -> int:
        """Return a place at or shortly before the first event after number `after`."""
        low, high = 0, self.complete_bytes if after else 0
        while high - low > _NEAR_BYTES:
            middle = (low + high) // 2
            probed = self._probe(middle, high)
            if probed is not None and probed[1] <= after:
                low = probed[0]
            else:
                high = middle
        return low

    def _probe(self, offset: int, end: int) -> tuple[int, int] | None:
        """Return where the first whole line after a place begins, and about which number it has."""
        start = 0
        numbers: list[int] = []
        for place, line in self._lines.forward(offset, is_within_line=True):
            if place >= end or len(numbers) == _PROBED_LINES:
                break
            start = start or place
            if (seq := seq_of(line)) is not None:
                numbers.append(seq)
        return (start, median_low(numbers)) if numbers else None


def _starts_of(kinds: Iterable[EventType]) -> tuple[bytes, ...]:
    """How the lines of events of these kinds begin."""
    return tuple(f'{{"event":"{kind.value}",'.encode() for kind in kinds)


def _epoch_of(line: bytes) -> int:
    """The epoch that a line begins; 0 if it makes no sense."""
    epoch = (parsed_object(line) or {}).get("epoch")
    return epoch if isinstance(epoch, int) and 0 < epoch < 1 << 31 else 0


def _is_nonsense(line: bytes) -> bool:
    """Whether a line that is no event is nothing else of ours either."""
    values = parsed_object(line)
    return values is None or not ("format" in values or "epoch" in values)
