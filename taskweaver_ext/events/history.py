"""The numbered events of a session, as many of the last ones as the bounds allow.

No threads here: the emitter's lock guards its history.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from taskweaver_ext.events.types import EventScope, SessionEventType, TaskWeaverEvent


class EventHistory:
    """Number events 1, 2, 3, ... and keep the last of them, bounded by count and by text."""

    def __init__(self, max_events: int, max_text_bytes: int) -> None:
        self._max_events = max_events
        self._max_text_bytes = max_text_bytes
        self._kept: deque[tuple[TaskWeaverEvent, int]] = deque()
        self._text_bytes = 0

    @property
    def last_seq(self) -> int:
        """The number of the newest event, 0 before the first."""
        return self._kept[-1][0].seq if self._kept else 0

    @property
    def is_over_bounds(self) -> bool:
        """Whether more is kept than should be, because it was not allowed to be forgotten."""
        return len(self._kept) > self._max_events or self._text_bytes > self._max_text_bytes

    def append(self, event: TaskWeaverEvent) -> None:
        """Give `event` the next number and keep it."""
        size = _text_bytes(event)
        self._text_bytes += size
        self._kept.append((replace(event, seq=self.last_seq + 1), size))

    def forget(self, up_to_seq: int) -> None:
        """Drop the oldest events, down to the bounds, but none after `up_to_seq`.

        The newest stays, whatever its size, because it carries the count.
        """
        while self.is_over_bounds and len(self._kept) > 1 and self._kept[0][0].seq <= up_to_seq:
            self._text_bytes -= self._kept.popleft()[1]

    def event_after(self, seq: int) -> TaskWeaverEvent:
        """Return what comes after number `seq`: the next event, or which ones were forgotten."""
        first_kept = self._kept[0][0].seq
        if seq + 1 >= first_kept:
            return self._kept[seq + 1 - first_kept][0]
        return TaskWeaverEvent(
            EventScope.session,
            SessionEventType.session_events_missed,
            None,
            None,
            f"{first_kept - seq - 1} earlier events are no longer kept.",
            {"first_seq": seq + 1, "last_seq": first_kept - 1},
            seq=first_kept - 1,
        )


def _text_bytes(event: TaskWeaverEvent) -> int:
    """Return what keeping the text of `event` costs; text that is there twice counts once."""
    texts = {id(text): text for part in (event.msg, event.extra) for text in _texts_in(part)}
    return sum(map(sys.getsizeof, texts.values()))


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts_in(part)
