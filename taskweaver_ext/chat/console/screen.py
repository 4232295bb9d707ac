"""Terminals and pipes as places for rows.

A terminal keeps finished rows in its scrollback; below them a few live rows are drawn over
again and again, each change in one write, nothing erased that stays the same. Every row is
written with line wrapping off: a character that is wider than we think is cut off at the
edge and cannot push the rows below it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
from collections.abc import Iterable
from typing import Protocol

from taskweaver_ext.chat.console.rows import NO_LIMIT, cell_width
from taskweaver_ext.text.terminal import strip_terminal

_BEGIN = "\x1b[?2026h\x1b[?7l"
"""Show nothing until the end of the update; do not wrap lines."""
_END = "\x1b[?7h\x1b[?2026l"
_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"
_ERASE_REST_OF_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_ROWS_PER_WRITE = 1000


class Screen(Protocol):
    """Where rows go; one thread uses it."""

    def size(self) -> tuple[int, int]:
        """Columns and rows that can be used, as they are now."""

    def update(self, finished: Iterable[str], live: list[str]) -> None:
        """Add finished rows, and show `live` below them in place of the live rows before."""

    def clear(self) -> None:
        """Begin again at the top."""


class TerminalScreen:
    """A terminal that can move its cursor."""

    def __init__(
        self, descriptor: int, encoding: str = "utf-8", *, is_reflowing: bool = False
    ) -> None:
        """Draw on a terminal.

        Args:
            is_reflowing: Whether it wraps rows that are there already when it is narrowed.
        """
        self._descriptor = descriptor
        self._encoding = encoding
        self._is_reflowing = is_reflowing
        self._live: list[str] = []

    def size(self) -> tuple[int, int]:
        """Columns and rows that can be used, as they are now.

        The last column is not: a cursor that has filled it stays there, and erasing the rest of
        the row would take the character with it.
        """
        try:
            columns, rows = os.get_terminal_size(self._descriptor)
        except OSError:  # it is gone; we will hear of that soon
            columns = rows = 0
        return (columns or 80) - 1, rows or 24

    def update(self, finished: Iterable[str], live: list[str]) -> None:
        """Add finished rows, and show `live` below them in place of the live rows before."""
        rows = list(finished)
        if not rows and live == self._live:
            return
        text = [_BEGIN, "\r"]
        height = self._live_height()
        if height > 1:
            text.append(f"\x1b[{height - 1}A")
        is_reflowed = height > len(self._live)
        if is_reflowed:  # rows that are written over would stay parts of longer ones
            text.append(_ERASE_BELOW)
        for row in rows:
            text.append(f"{row}{_ERASE_REST_OF_LINE}\r\n")
        text.append(self._redrawn(live, is_moved=bool(rows) or is_reflowed))
        text.append(_END)
        if bool(live) != bool(self._live):
            text.append(_HIDE_CURSOR if live else _SHOW_CURSOR)
        self._live = live
        self._write("".join(text))

    def clear(self) -> None:
        """Begin again at the top; the scrollback stays."""
        self._live = []
        self._write(f"\x1b[H{_ERASE_BELOW}")

    def _live_height(self) -> int:
        """How many rows of the screen the live rows take now."""
        if not self._is_reflowing:
            return len(self._live)
        columns = self.size()[0] + 1
        widths = [cell_width(strip_terminal(row)) for row in self._live]
        return sum(max(1, -(-width // columns)) for width in widths)

    def _redrawn(self, live: list[str], *, is_moved: bool) -> str:
        """Write over the old live rows, whose place may have moved."""
        if not live:
            return _ERASE_BELOW
        has_more_below = is_moved or len(self._live) > len(live)
        drawn = []
        for number, row in enumerate(live):
            is_same = not is_moved and number < len(self._live) and self._live[number] == row
            # What is below can only be erased from the end of the last row.
            is_needed = has_more_below and number == len(live) - 1
            drawn.append(f"{row}{_ERASE_REST_OF_LINE}" if is_needed or not is_same else "")
        return "\r\n".join(drawn) + (_ERASE_BELOW if has_more_below else "")

    def _write(self, text: str) -> None:
        write_all(self._descriptor, text.encode(self._encoding, "replace"))


class PlainScreen:
    """A pipe, a file, or a terminal that can only print: live rows are not shown."""

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._encoding = encoding

    def size(self) -> tuple[int, int]:
        """Lines are never cut, except on a terminal."""
        if not os.isatty(self._descriptor):
            return NO_LIMIT, 24
        size = shutil.get_terminal_size()
        return size.columns, size.lines

    def update(self, finished: Iterable[str], live: list[str]) -> None:
        """Add finished rows."""
        rows = list(finished)
        for start in range(0, len(rows), _ROWS_PER_WRITE):
            text = "\n".join(rows[start : start + _ROWS_PER_WRITE]) + "\n"
            with contextlib.suppress(OSError):  # nobody reads it, or the disk is full: work goes on
                write_all(self._descriptor, text.encode(self._encoding, "replace"))

    def clear(self) -> None:
        """Do nothing: printed is printed."""


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything, however often it takes; raises OSError when the other side is gone."""
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
