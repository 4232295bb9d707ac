"""The agent's answer while it is written: complete blocks as Markdown, the open one as it is.

Pure: pieces of the answer come in, rows come out.
"""

from __future__ import annotations

from taskweaver_ext.console.markdown import Drawing
from taskweaver_ext.console.markdown_stream import MarkdownStream
from taskweaver_ext.console.rows import Painter, UnframedRow, framed
from taskweaver_ext.text.terminal import LineFolder

LIVE_LINES = 20
"""How many of the lines whose block is open are shown at most."""


class AnswerView:
    """One answer, without a frame.

    `feed` returns rows that will not change any more; `live_rows` are those that may.
    """

    def __init__(self, width: int, painter: Painter, *, is_markdown: bool) -> None:
        self._width = width
        self._painter = painter
        self._folder = LineFolder(keep_colors=False)
        self._stream = MarkdownStream(Drawing(width, painter.has_color)) if is_markdown else None
        self._has_begun = False

    def resize(self, width: int) -> None:
        """Take another width from now on."""
        self._width = width
        if self._stream is not None:
            self._stream.drawing = Drawing(width, self._painter.has_color)

    def feed(self, text: str) -> list[str]:
        """Take the next piece and return the rows it completed."""
        return self._begun([row for line in self._folder.feed(text) for row in self._drawn(line)])

    def close(self) -> list[str]:
        """Return what is left, and an empty row below it all."""
        rows = [row for line in self._folder.close() for row in self._drawn(line)]
        rows += self._stream.close() if self._stream is not None else []
        rows = self._begun(rows)
        return [*rows, ""] if self._has_begun else []

    def live_rows(self, height: int) -> list[str]:
        """What may still change, in at most `height` rows."""
        lines = [*self._stream.open_lines[-LIVE_LINES:]] if self._stream is not None else []
        lines.append(self._folder.partial_line)
        rows = [row for line in lines for row in self._plain(line)] if any(lines) else []
        return rows[-height:] if self._has_begun else ["", *rows][-height:]

    def _begun(self, rows: list[str]) -> list[str]:
        if not rows or self._has_begun:
            return rows
        self._has_begun = True
        return ["", *rows]

    def _drawn(self, line: str) -> list[str]:
        return self._plain(line) if self._stream is None else self._stream.feed(line)

    def _plain(self, line: str) -> list[str]:
        rows = framed(line, self._width, self._painter, first="", rest="", is_prose=True)
        return [UnframedRow(row) for row in rows]
