"""The last things an execution has shown: they can still be replaced or taken away.

What has gone into a terminal's scrollback is there for good. The end of the output is kept
from it for a while, so that a display can be updated where it stands, and `clear_output` clears.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from taskweaver_ext.ces.execution.results import StreamName


@dataclass(slots=True)
class Item:
    """A line, or a display of several."""

    stream: StreamName
    lines: list[str]
    display_id: str | None = None
    is_prose: bool = False
    """Whether the lines are sentences of ours, which are cut between words."""
    is_display: bool = False
    """Whether the lines are a table, a picture or the like, of which a part says little."""


class OpenItems:
    """Items that may still change, in order; at most so many lines."""

    def __init__(self, max_lines: int) -> None:
        self._max_lines = max_lines
        self._items: deque[Item] = deque()
        self._line_count = 0

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def add(self, item: Item) -> Iterator[Item]:
        """Add the next item and yield those that have to make room, oldest first."""
        self._items.append(item)
        self._line_count += len(item.lines)
        return self._pop_beyond(self._max_lines)

    def add_lines(self, stream: StreamName, lines: list[str]) -> Iterator[Item]:
        """Add lines, and yield what has to make room; of many lines at once most never stay."""
        passing = len(lines) - self._max_lines
        if passing > 0:
            yield from self.release()
            yield Item(stream, lines[:passing])
            lines = lines[passing:]
        for line in lines:
            yield from self.add(Item(stream, [line]))

    def replace(self, display_id: str, lines: list[str]) -> bool:
        """Show something else in place of a display; False when it is not here."""
        found = [item for item in self._items if item.display_id == display_id]
        for item in found:
            self._line_count += len(lines) - len(item.lines)
            item.lines = lines
        return bool(found)

    def release(self) -> Iterator[Item]:
        """Yield all of them: they are final now."""
        return self._pop_beyond(0)

    def clear(self) -> None:
        """Take all of them away."""
        self._items.clear()
        self._line_count = 0

    def _pop_beyond(self, max_lines: int) -> Iterator[Item]:
        while self._items and self._line_count > max_lines:
            item = self._items.popleft()
            self._line_count -= len(item.lines)
            yield item
