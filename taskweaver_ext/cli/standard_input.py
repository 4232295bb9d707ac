"""Lines from our standard input for code that asks; a question can be withdrawn."""

from __future__ import annotations

import contextlib
import os
import select
import termios
from collections.abc import Iterator

_STDIN = 0
_READ_BYTES = 65536


def is_terminal() -> bool:
    """Whether a person types what comes in."""
    return os.isatty(_STDIN)


class StandardInput:
    """Read lines without Python's buffer, whose lock a waiting thread would never give back.

    Threads:
        One thread at a time reads; `cancel` and `close` are for another one.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._cancelled, self._cancel = os.pipe()
        self._visible_typing: list[int | list[bytes | int]] | None = None

    def read_line(self, *, is_hidden: bool = False) -> str | None:
        """Wait for a line and return it without its end; None at the end or when cancelled."""
        with self._hide_typing() if is_hidden and is_terminal() else contextlib.nullcontext():
            while b"\n" not in self._pending:
                readable, _, _ = select.select([_STDIN, self._cancelled], [], [])
                if self._cancelled in readable:
                    os.read(self._cancelled, 1)
                    return None
                if not (piece := self._read_piece()):
                    rest, self._pending = self._pending, b""
                    return rest.decode("utf-8", "replace") or None
                self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line.removesuffix(b"\r").decode("utf-8", "replace")

    def cancel(self) -> None:
        """Withdraw the question: make `read_line` return."""
        os.write(self._cancel, b"x")

    def close(self) -> None:
        """Leave the terminal as it was; a thread that still reads is let go."""
        self.cancel()
        self._show_typing()

    @staticmethod
    def _read_piece() -> bytes:
        try:
            return os.read(_STDIN, _READ_BYTES)
        except OSError:  # the terminal is gone, or standard input was closed
            return b""

    @contextlib.contextmanager
    def _hide_typing(self) -> Iterator[None]:
        self._visible_typing = termios.tcgetattr(_STDIN)
        hidden = termios.tcgetattr(_STDIN)
        hidden[3] &= ~termios.ECHO
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, hidden)
        try:
            yield
        finally:
            self._show_typing()

    def _show_typing(self) -> None:
        attributes, self._visible_typing = self._visible_typing, None
        if attributes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, attributes)
