"""Lines from our standard input for code that asks; a question can be withdrawn."""

from __future__ import annotations

import contextlib
import os
import select
import termios
from collections.abc import Callable, Iterator

_STDIN = 0
_READ_BYTES = 65536
_CANCEL = b"x"
_WAKE = b"w"


def is_terminal() -> bool:
    """Whether a person types what comes in."""
    return os.isatty(_STDIN)


class StandardInput:
    """Read lines without Python's buffer, whose lock a waiting thread would never give back.

    Threads:
        One thread at a time reads; `cancel`, `wake` and `close` are for another one.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._aside = b""
        """What was typed before a question, and is no answer to it."""
        self._cancelled, self._cancel = os.pipe()
        self._visible_typing: list[int | list[bytes | int]] | None = None

    def read_line(
        self, *, is_hidden: bool = False, on_wake: Callable[[], bool] | None = None
    ) -> str | None:
        """Wait for a line and return it without its end; None at the end or when cancelled.

        Args:
            is_hidden: Whether what is typed is not to be seen.
            on_wake: Called on this thread after each `wake`; False ends the wait.
        """
        with self._hide_typing() if is_hidden and is_terminal() else contextlib.nullcontext():
            while b"\n" not in self._pending:
                readable, _, _ = select.select([_STDIN, self._cancelled], [], [])
                if self._cancelled in readable:
                    is_cancelled = os.read(self._cancelled, 1) == _CANCEL
                    if is_cancelled or (on_wake is not None and not on_wake()):
                        return None
                    continue
                if not (piece := self._read_piece()):
                    rest, self._pending = self._pending, b""
                    return rest.decode("utf-8", "replace") or None
                self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line.removesuffix(b"\r").decode("utf-8", "replace")

    def cancel(self) -> None:
        """Withdraw the question: make `read_line` return."""
        os.write(self._cancel, _CANCEL)

    def wake(self) -> None:
        """Have `on_wake` called where `read_line` waits, or will."""
        os.write(self._cancel, _WAKE)

    def set_typed_aside(self) -> None:
        """Keep the lines that were typed so far for after the next ones."""
        while select.select([_STDIN], [], [], 0)[0] and (piece := self._read_piece()):
            self._pending += piece
        self._aside, self._pending = self._aside + self._pending, b""

    def bring_back(self) -> None:
        """Let what was set aside be the next lines."""
        self._pending, self._aside = self._aside + self._pending, b""

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
