"""What a terminal answers when it is asked what it can show, kept apart from what is typed.

Pure: what comes from the terminal in pieces goes in, what a person has typed comes out.
"""

from __future__ import annotations

import re

from taskweaver_ext.console.pictures import Protocol

MAX_ANSWER_CHARS = 256
"""What is longer is no answer."""

_ANSWER = re.compile(
    rf"""
    \x1b\[\? (?P<device> [0-9;]{{0,{MAX_ANSWER_CHARS}}} ) c
  | \x1bP>\| (?P<name> [^\x00-\x1f\x7f]{{0,{MAX_ANSWER_CHARS}}} ) (?: \x1b\\ | \x07 )
  | \x1b_G (?P<kitty> [^\x00-\x1f\x7f]{{0,{MAX_ANSWER_CHARS}}} ) \x1b\\
  | \x1b\]1337; (?P<iterm> ReportCellSize=[0-9.;]{{0,{MAX_ANSWER_CHARS}}} ) (?: \x1b\\ | \x07 )
    """,
    re.VERBOSE,
)
_BEGINNING = re.compile(
    rf"\x1b(?:\[(?:\?[0-9;]{{0,{MAX_ANSWER_CHARS}}})?"
    rf"|P[^\x00-\x1f\x7f]{{0,{MAX_ANSWER_CHARS}}}\x1b?"
    rf"|_G?[^\x00-\x1f\x7f]{{0,{MAX_ANSWER_CHARS}}}\x1b?"
    rf"|\][0-9;]{{0,5}}[^\x00-\x1f\x7f]{{0,{MAX_ANSWER_CHARS}}}\x1b?)\Z"
)
"""An answer that goes on in the next piece; a lone ESC is a key."""
_MULTIPLEXERS = ("tmux", "screen", "zellij")


class TerminalAnswers:
    """Takes all that comes from a terminal, and hears its answers in it."""

    def __init__(self) -> None:
        self.device_answers = 0
        """How often it has said what it is: it does so after all other answers."""
        self.name = ""
        """What it calls itself, if it says so."""
        self._shows_kitty = False
        self._shows_iterm = False
        self._held = ""

    @property
    def is_multiplexer(self) -> bool:
        """Whether it stands between us and another terminal, and keeps pictures to itself."""
        return self.name.lower().startswith(_MULTIPLEXERS)

    @property
    def protocol(self) -> Protocol | None:
        """How it wants to be sent pictures, if it has said that it shows them."""
        if self._shows_kitty:
            return "kitty"
        return "iterm2" if self._shows_iterm else None

    def feed(self, text: str) -> str:
        """Take the next piece, and return what in it was typed."""
        typed = _ANSWER.sub(self._hear, self._held + text)
        beginning = _BEGINNING.search(typed)
        self._held = beginning[0] if beginning else ""
        return typed[: beginning.start()] if beginning else typed

    def close(self) -> str:
        """Return what looked like the beginning of an answer."""
        held, self._held = self._held, ""
        return held

    def _hear(self, answer: re.Match[str]) -> str:
        if answer["device"] is not None:
            self.device_answers += 1
        elif answer["name"] is not None:
            self.name = answer["name"]
        elif answer["kitty"] is not None:
            self._shows_kitty = answer["kitty"].endswith(";OK")
        else:
            self._shows_iterm = True
        return ""
