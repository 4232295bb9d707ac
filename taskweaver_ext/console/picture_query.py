"""Asks a terminal whether it shows pictures, without losing what is typed meanwhile."""

from __future__ import annotations

import codecs
import os
import select
import sys
import time
from typing import Protocol

from taskweaver_ext.console.screen import TerminalScreen
from taskweaver_ext.console.terminal_answers import TerminalAnswers

ANSWER_SECONDS = 0.15
"""How long a terminal may take; one that does not answer costs so much, once."""
LATE_SECONDS = 5.0
"""So long answers that come too late are kept from what is typed."""


class Keyboard(Protocol):
    """Where what is typed goes."""

    def type_ahead(self, typed: str) -> None:
        """Receive what was typed before the prompt was there."""

    def ignore(self, answers: TerminalAnswers, seconds: float) -> None:
        """Keep answers of the terminal from the prompt for so long."""


class PictureQuery:
    """One conversation with the terminal; for the thread that owns it, with echo off.

    First it is asked who it is. Only one that answers, and is no multiplexer, which might take
    the question for something else, is asked whether it shows pictures.
    """

    def __init__(self, screen: TerminalScreen, descriptor: int = 0) -> None:
        self._screen = screen
        self._descriptor = descriptor
        self._answers = TerminalAnswers()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._typed: list[str] = []

    def ask(self) -> None:
        """Ask who it is; other things can be done until `finish`."""
        self._screen.ask("device")

    def finish(self, keyboard: Keyboard) -> TerminalAnswers:
        """Wait for its answers, a short time for each; what was typed goes to the keyboard."""
        is_there = self._wait_for(1)
        if is_there and not self._answers.is_multiplexer:
            self._screen.ask("pictures")
            is_there = self._wait_for(2)
        if not is_there:
            keyboard.ignore(self._answers, LATE_SECONDS)
        else:
            self._typed.append(self._answers.close())
        keyboard.type_ahead("".join(self._typed))
        return self._answers

    def _wait_for(self, count: int) -> bool:
        deadline = time.monotonic() + ANSWER_SECONDS
        while self._answers.device_answers < count:
            left = deadline - time.monotonic()
            if sys.platform == "win32" or not _is_ready(self._descriptor, left):
                return False
            content = os.read(self._descriptor, 4096)
            if not content:
                return False
            self._typed.append(self._answers.feed(self._decoder.decode(content)))
        return True


def _is_ready(descriptor: int, seconds: float) -> bool:
    # What has come already counts, also when we are late ourselves.
    return bool(select.select([descriptor], [], [], max(0.0, seconds))[0])
