"""A program on a terminal of its own, and what a person at it sees."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 0.5

# Under `nohup` we ignore SIGHUP, and programs would go on doing so.
_TAKE_TERMINAL = (
    "import fcntl, os, signal, sys, termios;"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL);"
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
        size: tuple[int, int] = (24, 80),
    ) -> None:
        self.seen = ""
        self._terminal, theirs = pty.openpty()
        self.resize(columns=size[1], rows=size[0])
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

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        termios.tcsetwinsize(self._terminal, (rows, columns))

    def press(self, keys: str) -> None:
        """Type; "\\x03" is Ctrl-C, "\\r" is Enter."""
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str, *, times: int = 1) -> float:
        """Wait until `text` has appeared so often; return the seconds that took."""
        return self.wait_until(lambda: self.count(text) >= times, repr(text))

    def wait_until(self, is_so: Callable[[], bool], what: str) -> float:
        """Wait until what was seen is as it should be; return the seconds that took."""
        began = time.monotonic()
        while not is_so():
            left = began + LIMIT_SECONDS - time.monotonic()
            assert left > 0, f"{what} did not appear:\n{self.recent}"
            # Not all that is waited for is output: a terminal's settings change without a word.
            assert self.read(min(left, LOOK_AGAIN_SECONDS)), (
                f"the program ended without {what}:\n{self.recent}"
            )
        return time.monotonic() - began

    def count(self, text: str) -> int:
        """How often `text` has appeared."""
        return self.seen.count(text)

    @property
    def recent(self) -> str:
        """What a message about a failure shows of it."""
        return self.seen

    def wait(self) -> int:
        """Wait for the program's end and return its exit code."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.read(deadline - time.monotonic()):
            assert time.monotonic() < deadline, f"the program did not end:\n{self.recent}"
        return self.process.wait(LIMIT_SECONDS)

    @property
    def current_attributes(self) -> list[int | list[bytes | int]]:
        """The terminal's settings as they are now."""
        return termios.tcgetattr(self._terminal)

    @property
    def echoes(self) -> bool:
        """Whether what is typed appears."""
        return bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)

    def read(self, seconds: float) -> bool:
        """Take in what appears next, if anything does in time; False at the program's end."""
        ready, _, _ = select.select([self._terminal], [], [], max(0, seconds))
        if not ready:
            return self.process.poll() is None
        try:
            content = os.read(self._terminal, 65536)
        except OSError:  # Linux says so once no process has the terminal
            return False
        self.receive(content)
        return bool(content)

    @property
    def is_open(self) -> bool:
        """Whether the terminal has not been closed."""
        return self._terminal >= 0

    def hang_up(self) -> None:
        """Close the terminal, as a person does by closing its window."""
        os.close(self._terminal)
        self._terminal = -1

    def receive(self, content: bytes) -> None:
        """Keep what has just appeared."""
        self.seen += content.decode("utf-8", "replace")

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
        if self.is_open:
            self.hang_up()
