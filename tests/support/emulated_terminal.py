"""A terminal emulator: what a person would see, scrollback included."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

LIMIT_SECONDS = 30.0

_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class EmulatedScreen:
    """Takes bytes and shows what a terminal would."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.5)
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


class EmulatedTerminal:
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
        self._terminal, theirs = pty.openpty()
        self._set_size(columns, rows)
        self.attributes = termios.tcgetattr(theirs)
        """The terminal's settings before the program ran."""
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _TAKE_TERMINAL, *arguments],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                cwd=cwd,
                env=environ,
                start_new_session=True,
            )
        finally:
            os.close(theirs)

    @property
    def current_attributes(self) -> list[int | list[bytes | int]]:
        return termios.tcgetattr(self._terminal)

    def press(self, keys: str) -> None:
        """Type; "\\r" is Enter, "\\x03" is Ctrl-C."""
        os.write(self._terminal, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(columns, rows)
        self._set_size(columns, rows)

    def wait_for(self, text: str, *, times: int = 1) -> float:
        """Wait until so many lines of screen and scrollback have `text`; return the seconds."""
        began = time.monotonic()
        while sum(text in line for line in self.screen.all_lines) < times:
            left = began + LIMIT_SECONDS - time.monotonic()
            seen = "\n".join(self.screen.all_lines[-40:])
            assert left > 0, f"{text!r} did not appear:\n{seen}"
            assert self.read(left), f"the program ended without {text!r}:\n{seen}"
        return time.monotonic() - began

    def wait(self) -> int:
        """Wait for the program's end and return its exit code."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.read(deadline - time.monotonic()):
            pass
        return self.process.wait(LIMIT_SECONDS)

    def read(self, seconds: float) -> bool:
        """Take in what appears next, if anything does in time; False at the program's end."""
        ready, _, _ = select.select([self._terminal], [], [], max(0, seconds))
        if not ready:
            return self.process.poll() is None
        try:
            content = os.read(self._terminal, 65536)
        except OSError:  # Linux says so when nobody has the terminal any more
            return False
        self.screen.feed(content)
        if b"\x1b[6n" in content:  # it asks where the cursor is
            self.press("\x1b[{};{}R".format(*self.screen.cursor))
        return bool(content)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)
