"""Find the fenced code blocks of a Markdown text.

Pure, in linear time, by CommonMark's rules for fences; those inside lists and quotes count too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"([ \t>]*)(`{3,}|~{3,})[ \t]*([^\n]*)")
_NOT_CODE = {"text", "txt", "plain", "plaintext", "output", "console", "markdown", "md"}
_MAX_LANGUAGE_CHARS = 30


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block."""

    language: str
    """In lower case, as the text has it."""
    code: str
    line: int
    """The line of its opening fence, from 0."""
    indent: str
    """What stands before the fence."""


def code_fences(text: str) -> list[Fence]:
    """Return the fenced blocks that say which language they are in, in their order.

    A block whose end is missing goes on to the end of the text.
    """
    found: list[Fence] = []
    opened: re.Match[str] | None = None
    at, body = 0, list[str]()
    for number, line in enumerate([*text.split("\n"), None]):
        if opened is None:
            opened = _FENCE.fullmatch(line) if line is not None else None
            if opened is not None and opened[2][0] == "`" and "`" in opened[3]:
                opened = None  # code within a line
            at, body = number, []
        elif line is None or _closes(opened, line):
            if language := _language_of(opened[3]):
                found.append(Fence(language, "\n".join(body), at, opened[1]))
            opened = None
        else:
            body.append(_without(line, opened[1]))
    return found


def _closes(opened: re.Match[str], line: str) -> bool:
    mark = line.strip(" \t>")
    return len(mark) >= len(opened[2]) and not mark.strip(opened[2][0])


def _language_of(words: str) -> str:
    """The language that a fence names; empty where it names none, or one that is no code."""
    first = re.split(r"[\s{,:]", words.strip().lstrip("{."), maxsplit=1)[0]
    language = first.strip("}").lower()[:_MAX_LANGUAGE_CHARS]
    return "" if language in _NOT_CODE else language


def _without(line: str, indent: str) -> str:
    """A line of a block without what stands before its fence."""
    if line.startswith(indent):
        return line[len(indent) :]
    return line[min(len(indent), len(line) - len(line.lstrip(" \t>"))) :]
