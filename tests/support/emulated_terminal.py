"""A terminal emulator: what a person would see, scrollback included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from tests.support.terminal_program import TerminalProgram


class _HistoryScreen(pyte.HistoryScreen):
    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        """Colours; what begins with `>` is about keys, which terminals do not take for colours."""
        if not private:
            super().select_graphic_rendition(*attributes)


class EmulatedScreen:
    """Takes bytes and shows what a terminal would."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self._screen = _HistoryScreen(columns, rows, history=100_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self.received = b""

    def feed(self, content: bytes) -> None:
        self.received += content
        self._stream.feed(content)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column, from 1."""
        return self._screen.cursor.y + 1, self._screen.cursor.x + 1

    @property
    def has_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    @property
    def lines(self) -> list[str]:
        """What is on the screen now, without the empty lines at its end."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")

    @property
    def all_lines(self) -> list[str]:
        """The scrollback, then the screen."""
        columns = range(self._screen.columns)
        above = [
            "".join(row[column].data for column in columns).rstrip()
            for row in self._screen.history.top
        ]
        return [*above, *self.lines]


class EmulatedTerminal(TerminalProgram):
    """Run a program on a terminal of its own, and look at its screen."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        columns: int = 80,
        rows: int = 24,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.screen = EmulatedScreen(columns, rows)
        super().__init__(arguments, cwd=cwd, environ=environ, size=(rows, columns))

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(columns, rows)
        super().resize(columns, rows)

    def wait_for_last_line(self, text: str) -> None:
        """Wait until the last line on the screen has `text`."""
        self.wait_until(lambda: text in self.screen.lines[-1], f"{text!r} in the last line")

    def count(self, text: str) -> int:
        """How many lines of screen and scrollback have `text`."""
        return sum(text in line for line in self.screen.all_lines)

    @property
    def recent(self) -> str:
        """The last lines."""
        return "\n".join(self.screen.all_lines[-40:])

    def receive(self, content: bytes) -> None:
        self.screen.feed(content)
        if b"\x1b[6n" in content:  # it asks where the cursor is
            self.press("\x1b[{};{}R".format(*self.screen.cursor))
