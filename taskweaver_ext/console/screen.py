"""Terminals and pipes as places for rows.

A terminal keeps finished rows in its scrollback; below them a few live rows are drawn over
again and again, each change in one write, nothing erased that stays the same. Every row is
written with line wrapping off: a character that is wider than we think is cut off at the
edge and cannot push the rows below it. Only rows without a frame are left to the terminal to
wrap. Whatever rows are made of, nothing of them but text and plain colours passes here; pictures
that have been checked are written by this module alone, in letters of base64.

Between two updates the cursor waits, hidden, where the live rows begin. Terminals keep it there
when they are resized, also those that wrap long rows anew, and those that report their new size
late: however many rows ours have become, they are below the cursor.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import os
import select
import shutil
from collections.abc import Iterable
from typing import Literal, Protocol

from taskweaver_ext.console.pictures import InlinePicture, PictureRow
from taskweaver_ext.console.rows import NO_LIMIT, UnframedRow, cell_width
from taskweaver_ext.text.terminal import row_text, strip_terminal

_WRAP = "\x1b[?7h"
_DO_NOT_WRAP = "\x1b[?7l"
_BEGIN = f"\x1b[?2026h{_DO_NOT_WRAP}"
"""Show nothing until the end of the update; do not wrap lines."""
_END = f"{_WRAP}\x1b[?2026l"
_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"
_ERASE_REST_OF_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_ERASE_ALL_FROM_HERE = f"{_ERASE_REST_OF_LINE}\x1b[C{_ERASE_BELOW}\r"
"""From the start of a row. Some terminals keep what is erased from the top left corner in their
scrollback; hence the step to the right."""
_MOUSE_OFF = "".join(f"\x1b[?{mode}l" for mode in (9, 1000, 1001, 1002, 1003, 1005, 1006, 1015))
_RECLAIM = (
    # Saved and restored around it: where the other screen is not shown, leaving it only moves the
    # cursor; and so does giving up a scrolling region.
    "\x1b7\x1b[?1049l\x1b[?47l\x1b8\x1b7\x1b[r\x1b8"
    f"{_MOUSE_OFF}\x1b[?1004l\x1b[?2004l\x1b[?2026l"  # reports of focus, marks around pastes
    "\x1b[?1l\x1b>\x1b[>4m"  # keys as they are
    f"\x1b[4l{_WRAP}\x1b(B\x0f\x1b[0m{_SHOW_CURSOR}"
)
"""Undoes what a program can have left of itself."""
_QUERIES = {
    "device": "\x1b[>0q\x1b[c",
    "pictures": "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
    f"\x1b]1337;ReportCellSize\x1b\\\x1b[c\r{_ERASE_REST_OF_LINE}",
}
"""Its name; whether it shows pictures, by kitty's protocol or iTerm2's. What it is (`ESC [ c`) is
asked last: all terminals answer that. What one does not understand and prints is erased."""
_FORGET_PICTURES = "\x1b_Ga=d,q=2\x1b\\"
_LETTERS_PER_PIECE = 4096
_ROWS_PER_WRITE = 1000
_PLAIN_FRAMES = dict(
    zip(
        "│├╰╭─═╶•►●▸→┊╌⋯…·◆✔✖○■▶⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
        "|+++-=-*>*>>:-~~-*+xo#>" + "|/-\\" * 2 + "|/",
        strict=True,
    )
)
"""What stands for the characters of our own where a terminal does not have them."""
_FIT = "taskweaver-fit"


class Screen(Protocol):
    """Where rows go; one thread uses it."""

    def size(self) -> tuple[int, int]:
        """Columns and rows that can be used, as they are now."""

    def update(self, finished: Iterable[str], live: list[str]) -> None:
        """Add finished rows, and show `live` below them in place of the live rows before."""

    def clear(self) -> None:
        """Begin again at the top."""

    def reclaim(self) -> None:
        """Go on below what a program has left that had the terminal for a while."""

    def copy(self, text: str) -> bool:
        """Send a text to the clipboard; False where that cannot be done."""


class TerminalScreen:
    """A terminal that can move its cursor."""

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._live: list[str] = []
        self._live_size = (0, 0)
        """The terminal's size when the live rows were drawn."""
        self._has_kitty_pictures = False

    def ask(self, what: Literal["device", "pictures"]) -> None:
        """Ask the terminal something; its answer comes as if it were typed."""
        self._write(_QUERIES[what])

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
        rows = [_gated(row) for row in finished]
        live = [_gated(row) for row in live]
        self._has_kitty_pictures |= any(_is_kitty(row) for row in rows)
        size = self.size()
        is_resized = bool(self._live) and size != self._live_size
        if not rows and live == self._live and not is_resized:
            return
        text = [_BEGIN, "\r"]
        if is_resized:  # rows that are written over would stay parts of longer ones
            text.append(_ERASE_ALL_FROM_HERE)
        for row in rows:
            text.append(_finished(row))
        text.append(self._redrawn(live, is_moved=bool(rows) or is_resized))
        if len(live) > 1:
            text.append(f"\x1b[{len(live) - 1}A")
        text += ["\r", _END]
        if bool(live) != bool(self._live):
            text.append(_HIDE_CURSOR if live else _SHOW_CURSOR)
        self._live, self._live_size = live, size
        self._write("".join(text))

    def clear(self) -> None:
        """Begin again at the top; the scrollback stays."""
        self._live = []
        forgotten = _FORGET_PICTURES if self._has_kitty_pictures else ""
        self._write(f"\x1b[H{_ERASE_BELOW}{forgotten}")

    def reclaim(self) -> None:
        """Put back what a program changed, and begin a row if the cursor is amid one."""
        self._live = []
        self._write(f"{_RECLAIM}{_begin_row(self._descriptor)}{_ERASE_REST_OF_LINE}")

    def copy(self, text: str) -> bool:
        """Send a text to the clipboard of the terminal, in letters and digits alone."""
        encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
        self._write(f"\x1b]52;c;{encoded}\x07")
        return True

    def _redrawn(self, live: list[str], *, is_moved: bool) -> str:
        """Write over the old live rows, which may have moved."""
        if not live:
            return _ERASE_ALL_FROM_HERE
        drawn = []
        for number, row in enumerate(live):
            is_same = not is_moved and number < len(self._live) and self._live[number] == row
            is_last = number == len(live) - 1
            drawn.append(f"{row}{_ERASE_REST_OF_LINE}" if is_last or not is_same else "")
        # Whatever is left of older rows is below, also when the terminal has wrapped them anew.
        return "\r\n".join(drawn) + _ERASE_BELOW

    def _write(self, text: str) -> None:
        write_all(self._descriptor, text.encode(self._encoding, _FIT))


def _gated(row: str) -> str:
    """A row of the same kind, without anything that could drive a terminal."""
    if isinstance(row, PictureRow):
        return PictureRow.of(row_text(row), row.picture)
    return type(row)(row_text(row))


def _is_kitty(row: str) -> bool:
    return isinstance(row, PictureRow) and row.picture.protocol == "kitty"


def _finished(row: str) -> str:
    """A row and its end; one that the terminal wraps is copied as one line."""
    if isinstance(row, UnframedRow):
        return f"{_ERASE_ALL_FROM_HERE}{_WRAP}{row}{_DO_NOT_WRAP}\r\n"
    if isinstance(row, PictureRow):
        return _with_picture(row)
    return f"{row}{_ERASE_REST_OF_LINE}\r\n"


def _with_picture(row: PictureRow) -> str:
    """Frames one below the other, then the picture beside them; the cursor ends below."""
    picture = row.picture
    frames = f"{row}{_ERASE_REST_OF_LINE}\r\n" * picture.rows
    right = cell_width(strip_terminal(row))
    move = f"\x1b[{picture.rows}A\x1b[{right}C" if right else f"\x1b[{picture.rows}A"
    return f"{frames}{move}\x1b7{_picture(picture)}\x1b8\x1b[{picture.rows}B\r"


def _picture(picture: InlinePicture) -> str:
    """What makes a terminal show a picture at its cursor."""
    letters = base64.b64encode(picture.content).decode("ascii")
    place = f"c={picture.columns},r={picture.rows}"
    if picture.protocol == "iterm2":
        return (
            f"\x1b]1337;File=inline=1;size={len(picture.content)};width={picture.columns}"
            f";height={picture.rows};preserveAspectRatio=1;doNotMoveCursor=1:{letters}\x07"
        )
    pieces = [
        letters[start : start + _LETTERS_PER_PIECE]
        for start in range(0, len(letters), _LETTERS_PER_PIECE)
    ]
    sent = []
    for number, piece in enumerate(pieces):
        first = f"a=T,f=100,q=2,C=1,{place}," if number == 0 else ""
        sent.append(f"\x1b_G{first}m={int(number < len(pieces) - 1)};{piece}\x1b\\")
    return "".join(sent)


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
        rows = [_gated(row) for row in finished]
        for start in range(0, len(rows), _ROWS_PER_WRITE):
            text = "\n".join(rows[start : start + _ROWS_PER_WRITE]) + "\n"
            with contextlib.suppress(OSError):  # the pipe is closed or the disk full: work goes on
                write_all(self._descriptor, text.encode(self._encoding, _FIT))

    def clear(self) -> None:
        """Do nothing: printed is printed."""

    def reclaim(self) -> None:
        """Begin a row; such a terminal knows no sequences that would put anything back."""
        if os.isatty(self._descriptor):
            write_all(self._descriptor, _begin_row(self._descriptor).encode())

    def copy(self, text: str) -> bool:
        """Do nothing: there is no clipboard."""
        return False


def _begin_row(descriptor: int) -> str:
    """What leads to the start of a row: a row of spaces reaches the next one from amid a row."""
    try:
        columns = os.get_terminal_size(descriptor).columns
    except OSError:
        columns = 0
    return " " * (columns or 80) + "\r"


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything, however often it takes; raises OSError when the other side is gone."""
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def fit(text: str, encoding: str) -> str:
    """Return a text in characters that an encoding has, cell for cell."""
    return text.encode(encoding, _FIT).decode(encoding)


def _replace_unfit(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    unfit = error.object[error.start : error.end]
    return "".join(_PLAIN_FRAMES.get(character, "?") for character in unfit), error.end


codecs.register_error(_FIT, _replace_unfit)
