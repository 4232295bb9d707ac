"""A program on a terminal of its own, and what a person at it sees."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_SECONDS = 60.0

_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class TerminalProgram:
    """Run a program whose three streams are a terminal; keep what appears on it."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._terminal, theirs = pty.openpty()
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
        self.seen = ""

    def press(self, text: str) -> None:
        """Type; "\\x03" is Ctrl-C, "\\n" is Enter."""
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str) -> None:
        """Wait until `text` is on the screen."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while text not in self.seen:
            assert self._read(deadline), f"{text!r} is not in {self.seen!r}"

    def wait(self) -> int:
        """Wait for the program's end and return its exit code."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(LIMIT_SECONDS)

    @property
    def echoes(self) -> bool:
        """Whether what is typed appears."""
        return bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)

    def _read(self, deadline: float) -> bool:
        """Take in what appears next; False at the program's end."""
        ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"nothing more came after {self.seen!r}"
        try:
            piece = os.read(self._terminal, 65536)
        except OSError:  # Linux says so when nobody has the terminal any more
            return False
        self.seen += piece.decode("utf-8", "replace")
        return bool(piece)

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
