"""Texts that try to drive a terminal, hide or reorder, and what may arrive of them."""

from __future__ import annotations

import re

from taskweaver_ext.text.hidden_characters import HiddenCharacters

EVIL = (
    "evil\x1b]0;title\x07\x1b]52;c;aGk=\x1b\\\x1b[2J\x1b[31;5m\x9b3A\x9d0;t\x9c\x1bP1;q\x1b\\"
    "\rover\b\x01\x7f\x85\u202eright\u2066\u200bzero\U000e0041tag\u2060" + "z" + "\u0301" * 40
)
"""Neither NUL nor slash, surrogate or newline: it may be an argument, a file's name, JSON."""

_PLAIN = re.compile("[^\x00-\x08\x0b-\x1f\x7f-\x9f]*")
_COLORS = re.compile("\x1b\\[[0-9;:]*m")
_OF_A_CHAT = re.compile(
    "\x1b\\[(?:>0q|c|\\?(?:7|25|12|2026|2004|1)[hl]"
    "|[0-9]*[ABCDGKJPX]|[0-9;]*H|6n|0?K|>4;[0-9]m|[0-9] q)"
)
"""How our rows and the prompt move the cursor; no hostile text above asks for just these."""


def complaints_about(received: bytes, *, is_chat: bool = False) -> list[str]:
    """What arrived at a terminal and is neither text nor a plain colour, nor a chat's drawing."""
    text = _COLORS.sub("", received.decode("utf-8"))
    if is_chat:
        text = _OF_A_CHAT.sub("", text)
    text = re.sub("\r+\n", "\n", text)
    if is_chat:
        text = re.sub("[\r\x08]", "", text)
    found = [repr(line) for line in text.split("\n") if not _PLAIN.fullmatch(line)]
    if HiddenCharacters().feed(text) != text:
        found.append("a hidden character")
    return found
