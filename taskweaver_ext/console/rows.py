"""Rows of a screen: text cut to its width, under the frame of the post it belongs to.

Pure. Text comes in lines that a `LineFolder` released, so that nothing in it but plain
colours could drive a terminal; here it is only measured, cut and coloured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.cells import get_character_cell_size

TOP = " ╭─► "
ITEM = " ├─► "
OUTPUT = " │   "
ERROR_OUTPUT = " │ ! "
MESSAGE = " ├──● "
END = " ╰──● "

NO_LIMIT = 1_000_000_000
"""The width of a screen that never needs a line to be cut, such as a pipe."""

RED = "31"
GREEN = "32"
YELLOW = "33"
CYAN = "36"
BOLD = "1"
DIM = "2"

_TAB_WIDTH = 8
_RESET = "\x1b[0m"
_MAX_PATH_CHARS = 4096
_FRAME_LIKE = re.compile("[\\s\u2500-\u25ff\u2800-\u28ff]")
_COMMAND = re.compile("`[^`]{1,1000}`")
_JOINED = "\0"
"""Stands for a space at which a line is not cut; no text that is shown has one."""
_COLOR = re.compile("(\x1b\\[[0-9;:]*m)")


class UnframedRow(str):
    """A finished row without a frame, which the terminal may wrap where it is too wide."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Painter:
    """Colours text, or leaves it as it is."""

    has_color: bool

    def paint(self, text: str, color: str) -> str:
        """Give `text` a colour (as in `ESC [ color m`) unless it has colours of its own."""
        if not self.has_color or not color or not text or "\x1b" in text:
            return text
        return f"\x1b[{color}m{text}{_RESET}"


def framed(
    line: str,
    width: int,
    painter: Painter,
    *,
    first: str,
    rest: str = OUTPUT,
    first_color: str = DIM,
    color: str = "",
    is_prose: bool = False,
) -> list[str]:
    """Cut a line into rows; the first begins with `first`, those that follow with `rest`.

    Both count as one cell per character. Rows are at least a few cells wide, also on a
    screen too narrow for that. Prose, which has no colours, is cut between words; a longer word
    is not cut at all where it has no frame, or is a path: that has rows of its own, without a
    frame, so that the user can copy it whole. So has a command in `backquotes`, without a frame.
    """
    content_width = max(4, width - max(len(first), len(rest)))
    rest_color = first_color if rest == first else DIM
    rows: list[str] = []
    for row in _prose(line, content_width, first) if is_prose else wrap(line, content_width):
        if isinstance(row, UnframedRow):
            if not rows and first.strip() not in ("", rest.strip()):
                rows.append(painter.paint(first.rstrip(), first_color))
            rows.append(row)
        else:
            frame = painter.paint(rest, rest_color) if rows else painter.paint(first, first_color)
            rows.append(frame + painter.paint(row, color))
    return rows


def _prose(line: str, width: int, frame: str) -> list[str]:
    """Cut prose between words; a path that is too long for a frame gets rows without one."""
    if not frame:
        return _wrap_around_commands(line, width)
    rows: list[str] = []
    for row in wrap_words(line, width, cuts_words=False):
        if cell_width(row) <= width:
            rows.append(row)
        elif _is_path(row):
            rows.append(UnframedRow(row))
        else:
            rows += wrap(row, width)
    return rows


def _wrap_around_commands(line: str, width: int) -> list[str]:
    """Cut prose between words; each of its commands in backquotes counts as one."""
    joined = _COMMAND.sub(lambda command: command[0].replace(" ", _JOINED), line)
    rows = wrap_words(joined, width, cuts_words=False)
    return [row.replace(_JOINED, " ") for row in rows]


def _is_path(word: str) -> bool:
    """Whether a word is a path, of characters that cannot pass for a frame of ours."""
    return "/" in word and len(word) <= _MAX_PATH_CHARS and not _FRAME_LIKE.search(word)


def wrap(line: str, width: int) -> list[str]:
    """Cut a line into rows of at most `width` cells, each with its own colours; at least one."""
    if "\t" in line:
        line = line.expandtabs(_TAB_WIDTH)
    if line.isascii() and "\x1b" not in line:
        if len(line) <= width:
            return [line]
        return [line[start : start + width] for start in range(0, len(line), width)]
    return _wrap_slowly(line, width)


def wrap_words(line: str, width: int, *, cuts_words: bool = True) -> list[str]:
    """Cut a line without colours into rows of at most `width` cells, between words if possible."""
    rows: list[str] = []
    while cell_width(line) > width:
        row = wrap(line[: 2 * width], width)[0]
        indent = len(line) - len(line.lstrip())
        space = row.rfind(" ", indent + 1)
        if space < 0 and not cuts_words:
            space = line.find(" ", indent + 1)
            row = line
        if space > 0:
            row = row[:space]
        rows.append(row)
        line = line[len(row) :].lstrip(" ")
    return [*rows, line] if line or not rows else rows


def cell_width(text: str) -> int:
    """How many cells a text without colours takes."""
    return len(text) if text.isascii() else sum(map(get_character_cell_size, text))


def clip(text: str, width: int) -> str:
    """Return the start of a text without colours that fits in one row, marked when it is cut."""
    if cell_width(text) <= width:
        return text
    return wrap(text, max(1, width - 1))[0] + "…"


def _wrap_slowly(line: str, width: int) -> list[str]:
    rows: list[str] = []
    row: list[str] = []
    room = width
    color = ""
    for piece in _COLOR.split(line):
        if piece.startswith("\x1b"):
            # A `LineFolder` writes the whole state each time: the last one says everything.
            color = "" if piece == _RESET else piece
            row.append(piece)
            continue
        for character in piece:
            size = get_character_cell_size(character)
            if size > room:
                rows.append("".join(row) + (_RESET if color else ""))
                row = [color] if color else []
                room = width
            row.append(character)
            room -= size
    if any(not piece.startswith("\x1b") for piece in row) or not rows:
        rows.append("".join(row))
    elif row and rows:
        rows[-1] += "".join(row)
    return rows
