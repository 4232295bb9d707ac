"""Make what running code writes fit to be shown: nothing drives the terminal, lines are final.

Pure: text in, text out, in linear time, and the same result wherever the text was
split into pieces.

`TerminalFilter` removes whatever could drive a terminal: cursor movement, titles,
clipboard, hyperlinks, character sets, screen switching, control characters. Plain colours may
stay; what hides or reorders text is shown (`hidden_characters.py`). `LineFolder` folds what a
program does to one line (carriage returns, backspaces, erasing, moving up a few lines) into
what is left of it, so that progress bars, also several at a time, reach the model and the
transcript as their last state instead of a thousand rewrites.

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
from collections.abc import Sequence

from taskweaver_ext.text.colors import RESET, restyle, style_change
from taskweaver_ext.text.hidden_characters import HiddenCharacters
from taskweaver_ext.text.partial_line import PartialLine

MAX_CSI_PARAMETERS = 128
MAX_STRING_CHARS = 65_536
MAX_LINE_CHARS = 262_144
"""A longer line is released in pieces of this length, as a terminal this wide would wrap it."""
MAX_OPEN_LINES = 12
"""So many complete lines may wait to be written again."""

# `bytes.translate` is the fastest look at ASCII text there is: about 1 GB/s.
_UNSAFE_ASCII = bytes([*range(0x08), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
# Lone surrogates are in here because they cannot be written to any terminal.
_UNSAFE = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SEQUENCE = re.compile(
    rf"""
    (?P<string> \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] )
  | (?: \x1b\[ | \x9b ) (?:
        (?P<colors> [0-9;:]{{0,{MAX_CSI_PARAMETERS}}} ) m
      | (?P<erase> [02]? ) K
      | (?P<to_start> [01]? ) G
      | (?P<rows> [0-9]{{0,4}} [ABEF] )
      | (?P<below> 0? ) J
      | [0-?]{{0,{MAX_CSI_PARAMETERS}}} [\x20-/]{{0,16}} (?P<csi_end> [@-~] )?
    )
  | \x1b [\x20-/]{{0,16}} (?P<escape_end> [0-~] )?
  | (?P<surrogate> [\ud800-\udfff] )
  | (?P<controls> [\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x8f]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_STRING_END = re.compile("[\x07\n\r\x18\x1a\x1b\x9c]")

_FOLDED = re.compile(r"[^\r\b\x1b]+|\r+|[\b]+|\x1b\[[0-9;:]*[mKABJ]")


class TerminalFilter:
    """Pass on text and, if wanted, plain colours; remove all that could drive a terminal.

    Newline, carriage return, tab and backspace pass: the terminal is safe from them, and
    `LineFolder` needs them. Colours pass in one normal form; blinking, concealed text and
    fonts do not. Characters that hide or reorder text are shown by their numbers.

    Args:
        keep_line_edits: For a folder, not for a terminal: also pass the erasing of a line
            (as `ESC [0K` and `ESC [2K`) and of all below (as `ESC [J`), the return to its
            start (as `\\r`), and moves to other lines (as `ESC [nA` and `ESC [nB`).
    """

    def __init__(self, keep_colors: bool = True, *, keep_line_edits: bool = False) -> None:
        self._keep_colors = keep_colors
        self._keep_line_edits = keep_line_edits
        self._held = ""  # the start of a sequence that may go on in the next piece
        self._string_room = 0  # how much more an open string sequence may swallow
        self._characters = HiddenCharacters()
        self._style = ""
        self._shown_style = ""

    def feed(self, text: str) -> str:
        """Take the next piece of output and return what of it may be shown."""
        if not self._held and not self._string_room and _is_safe(text):
            return self._in_style(self._characters.feed(text))
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
            kept.append(self._in_style(self._characters.feed(text[position:end])))
            position = self._read_sequence(text, end, kept) if unsafe else end
        return "".join(kept)

    def close(self) -> str:
        """Drop a sequence that never ended, and close the colours that are still open."""
        self._held = ""
        self._string_room = 0
        self._style = ""
        return self._end_style()

    def _read_sequence(self, text: str, start: int, kept: list[str]) -> int:
        """Judge the sequence or control character at `start`; return where it ends."""
        sequence = _SEQUENCE.match(text, start)
        assert sequence is not None  # the last alternative takes anything
        match sequence.lastgroup:
            case "string":
                self._string_room = MAX_STRING_CHARS
            case "colors" if self._keep_colors:
                self._style = restyle(self._style, sequence["colors"])
                if not self._style:
                    kept.append(self._end_style())
            case "erase" if self._keep_line_edits:
                kept.append(f"\x1b[{sequence['erase'] or '0'}K")
            case "to_start" if self._keep_line_edits:
                kept.append("\r")
            case "rows" if self._keep_line_edits:
                kept.append(_row_move(sequence["rows"]))
            case "below" if self._keep_line_edits:
                kept.append("\x1b[J")
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
        change = style_change(self._shown_style, self._style)
        self._shown_style = self._style
        return change + text

    def _end_style(self) -> str:
        """Close colours at once: what is written to the terminal next must not inherit them."""
        is_open = bool(self._shown_style)
        self._shown_style = ""
        return RESET if is_open else ""


class CutLine(str):
    """A piece of a line that is longer than a folder keeps: it goes on in the next one."""

    __slots__ = ()


class LineFolder:
    """Keep the lines that may still change; release them once they are final.

    Takes output as it comes: it is filtered on the way in. Each line stands alone: it
    opens the colours it begins with and closes those it ends with. A rewritten line has
    its tabs turned into spaces and loses the trailing spaces that bars are wiped with; all
    other lines keep every character.

    A line is final when the next one begins, with two exceptions: bars that stand below each
    other are written again by turns, and so are the lines that a program once moved up to.
    """

    def __init__(self, keep_colors: bool = True, *, max_line_chars: int = MAX_LINE_CHARS) -> None:
        self._filter = TerminalFilter(keep_colors, keep_line_edits=True)
        self._max_line_chars = max_line_chars
        self._style = ""
        self._open = [PartialLine()]
        """Never empty; only the last has not been completed."""
        self._current = 0
        """Which of them is being written."""
        self._reach = 0
        """How many lines up the program has moved so far."""

    def feed(self, text: str) -> list[str]:
        """Take the next piece of output and return the lines it completed, oldest first."""
        return self._fold(self._filter.feed(text))

    @property
    def open_lines(self) -> list[str]:
        """What is to be seen of the lines that may still change, complete or begun."""
        complete = [line.text for line in self._open[:-1] if line.is_used]
        return [*complete, self.partial_line] if self.partial_line else complete

    @property
    def partial_line(self) -> str:
        """What is to be seen of the line that was not completed."""
        return self._open[-1].text

    def release(self) -> list[str]:
        """Return the complete lines that wait to be written again: something else comes below."""
        lines = _texts(self._open[:-1])
        del self._open[:-1]
        self._current = 0
        return lines

    def close(self) -> list[str]:
        """Return the lines that were not final; the last of them only if it has begun."""
        complete, last = self.end()
        return [*complete, last] if last else complete

    def end(self) -> tuple[list[str], str]:
        """Return the complete lines that were not final, and the one that was not completed."""
        self._filter.close()
        complete, last = self.release(), self._open[-1].finish()
        self._begin()
        return complete, last

    def _begin(self) -> None:
        self._open = [PartialLine()]
        self._current = 0

    def _fold(self, text: str) -> list[str]:
        lines: list[str] = []
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        if "\r" not in text and "\b" not in text and "\x1b" not in text:
            self._write_text(text, lines)
            return lines
        for token in _FOLDED.findall(text):
            line = self._open[self._current]
            if token[0] == "\r":
                line.return_to_start()
            elif token[0] == "\b":
                line.move_back(len(token))
            elif token[0] == "\x1b":
                self._apply_edit(line, token[2:-1], token[-1])
            else:
                self._write_text(token, lines)
        return lines

    def _apply_edit(self, line: PartialLine, parameters: str, kind: str) -> None:
        match kind:
            case "m":
                self._style = restyle(self._style, parameters)
            case "K":
                line.erase(is_whole=parameters == "2")
            case "J":
                line.erase(is_whole=False)
                del self._open[self._current + 1 :]
            case "A":
                self._move(-int(parameters))
            case "B":
                self._move(int(parameters))

    def _write_text(self, text: str, lines: list[str]) -> None:
        first, *others = text.split("\n")
        self._write(first, lines)
        if not others:
            return
        self._end_line(lines)
        last = others.pop()
        longest = max(map(len, others), default=0) if len(text) > self._max_line_chars else 0
        if self._style or longest > self._max_line_chars or len(self._open) > 1 or self._reach:
            for line in others:
                self._write(line, lines)
                self._end_line(lines)
        else:
            lines += others
        self._write(last, lines)

    def _write(self, text: str, lines: list[str]) -> None:
        position = 0
        while position < len(text):
            line = self._open[self._current]
            position = line.write(text, position, self._style, self._max_line_chars)
            if position < len(text):  # it is full: what follows begins another
                is_last = self._current == len(self._open) - 1
                lines += _texts(self._open)
                if is_last:
                    lines[-1] = CutLine(lines[-1])
                self._begin()

    def _end_line(self, lines: list[str]) -> None:
        """Go to the start of the next line, and release those that are final."""
        self._open[self._current].is_used = True
        self._current += 1
        if self._current < len(self._open):
            self._open[self._current].return_to_start()
            return
        self._open.append(PartialLine())
        bars = 0
        while bars < len(self._open) - 1 and self._open[-2 - bars].is_rewritten:
            bars += 1
        # Fewer may be open than could be written again: some were erased with all below.
        count = max(0, len(self._open) - 1 - min(MAX_OPEN_LINES, max(bars, self._reach)))
        lines += _texts(self._open[:count])
        del self._open[:count]
        self._current -= count

    def _move(self, rows: int) -> None:
        """Go up or down; not below the last line, nor far up."""
        missing = min(-(self._current + rows), MAX_OPEN_LINES + 1 - len(self._open))
        if missing > 0:  # they have been released: what is written there now comes once more
            self._open[:0] = [PartialLine() for _ in range(missing)]
            self._current += missing
        column = self._open[self._current].column
        self._current = max(0, min(self._current + rows, len(self._open) - 1))
        self._open[self._current].column = column
        self._reach = max(self._reach, len(self._open) - 1 - self._current)


def strip_terminal(text: str) -> str:
    """Return a whole text without colours and without anything that could drive a terminal."""
    terminal_filter = TerminalFilter(keep_colors=False)
    return terminal_filter.feed(text) + terminal_filter.close()


def message_text(text: str) -> str:
    """Return a text that is not a program's output, fit to be written anywhere in a line.

    Nothing in it moves the cursor but newlines and tabs: what would is shown.
    """
    text = strip_terminal(text)
    if "\r" in text or "\b" in text:
        text = text.replace("\r\n", "\n").replace("\r", "<U+000D>").replace("\b", "<U+0008>")
    return text


def row_text(row: str) -> str:
    """Return a row of a screen: text and plain colours, all in one line."""
    row_filter = TerminalFilter()
    row = row_filter.feed(row) + row_filter.close()
    for control in "\n\r\b":
        if control in row:
            row = row.replace(control, f"<U+{ord(control):04X}>")
    return row


def fold(text: str, *, keep_colors: bool = False) -> str:
    """Return what a terminal would be left with after a whole text, as plain text."""
    folder = LineFolder(keep_colors)
    lines = folder.feed(text)
    complete, last = folder.end()
    return "\n".join([*lines, *complete, last])


def _is_safe(text: str) -> bool:
    if text.isascii():
        return len(text.encode("ascii").translate(None, _UNSAFE_ASCII)) == len(text)
    return _UNSAFE.search(text) is None


def _row_move(move: str) -> str:
    """A move to another line, be it to its start (E, F) or not (A, B), in one of two forms."""
    rows, kind = max(1, int(move[:-1] or "1")), move[-1]
    to_start = "\r" if kind in "EF" else ""
    return f"{to_start}\x1b[{rows}{'A' if kind in 'AF' else 'B'}"


def _texts(lines: Sequence[PartialLine]) -> list[str]:
    """What is left of complete lines; nothing of those that were only passed by."""
    return [line.finish() for line in lines if line.is_used]
