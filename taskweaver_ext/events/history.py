"""The numbered events of a session, as many of the last ones as the bounds allow.

No threads here: the emitter's lock guards its history.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import replace

from taskweaver_ext.events.types import EventScope, SessionEventType, TaskWeaverEvent


class EventHistory:
    """Number events 1, 2, 3, ... and keep the last of them, bounded by count and by text."""

    def __init__(self, max_events: int, max_text_bytes: int, last_seq: int = 0) -> None:
        """Begin after the event `last_seq`, which is kept elsewhere, if at all."""
        self._max_events = max_events
        self._max_text_bytes = max_text_bytes
        self._kept: deque[tuple[TaskWeaverEvent, int]] = deque()
        self._text_bytes = 0
        self._last_at = 0.0
        self.last_seq = last_seq
        """The number of the newest event, 0 before the first."""

    @property
    def first_kept_seq(self) -> int:
        """The number of the oldest event that is kept, or of the next one where none is."""
        return self.last_seq + 1 - len(self._kept)

    @property
    def is_over_bounds(self) -> bool:
        """Whether more is kept than should be, because it was not allowed to be forgotten."""
        return len(self._kept) > self._max_events or self._text_bytes > self._max_text_bytes

    def numbered(self, event: TaskWeaverEvent) -> TaskWeaverEvent:
        """Return `event` with the next number and the time, which never goes back."""
        return replace(event, seq=self.last_seq + 1, at=max(time.time(), self._last_at))

    def append(self, event: TaskWeaverEvent) -> None:
        """Keep an event that has the next number."""
        size = _text_bytes(event)
        self._text_bytes += size
        self._kept.append((event, size))
        self.last_seq, self._last_at = event.seq, event.at

    def forget(self, up_to_seq: int) -> None:
        """Drop the oldest events, down to the bounds, but none after `up_to_seq`.

        The newest stays, whatever its size.
        """
        while self.is_over_bounds and len(self._kept) > 1 and self._kept[0][0].seq <= up_to_seq:
            self._text_bytes -= self._kept.popleft()[1]

    def event_after(self, seq: int) -> TaskWeaverEvent:
        """Return what comes after number `seq`: the next event, or which ones were forgotten."""
        first_kept = self.first_kept_seq
        if seq + 1 >= first_kept:
            return self._kept[seq + 1 - first_kept][0]
        return missed_events(seq + 1, first_kept - 1)

    def events_after(self, seq: int, max_bytes: int) -> list[TaskWeaverEvent]:
        """Return the kept events after number `seq`, at least one, of about so much text."""
        events: list[TaskWeaverEvent] = []
        for index in range(max(0, seq + 1 - self.first_kept_seq), len(self._kept)):
            event, size = self._kept[index]
            max_bytes -= size
            if events and max_bytes < 0:
                break
            events.append(event)
        return events


def missed_events(first_seq: int, last_seq: int) -> TaskWeaverEvent:
    """Return what stands in the place of events that are kept nowhere."""
    return TaskWeaverEvent(
        EventScope.session,
        SessionEventType.session_events_missed,
        None,
        None,
        f"{last_seq - first_seq + 1} earlier events are no longer kept.",
        {"first_seq": first_seq, "last_seq": last_seq},
        seq=last_seq,
    )


def _text_bytes(event: TaskWeaverEvent) -> int:
    """Return what keeping the text of `event` costs; text that is there twice counts once."""
    size = 0
    seen: set[int] = set()  # a role may attach a list that holds itself
    parts: list[object] = [event.msg, event.extra]
    while parts:
        part = parts.pop()
        if not isinstance(part, str | dict | list | tuple) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, str):
            size += sys.getsizeof(part)
        else:
            parts.extend(part.values() if isinstance(part, dict) else part)
    return size
