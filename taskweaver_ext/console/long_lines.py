"""Lines that are too long to be kept: their pieces, as one line of which the beginning is left."""

from __future__ import annotations

import re

from taskweaver_ext.text.terminal import CutLine

_COLOR = re.compile("(\x1b\\[[0-9;:]*m)")


class LongLine(str):
    """The beginning of a line."""

    missing_chars: int
    """How many characters follow it."""

    @staticmethod
    def of(start: str, missing_chars: int) -> LongLine:
        """Make the line of its beginning."""
        line = LongLine(start)
        line.missing_chars = missing_chars
        return line


class LongLines:
    """Takes lines, some of them in pieces, and gives whole ones, of which only few are long."""

    def __init__(self) -> None:
        self._start: str | None = None
        self._missing_chars = 0

    def feed(self, lines: list[str]) -> list[str]:
        """Take the next lines and return those that are complete."""
        if self._start is None and CutLine not in map(type, lines):
            return lines
        whole: list[str] = []
        for line in lines:
            if self._start is None:
                self._start = line
            else:
                self._missing_chars += visible_chars(line)
            if not isinstance(line, CutLine):
                whole += self.close()
        return whole

    def close(self) -> list[str]:
        """Return the line of which pieces have come, if there is one: no more will."""
        start, missing = self._start, self._missing_chars
        self._start, self._missing_chars = None, 0
        if start is None:
            return []
        return [LongLine.of(start, missing) if missing else start]


def visible_chars(line: str) -> int:
    """How many characters a line has besides its colours."""
    return len(_COLOR.sub("", line)) if "\x1b" in line else len(line)


def beginning_of(line: str, max_chars: int) -> tuple[str, int]:
    """Return the beginning of a line with its colours, and how many characters are left out."""
    kept: list[str] = []
    room = max_chars
    hidden = line.missing_chars if isinstance(line, LongLine) else 0
    for piece in _COLOR.split(line):
        if piece.startswith("\x1b"):
            kept.append(piece)
        else:
            kept.append(piece[:room])
            hidden += len(piece[room:])
            room -= len(kept[-1])
    return "".join(kept), hidden
