"""Make what running code writes fit to be shown: nothing drives the terminal, lines are final.

Pure: text in, text out, in linear time, and the same result wherever the text was
split into pieces.

`TerminalFilter` removes whatever could drive a terminal: cursor movement, titles,
clipboard, hyperlinks, character sets, screen switching, control characters, bidi
overrides. Plain colours may stay. `LineFolder` folds what a program does to one line
(carriage returns, backspaces, erasing) into what is left of it, so that progress bars
reach the model and the transcript as their last state instead of a thousand rewrites.

A sequence without an end swallows little:

- `ESC [ ...` ends at the first character that cannot belong to it, and after
  `MAX_CSI_PARAMETERS` characters at the latest.
- A string (`ESC ]`, `ESC P`, `ESC X`, `ESC ^`, `ESC _`) ends at its terminator, at a
  newline, carriage return, BEL, CAN, SUB or the next ESC, and after `MAX_STRING_CHARS`
  characters at the latest.

What follows is ordinary text again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import lru_cache

from taskweaver_ext.text.cell_row import CellRow

MAX_CSI_PARAMETERS = 128
MAX_STRING_CHARS = 65_536
MAX_LINE_CHARS = 262_144
"""A longer line is released in pieces of this length, as a terminal this wide would wrap it."""

_RESET = "\x1b[0m"

# `bytes.translate` is the fastest look at ASCII text there is: about 1 GB/s.
_UNSAFE_ASCII = bytes([*range(0x08), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
# Lone surrogates are in here because they cannot be written to any terminal.
_UNSAFE = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SEQUENCE = re.compile(
    rf"""
    (?P<string> \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] )
  | (?: \x1b\[ | \x9b ) (?:
        (?P<colors> [0-9;:]{{0,{MAX_CSI_PARAMETERS}}} ) m
      | (?P<erase> [02]? ) K
      | (?P<to_start> [01]? ) G
      | [0-?]{{0,{MAX_CSI_PARAMETERS}}} [\x20-/]{{0,16}} (?P<csi_end> [@-~] )?
    )
  | \x1b [\x20-/]{{0,16}} (?P<escape_end> [0-~] )?
  | (?P<surrogate> [\ud800-\udfff] )
  | (?P<controls> [\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x8f]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_STRING_END = re.compile("[\x07\n\r\x18\x1a\x1b\x9c]")

_FOLDED = re.compile(r"[^\r\b\x1b]+|\r+|[\b]+|\x1b\[[0-9;:]*[mK]")
_COLOR = re.compile("(\x1b\\[[0-9;:]*m)")

_ATTRIBUTES = ((1, 22), (2, 22), (3, 23), (4, 24), (21, 24), (7, 27), (9, 29), (53, 55))
# What a colour code sets, named by the code that takes it back.
_SLOTS = {
    **dict(_ATTRIBUTES),
    **dict.fromkeys([*range(30, 39), *range(90, 98)], 39),
    **dict.fromkeys([*range(40, 49), *range(100, 108)], 49),
    58: 59,
}
_SUBPARAMETERS = re.compile(r"(4|38|48|58)(?::[0-9]{0,3}){1,6}")


class TerminalFilter:
    """Pass on text and, if wanted, plain colours; remove all that could drive a terminal.

    Newline, carriage return, tab and backspace pass: the terminal is safe from them, and
    `LineFolder` needs them. Colours pass in one normal form; blinking, concealed text and
    fonts do not. Bidi embeddings, overrides and isolates go; the plain direction marks stay.

    Args:
        keep_line_edits: For a folder, not for a terminal: also pass the erasing of a line
            (as `ESC [0K` and `ESC [2K`) and the return to its start (as `\\r`).
    """

    def __init__(self, keep_colors: bool = True, *, keep_line_edits: bool = False) -> None:
        self._keep_colors = keep_colors
        self._keep_line_edits = keep_line_edits
        self._held = ""  # the start of a sequence that may go on in the next piece
        self._string_room = 0  # how much more an open string sequence may swallow
        self._style = ""
        self._shown_style = ""

    def feed(self, text: str) -> str:
        """Take the next piece of output and return what of it may be shown."""
        if not self._held and not self._string_room and _is_safe(text):
            return self._in_style(text)
        text = self._held + text
        self._held = ""
        kept: list[str] = []
        position = 0
        while position < len(text):
            if self._string_room:
                position = self._skip_string(text, position)
                continue
            unsafe = _UNSAFE.search(text, position)
            end = unsafe.start() if unsafe else len(text)
            kept.append(self._in_style(text[position:end]))
            position = self._take_sequence(text, end, kept) if unsafe else end
        return "".join(kept)

    def close(self) -> str:
        """Drop a sequence that never ended, and close the colours that are still open."""
        self._held = ""
        self._string_room = 0
        self._style = ""
        return self._end_style()

    def _take_sequence(self, text: str, start: int, kept: list[str]) -> int:
        """Judge the sequence or control character at `start`; return where it ends."""
        sequence = _SEQUENCE.match(text, start)
        assert sequence is not None  # the last alternative takes anything
        match sequence.lastgroup:
            case "string":
                self._string_room = MAX_STRING_CHARS
            case "colors" if self._keep_colors:
                self._style = _restyle(self._style, sequence["colors"])
                if not self._style:
                    kept.append(self._end_style())
            case "erase" if self._keep_line_edits:
                kept.append(f"\x1b[{sequence['erase'] or '0'}K")
            case "to_start" if self._keep_line_edits:
                kept.append("\r")
            case "surrogate":
                kept.append(self._in_style("\ufffd"))
            case None if sequence.end() == len(text):
                self._held = text[start:]
            case _:
                pass
        return sequence.end()

    def _skip_string(self, text: str, position: int) -> int:
        limit = position + self._string_room
        end = _STRING_END.search(text, position, limit)
        if end is None:
            skipped_to = min(limit, len(text))
            self._string_room -= skipped_to - position
            return skipped_to
        self._string_room = 0
        return end.start()  # what ends it is itself judged next: kept, removed or a new start

    def _in_style(self, text: str) -> str:
        """Open colours only when there is text to show in them."""
        if not text or self._style == self._shown_style:
            return text
        change = _style_change(self._shown_style, self._style)
        self._shown_style = self._style
        return change + text

    def _end_style(self) -> str:
        """Close colours at once: whoever writes to the terminal next must not inherit them."""
        is_open = bool(self._shown_style)
        self._shown_style = ""
        return _RESET if is_open else ""


class LineFolder:
    """Keep the line being written; release lines once they are final.

    Takes output as it comes: it is filtered on the way in. Each line stands alone: it
    opens the colours it begins with and closes those it ends with. A rewritten line has
    its tabs turned into spaces and loses the trailing spaces that bars are wiped with; all
    other lines keep every character.
    """

    def __init__(self, keep_colors: bool = True, *, max_line_chars: int = MAX_LINE_CHARS) -> None:
        self._filter = TerminalFilter(keep_colors, keep_line_edits=True)
        self._max_line_chars = max_line_chars
        self._style = ""
        self._runs: list[tuple[str, str]] = []  # (style, text), while the line only grows
        self._length = 0
        self._row: CellRow | None = None  # the line instead, once it was written over
        self._is_returned = False

    def feed(self, text: str) -> list[str]:
        """Take the next piece of output and return the lines it completed, oldest first."""
        return self._fold(self._filter.feed(text))

    @property
    def partial_line(self) -> str:
        """What is to be seen of the line being written."""
        return _paint(self._row.runs() if self._row else self._runs)

    def close(self) -> list[str]:
        """Return the last line if it was never completed, else nothing."""
        self._filter.close()
        last = self._release()
        return [last] if last else []

    def _fold(self, text: str) -> list[str]:
        lines: list[str] = []
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        if "\r" not in text and "\b" not in text and "\x1b" not in text:
            self._take_text(text, lines)
            return lines
        for token in _FOLDED.findall(text):
            if token[0] == "\r":
                # Nothing is rewritten until text follows: a newline may come instead.
                self._is_returned = True
            elif token[0] == "\b":
                self._spread().move_back(len(token))
            elif token[-1] == "K" and token[0] == "\x1b":
                self._erase(token[2])
            elif token[0] == "\x1b":
                self._style = _restyle(self._style, token[2:-1])
            else:
                self._take_text(token, lines)
        return lines

    def _take_text(self, text: str, lines: list[str]) -> None:
        first, *others = text.split("\n")
        self._write(first, lines)
        if not others:
            return
        lines.append(self._release())
        last = others.pop()
        is_long = len(text) > self._max_line_chars and any(
            len(line) > self._max_line_chars for line in others
        )
        if self._style or is_long:
            for line in others:
                self._write(line, lines)
                lines.append(self._release())
        else:
            lines += others
        self._write(last, lines)

    def _write(self, text: str, lines: list[str]) -> None:
        position = 0
        if text and (self._row or self._is_returned):
            position = self._spread().write(text, self._style, self._max_line_chars)
            if position < len(text):
                lines.append(self._release())
        while position < len(text):
            room = self._max_line_chars - self._length
            if not room:
                lines.append(self._release())
                continue
            piece = text[position : position + room]
            self._runs.append((self._style, piece))
            self._length += len(piece)
            position += len(piece)

    def _erase(self, part: str) -> None:
        if part == "2":
            self._is_returned = True  # whoever erases the whole line also begins it again
        # Programs erase behind the end of a growing line all the time; nothing is there.
        if self._row or self._is_returned:
            self._spread().erase_from_cursor()

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

    def _release(self) -> str:
        if self._row:
            self._row.trim()
        line = self.partial_line
        self._runs = []
        self._length = 0
        self._row = None
        self._is_returned = False
        return line


def strip_terminal(text: str) -> str:
    """Return a whole text without colours and without anything that could drive a terminal."""
    terminal_filter = TerminalFilter(keep_colors=False)
    return terminal_filter.feed(text) + terminal_filter.close()


def fold(text: str, *, keep_colors: bool = False) -> str:
    """Return what a terminal would be left with after a whole text, as plain text."""
    folder = LineFolder(keep_colors)
    return "\n".join([*folder.feed(text), *(folder.close() or [""])])


def clamp_line(line: str, max_chars: int = 4000) -> str:
    """Return the start of a line too long to show, with a note of how much is missing.

    The note is within `max_chars`; colours count for nothing and are closed.
    """
    if len(line) <= max_chars:
        return line
    pieces = _COLOR.split(line)
    length = sum(map(len, pieces[::2]))
    if length <= max_chars:
        return line
    room = max(0, max_chars - len(_not_shown(length)))
    note = _not_shown(length - room)
    kept: list[str] = []
    style = ""
    for text, color in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        kept.append(text[:room])
        room -= min(room, len(text))
        if not room:
            break
        kept.append(color)
        style = _restyle(style, color[2:-1])
    return "".join(kept) + (_RESET if style else "") + note


def _not_shown(chars: int) -> str:
    return f" [... {chars:,} more characters not shown]"


def _is_safe(text: str) -> bool:
    if text.isascii():
        return len(text.encode("ascii").translate(None, _UNSAFE_ASCII)) == len(text)
    return _UNSAFE.search(text) is None


def _style_change(before: str, after: str) -> str:
    if not after:
        return _RESET
    return f"\x1b[0;{after}m" if before else f"\x1b[{after}m"


def _paint(runs: Iterable[tuple[str, str]]) -> str:
    painted: list[str] = []
    shown = ""
    for style, text in runs:
        if style != shown:
            painted.append(_style_change(shown, style))
            shown = style
        painted.append(text)
    if shown:
        painted.append(_RESET)
    return "".join(painted)


@lru_cache(maxsize=1024)
def _restyle(style: str, parameters: str) -> str:
    """The colours in force once `parameters` (as in `ESC [ parameters m`) follow on `style`.

    Only what has a meaning is kept, once, so that a style stays small however it came about.
    """
    in_force: dict[int, str] = {}
    codes = iter(f"{style};{parameters}".split(";"))
    for code in codes:
        if ":" in code:
            if known := _SUBPARAMETERS.fullmatch(code):
                in_force[_SLOTS[int(known[1])]] = code
            continue
        number = int(code or "0")
        if number == 0:
            in_force.clear()
        elif number in (38, 48, 58):
            mode = next(codes, "").lstrip("0")
            values = [next(codes, "") or "0" for _ in range({"5": 1, "2": 3}.get(mode, 0))]
            if not values or not all(value.isdigit() and int(value) < 256 for value in values):
                break  # what the rest was meant to be cannot be known
            color = (number, mode, *map(int, values))
            in_force[_SLOTS[number]] = ";".join(map(str, color))
        elif number in _SLOTS:
            in_force[_SLOTS[number]] = str(number)
        else:
            in_force.pop(number, None)
    return ";".join(in_force.values())
