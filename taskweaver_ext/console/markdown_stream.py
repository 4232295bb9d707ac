"""Markdown that is still being written: drawn block by block, as soon as a block is complete.

Pure, and linear in the text. A block is complete once something follows that cannot belong to it;
until then its source is shown as it is, where it can still be replaced.
"""

from __future__ import annotations

import re

from taskweaver_ext.console.markdown import MAX_CHARS, Drawing

_PIECE_CHARS = MAX_CHARS // 2
"""A block that is longer is drawn in pieces."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LIST_ITEM = re.compile(r" {0,3}(?:[-+*]|[0-9]{1,9}[.)])(?:\s|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")


class MarkdownStream:
    """Draws a text that comes in lines; `open_lines` are those that wait for their block's end."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        """How it is drawn; may be changed while it is."""
        self.open_lines: list[str] = []
        self._open_chars = 0
        self._fence = ""
        """What ends the code that is being written."""
        self._needs_gap = False
        """Whether an empty row comes before the next block."""

    def feed(self, line: str) -> list[str]:
        """Take the next complete line and return the rows of blocks that it completes."""
        if self._fence:
            self._add(line)
            if _closes(line, self._fence):
                self._fence = ""
                return self.close() if not self._is_in_list() else []
            return self.close() if self._open_chars > _PIECE_CHARS else []
        rows = self.close() if self._begins_another(line) else []
        if not line.strip() and not self.open_lines:
            return rows
        self._add(line)
        if fence := _FENCE.match(line):
            self._fence = fence[1]
        elif _HEADING.match(line) and len(self.open_lines) == 1:
            rows += self.close()
        return rows

    def close(self) -> list[str]:
        """Return the rows of what is open: it is complete now."""
        lines, self.open_lines, self._open_chars = self.open_lines, [], 0
        text = "\n".join(lines)
        is_split = bool(self._fence and lines)
        if is_split:  # what follows of the same code is code, too
            text += f"\n{self._fence}"
            self._add(next(line for line in lines if _FENCE.match(line)))
        rows = self.drawing.rows(text) if text.strip() else []
        gap = [""] if rows and self._needs_gap else []
        self._needs_gap = (self._needs_gap or bool(rows)) and not is_split
        return [*gap, *rows]

    def _add(self, line: str) -> None:
        self.open_lines.append(line)
        self._open_chars += len(line) + 1

    def _begins_another(self, line: str) -> bool:
        if self._open_chars > _PIECE_CHARS:
            return True
        if not line.strip() or not self.open_lines or self.open_lines[-1].strip():
            return _HEADING.match(line) is not None and not self._is_in_list()
        return not line.startswith((" ", "\t")) and not (
            self._is_in_list() and _LIST_ITEM.match(line)
        )

    def _is_in_list(self) -> bool:
        return bool(self.open_lines) and _LIST_ITEM.match(self.open_lines[0]) is not None


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(fence) and not stripped.strip(fence[0])
