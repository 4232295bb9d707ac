"""The last output of a program on a terminal: displays are updated and output is cleared there.

What has left the screen, was typed in between, or went into a pipe cannot be taken back: there
an update is one more display, and clearing does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.text.terminal import fold

MAX_CHARS = 32_768
"""What is longer has left any screen."""


@dataclass(slots=True)
class _Piece:
    stream: StreamName
    text: str
    display_id: str | None = None


class OpenOutput:
    """Writes to a screen, and rewrites what is still on it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pieces: list[_Piece] = []
        """What can be taken back: from the start of a line to where the cursor is."""
        self._size = 0
        self._is_clearing = False
        self._is_mid_line: dict[StreamName, bool] = {"stdout": False, "stderr": False}

    def write(self, stream: StreamName, text: str) -> None:
        """Pass on what the program writes."""
        self._clear_if_due()
        self._add(_Piece(stream, text))

    def display(self, text: str, display_id: str | None = None) -> None:
        """Show a display on lines of its own."""
        self._clear_if_due()
        if self._is_mid_line["stdout"]:
            self._add(_Piece("stdout", "\n"))
        self._add(_Piece("stdout", text, display_id))

    def update(self, display_id: str, text: str) -> None:
        """Show something else in place of a display; below, if it cannot be reached."""
        self._clear_if_due()
        pieces = self._pieces
        shown = [piece for piece in pieces if piece.display_id == display_id]
        if not shown or not self._take_back():
            self.display(text, display_id)
            return
        for piece in shown:
            piece.text = text
        for piece in pieces:
            self._add(piece)

    def clear(self, *, wait: bool) -> None:
        """Take away what can be reached; if so wanted, only when more comes."""
        self._is_clearing = True
        if not wait:
            self._clear_if_due()

    def forget(self) -> None:
        """Something else has been written: what is above it stays."""
        self._pieces = []
        self._size = 0

    def _clear_if_due(self) -> None:
        if self._is_clearing:
            self._is_clearing = False
            self._take_back()

    def _add(self, piece: _Piece) -> None:
        is_on_terminal = self._screen.is_terminal(piece.stream)
        at_line_start = not any(self._is_mid_line.values())
        if is_on_terminal and (self._pieces or at_line_start) and self._size <= MAX_CHARS:
            self._pieces.append(piece)
            self._size += len(piece.text)
        elif is_on_terminal:
            self.forget()
        self._screen.write(piece.stream, piece.text)
        if piece.text:
            self._is_mid_line[piece.stream] = not piece.text.endswith("\n")
            if is_on_terminal and piece.text.endswith("\n"):  # both write to the same line
                self._is_mid_line = {"stdout": False, "stderr": False}

    def _take_back(self) -> bool:
        """Erase what was written since the first piece; False if that is not on the screen."""
        lines = fold("".join(piece.text for piece in self._pieces)).split("\n")
        is_done = bool(self._pieces) and self._screen.take_back(lines)
        self.forget()
        if is_done:
            self._is_mid_line = {"stdout": False, "stderr": False}
        return is_done
