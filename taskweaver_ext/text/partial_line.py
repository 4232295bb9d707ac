"""A line that may still change: it grows, and once something is written over it, it has cells."""

from __future__ import annotations

import sys

from taskweaver_ext.text.cell_row import CellRow
from taskweaver_ext.text.colors import paint


class PartialLine:
    """One line and the cursor in it."""

    def __init__(self) -> None:
        self.is_used = False
        """Whether the program has written or ended it; not if it was only passed by."""
        self._runs: list[tuple[str, str]] = []  # (style, text), while the line only grows
        self._length = 0
        self._row: CellRow | None = None  # the line instead, once it was written over
        self._is_returned = False

    @property
    def text(self) -> str:
        """What is to be seen of it, with its colours."""
        return paint(self._row.runs() if self._row else self._runs)

    @property
    def is_rewritten(self) -> bool:
        """Whether something was written over it, as bars do."""
        return self._row is not None

    @property
    def column(self) -> int:
        """Where the next character goes."""
        return self._spread().column

    @column.setter
    def column(self, column: int) -> None:
        row = self._spread()
        row.column = min(column, row.width)

    def write(self, text: str, position: int, style: str, limit: int) -> int:
        """Write `text` from `position` on as far as `limit` allows; return where that is."""
        self.is_used = True
        if self._row or self._is_returned:
            return position + self._spread().write(text[position:], style, limit)
        piece = text[position : position + limit - self._length]
        self._runs.append((style, piece))
        self._length += len(piece)
        return position + len(piece)

    def return_to_start(self) -> None:
        """Go to the start; nothing is rewritten until text follows."""
        self._is_returned = True

    def move_back(self, cells: int) -> None:
        """Go left, at most to the start."""
        self._spread().move_back(cells)

    def erase(self, *, is_whole: bool) -> None:
        """Erase what follows, or everything, after which the line begins again."""
        self._is_returned = self._is_returned or is_whole
        # Programs erase behind the end of a growing line all the time; nothing is there.
        if self._row or self._is_returned:
            self._spread().erase_from_cursor()

    def finish(self) -> str:
        """Return what is left of it."""
        if self._row:
            self._row.trim()
        return self.text

    def _spread(self) -> CellRow:
        """Lay the line out in cells, the cursor where the next character goes."""
        if self._row is None:
            self._row = CellRow()
            for style, text in self._runs:
                self._row.write(text, style, sys.maxsize)
        if self._is_returned:
            self._row.column = 0
            self._is_returned = False
        return self._row
