"""Terminals that answer what a chat asks them, each in its own way, and keep pictures apart."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path

from tests.support.chat_terminal import PROMPT, ChatTerminal

NAME_QUERY = b"\x1b[>0q"
DEVICE_QUERY = b"\x1b[c"
KITTY_QUERY = b"a=q"
ITERM_QUERY = b"\x1b]1337;ReportCellSize"

_KITTY = re.compile(rb"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\")
_ITERM = re.compile(rb"\x1b\]1337;File=([^:\x07]*):([A-Za-z0-9+/=]*)\x07")
_STRINGS = re.compile(rb"\x1b[_\]][^\x1b\x07]*(?:\x1b\\|\x07)")
_OPEN_STRING = re.compile(rb"\x1b[_\]][^\x1b\x07]*\x1b?\Z")


class PictureTerminal(ChatTerminal):
    """Answers queries as `answers` says; `delay` makes it a terminal that is far away."""

    def __init__(
        self,
        project: Path,
        answers: dict[bytes, str],
        *,
        delay: float = 0.0,
        columns: int = 80,
        **variables: str,
    ) -> None:
        self.asked: list[bytes] = []
        self.raw = b""
        self._answers = answers
        self._delay = delay
        self._looked_at = 0
        self._unfed = b""
        super().__init__(project, columns=columns, rows=24, first_sight=PROMPT, **variables)

    def receive(self, content: bytes) -> None:
        self.raw += content
        seen = self.raw[self._looked_at :]
        queries = (NAME_QUERY, KITTY_QUERY, ITERM_QUERY, DEVICE_QUERY)
        found = sorted((seen.find(one), one) for one in queries if one in seen)
        for _, query in found:
            self.asked.append(query)
            time.sleep(self._delay)
            if answer := self._answers.get(query):
                self.press(answer)
        if found:
            last = max(position + len(query) for position, query in found)
            self._looked_at += last
        text = self._unfed + content
        unfinished = _OPEN_STRING.search(text)
        cut = unfinished.start() if unfinished else len(text)
        self._unfed = text[cut:]
        super().receive(_STRINGS.sub(b"", text[:cut]))

    @property
    def kitty_pictures(self) -> list[tuple[str, bytes]]:
        """What was transmitted by kitty's protocol: the keys of the first piece, and the file."""
        pictures: list[tuple[str, bytes]] = []
        for keys, letters in _KITTY.findall(self.raw):
            if b"a=T" in keys:
                pictures.append((keys.decode(), b""))
            if pictures and b"a=q" not in keys:
                first, sent = pictures[-1]
                pictures[-1] = first, sent + letters
        return [(keys, base64.b64decode(sent)) for keys, sent in pictures]

    @property
    def iterm_pictures(self) -> list[tuple[str, bytes]]:
        """What was transmitted by iTerm2's protocol."""
        return [(keys.decode(), base64.b64decode(sent)) for keys, sent in _ITERM.findall(self.raw)]


DEVICE = {DEVICE_QUERY: "\x1b[?62;22c"}
KITTY = {
    **DEVICE,
    NAME_QUERY: "\x1bP>|kitty(0.40.0)\x1b\\",
    KITTY_QUERY: "\x1b_Gi=31;OK\x1b\\",
}
ITERM = {
    **DEVICE,
    NAME_QUERY: "\x1bP>|iTerm2 3.5.0\x1b\\",
    ITERM_QUERY: "\x1b]1337;ReportCellSize=16.0;8.0\x1b\\",
}
TMUX = {**DEVICE, NAME_QUERY: "\x1bP>|tmux 3.4\x1b\\"}
