"""A text that grows: a thought, a plan, code. Its lines become rows as they are completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskweaver_ext.console.rows import CYAN, DIM, ITEM, OUTPUT, Painter, framed
from taskweaver_ext.text.terminal import LineFolder

if TYPE_CHECKING:
    from taskweaver_ext.console.highlighting import LineHighlighter

LIVE_ROWS = 4
"""How much of a line that is still being written is shown."""


class TextBlock:
    """One labelled text under the frame: ` ├─► [label] text`.

    `feed` returns rows that will not change any more; `live_rows` are those that may.
    Code of more than one line begins below its label, where its indentation is true.
    """

    def __init__(
        self,
        label: str,
        width: int,
        painter: Painter,
        *,
        color: str = "",
        language: str = "",
        mark: str = ITEM,
    ) -> None:
        """Begin without a text.

        Args:
            language: Of code; empty for words.
            mark: What stands before the label.
        """
        self._mark = mark
        self.width = width
        self.label = label
        self._painter = painter
        self._color = color
        self._highlighter = _highlighter(language) if language and painter.has_color else None
        self._is_code = bool(language)
        self._folder = LineFolder(keep_colors=False)
        self._held: list[str] = []
        """Complete lines that wait for another: the first of code, and empty ones."""
        self._has_begun = False

    def feed(self, text: str) -> list[str]:
        """Take the next piece and return the rows it completed."""
        rows: list[str] = []
        for line in self._folder.feed(text):
            rows += self._receive(line)
        if self._held and self._folder.partial_line:
            rows += self._release(is_last=False)
        return rows

    def close(self) -> list[str]:
        """Return what is left; the label alone when nothing was ever said."""
        rows: list[str] = []
        for line in self._folder.close():
            rows += self._receive(line)
        while self._held and not self._held[-1].strip():
            self._held.pop()
        rows += self._release(is_last=True)
        if not self._has_begun:
            rows += self._frame("")
        return rows

    def live_rows(self) -> list[str]:
        """What may still change."""
        partial = self._folder.partial_line
        if not partial and not self._held:
            return []
        line = partial or self._held[0]
        return self._rows_of(line, is_first=not self._has_begun)[-LIVE_ROWS:]

    def _receive(self, line: str) -> list[str]:
        is_blank = not line.strip()
        is_at_start = not self._has_begun and not self._held
        if is_blank and is_at_start:
            return []  # nothing is to be seen of empty lines at the start
        if is_blank or (self._is_code and is_at_start):
            self._held.append(line)
            return []
        return self._release(is_last=False) + self._frame(line)

    def _release(self, *, is_last: bool) -> list[str]:
        rows: list[str] = []
        has_more_lines = len(self._held) > 1 or not is_last
        if self._is_code and not self._has_begun and self._held and has_more_lines:
            rows += self._rows_of("", is_first=True)
            self._has_begun = True
        for line in self._held:
            rows += self._frame(line)
        self._held = []
        return rows

    def _frame(self, line: str) -> list[str]:
        colored = self._highlighter.color(line) if self._highlighter else line
        rows = self._rows_of(colored, is_first=not self._has_begun)
        self._has_begun = True
        return rows

    def _rows_of(self, line: str, *, is_first: bool) -> list[str]:
        first = f"{self._mark}[{self.label}] " if is_first else OUTPUT
        return framed(
            line,
            self.width,
            self._painter,
            first=first if line else first.rstrip(),
            first_color=CYAN if is_first else DIM,
            color=self._color,
            is_prose=not self._is_code,
        )


def _highlighter(language: str) -> LineHighlighter:
    # A prompt need not wait for what the first code needs.
    from taskweaver_ext.console.highlighting import LineHighlighter

    return LineHighlighter(language)
