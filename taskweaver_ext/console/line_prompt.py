"""Asks by plain lines, on a terminal that can only print: each answer is a line, or some."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Protocol

from taskweaver_ext.console.inbox import Question
from taskweaver_ext.console.prompt import QuestionRefusedError
from taskweaver_ext.text.terminal import message_text

_END_OF_CODE = "."


class LineSource(Protocol):
    """Where lines come from; a wait for one can be disturbed."""

    def read_line(
        self, *, is_hidden: bool = False, on_wake: Callable[[], bool] | None = None
    ) -> str | None:
        """Wait for a line; None at the end, when cancelled, or when `on_wake` returns False."""

    def wake(self) -> None:
        """Have `on_wake` called on the thread that waits for a line; for any thread."""

    def set_typed_aside(self) -> None:
        """Keep what was typed so far from being the next line."""

    def bring_back(self) -> None:
        """Let what was set aside be the next lines."""


class LinePrompt:
    """Asks questions on the thread that owns the terminal.

    Threads:
        `ask` is for that thread, all else for any; what they have to say waits in `_calls`.
    """

    how_to_edit = (
        "Type what is to run instead, then a line with a dot alone. A dot at once, or Ctrl-C,"
        " leaves it as it was."
    )

    def __init__(self, lines: LineSource, write: Callable[[str], object]) -> None:
        """Prepare to ask.

        Args:
            write: Shows a text that ends amid a line.
        """
        self.on_begin: Callable[[], None] | None = None
        """Called on the prompt's thread as soon as a question waits."""
        self._lines = lines
        self._write = write
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ending: type[Exception] | None = None
        """What a question that waits is to be ended with."""

    def ask(self, question: Question) -> str:
        """Wait for an answer; what was typed before the question is none.

        Raises:
            EOFError: Ctrl-D, or a call of `withdraw`.
            QuestionRefusedError: A call of `give_up`.
        """
        self._ending = None
        if question.question_id and not question.is_optional:
            self._lines.set_typed_aside()
        if self.on_begin is not None:
            self.on_begin()
        try:
            return self._ask_for_code() if question.language else self._ask_for_line(question)
        finally:
            self._lines.bring_back()

    def run_above(self, show: Callable[[], None]) -> None:
        """Call `show` on the prompt's thread; from any thread."""
        self._calls.put(show)
        self._lines.wake()

    def withdraw(self) -> None:
        """Make a question that waits raise EOFError; from any thread."""
        self._end(EOFError)

    def give_up(self) -> None:
        """Make a question that waits raise QuestionRefusedError; from any thread."""
        self._end(QuestionRefusedError)

    def _end(self, ending: type[Exception]) -> None:
        self._ending = self._ending or ending
        self._lines.wake()

    def _ask_for_line(self, question: Question) -> str:
        # Kernels ask for a password without a word.
        words = question.prompt or ("Password: " if question.is_secret else "")
        if question.default:
            words = f"{words.rstrip(' :')} [{question.default}]: "
        self._write(message_text(words))
        line = self._read(is_hidden=question.is_secret)
        if question.is_secret:
            self._write("\n")  # Enter was not shown either
        return line or question.default

    def _ask_for_code(self) -> str:
        lines: list[str] = []
        while (line := self._read()) != _END_OF_CODE:
            lines.append(line)
        if not lines:
            raise QuestionRefusedError
        return "\n".join(lines)

    def _read(self, *, is_hidden: bool = False) -> str:
        line = self._lines.read_line(is_hidden=is_hidden, on_wake=self._on_wake)
        if line is None:
            self._write("\n")
            raise self._ending or EOFError
        return line

    def _on_wake(self) -> bool:
        """Do what other threads want; whether the question still waits."""
        while True:
            try:
                self._calls.get_nowait()()
            except queue.Empty:
                return self._ending is None
