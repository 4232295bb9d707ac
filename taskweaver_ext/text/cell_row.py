"""A line laid out in terminal cells, so that writing over it replaces what was there.

Pure, and linear in what is written: a cell is never moved, and never grows without bound.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import groupby

TAB_WIDTH = 8

_MAX_MARKS_PER_CELL = 30
# Runs of characters known to fill one cell each; any other character comes alone.
_RUNS = re.compile("[ -~\xa1-\xac\xae-\u02ff\u2500-\u259f\u2800-\u28ff]+|.", re.DOTALL)


class CellRow:
    """One line and the cursor in it.

    A wide character fills its cell and leaves the next one empty; a character without a
    width of its own shares the cell of the one before.
    """

    def __init__(self) -> None:
        self.column = 0
        self._cells: list[str] = []
        self._styles: list[str] = []

    def write(self, text: str, style: str, limit: int) -> int:
        """Write `text` at the cursor up to column `limit`; return how many characters fitted."""
        position = 0
        for run in _RUNS.findall(text):
            width = _width(run[0])
            room = max(0, limit - self.column)
            if run == "\t":
                # Moves over what is there without erasing it.
                self.column += min(room, TAB_WIDTH - self.column % TAB_WIDTH)
            elif width == 2:
                if room < 2:
                    return position
                self._put([run, ""], style)
            elif width == 1 or not self._share_cell(run):
                self._put(list(run[:room]), style)
                if room < len(run):
                    return position + room
            position += len(run)
        return position

    @property
    def width(self) -> int:
        """How many cells have been filled."""
        return len(self._cells)

    def move_back(self, cells: int) -> None:
        self.column = max(0, self.column - cells)

    def erase_from_cursor(self) -> None:
        if 0 < self.column < len(self._cells) and self._cells[self.column] == "":
            self._cells[self.column - 1] = " "
        del self._cells[self.column :]
        del self._styles[self.column :]

    def trim(self) -> None:
        """Forget trailing spaces, unless they are coloured."""
        while self._cells and self._cells[-1] == " " and not self._styles[-1]:
            self._cells.pop()
            self._styles.pop()

    def runs(self) -> list[tuple[str, str]]:
        """The line as (style, text), left to right."""
        runs = groupby(zip(self._styles, self._cells, strict=True), key=lambda cell: cell[0])
        return [(style, "".join(text for _, text in cells)) for style, cells in runs]

    def _put(self, cells: list[str], style: str) -> None:
        if not cells:
            return
        start, end = self.column, self.column + len(cells)
        if start > len(self._cells):
            gap = start - len(self._cells)
            self._cells += [" "] * gap
            self._styles += [""] * gap
        # Half of a wide character cannot stay.
        if 0 < start < len(self._cells) and self._cells[start] == "":
            self._cells[start - 1] = " "
        if end < len(self._cells) and self._cells[end] == "":
            self._cells[end] = " "
        self._cells[start:end] = cells
        self._styles[start:end] = [style] * len(cells)
        self.column = end

    def _share_cell(self, mark: str) -> bool:
        column = min(self.column, len(self._cells)) - 1
        if column > 0 and self._cells[column] == "":
            column -= 1
        # Appending to a cell copies it: without a bound, endless marks would take for ever.
        if column < 0 or len(self._cells[column]) > _MAX_MARKS_PER_CELL:
            return False
        self._cells[column] += mark
        return True


@lru_cache(maxsize=4096)
def _width(character: str) -> int:
    """How many cells a terminal gives to a character."""
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    is_jamo_vowel_or_final = "\u1160" <= character <= "\u11ff"
    if is_jamo_vowel_or_final or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0 if character != "\xad" else 1
    return 1
