"""Make sure that what is run is code, and not the form in which a model wrapped it.

One Markdown fence around the whole is taken off, while the code streams
(`FenceStripper`) or afterwards (`clean_code`). Other leftovers (channel tags,
thinking tags, a fence that remains) mean that the reply was not understood:
such code is refused (`find_leftover`), because half of it may be prose.
"""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

MAX_EXCERPT_LENGTH = 80
FENCE_MARKER = "markdown_fence_or_backtick"

_TAG_MARKERS = {
    marker: re.compile(re.escape(marker), re.IGNORECASE | re.ASCII)
    for marker in ("<channel:", "</channel:", "<thinking>", "</thinking>", "<think>", "</think>")
}

_HELD_LENGTH = 64
_LANGUAGE = r"[\w+#.-]*+"
_OPENING_FENCE = re.compile(rf"\s*`{{3,}}+{_LANGUAGE}[ \t]*+(?:\r?\n|(?=\S))")
_ONLY_AN_OPENING_FENCE = re.compile(rf"\s*`{{3,}}+{_LANGUAGE}\s*")
_BEGINNING_OF_A_FENCE = re.compile(rf"\s*(?:`{{1,2}}|`{{3,}}+{_LANGUAGE}[ \t]*\r?)?")
_CLOSING_FENCE = re.compile(r"\s*`{3,}\s*")

_TEXT_TOKENS = frozenset(
    {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
)


@dataclass(frozen=True, slots=True)
class ProtocolLeftover:
    """Something in code that belongs to the form of the reply."""

    marker: str
    """The tag's beginning, or `FENCE_MARKER`."""
    line: int
    """Counted from 1 at the start of the code."""
    excerpt: str
    """That line from the marker on, cut to 80 characters."""

    @property
    def message(self) -> str:
        """What happened and what it cost, for people and for the model."""
        return (
            f"Line {self.line} of the code is not code ({self.excerpt!r}); nothing was run. "
            "Write the code alone, without tags and fences."
        )


class FenceStripper:
    """Take one fence off the text that it encloses, while the text streams.

    Text after the language on the opening line belongs to what is enclosed.
    Text that does not start with a fence passes unchanged. Where a fence was
    opened, white space and backticks at the end wait, 64 characters at most:
    they may be the closing one.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_fenced: bool | None = None

    def feed(self, chunk: str) -> str:
        """Take the next piece and return what is known to be content."""
        data = self._held + chunk
        if self._is_fenced is None:
            data = self._after_opening(data)
        if not self._is_fenced:
            return data
        content = data.rstrip().rstrip("`").rstrip()
        held_from = max(len(content), len(data) - _HELD_LENGTH)
        self._held = data[held_from:]
        return data[:held_from]

    def close(self) -> str:
        """Return what waited and is no fence."""
        held, self._held = self._held, ""
        fence = _CLOSING_FENCE if self._is_fenced else _ONLY_AN_OPENING_FENCE
        return "" if fence.fullmatch(held) else held

    def _after_opening(self, data: str) -> str:
        """Return the content in the first piece, or nothing as long as a fence may open in it."""
        head = data[:_HELD_LENGTH]
        if len(data) < _HELD_LENGTH and _BEGINNING_OF_A_FENCE.fullmatch(head):
            self._held = data
            return ""
        self._held = ""
        opening = _OPENING_FENCE.match(head)
        self._is_fenced = opening is not None
        return data[opening.end() :] if opening else data


def clean_code(code: str) -> str:
    """Return the code without the fence around it, if there is one."""
    stripper = FenceStripper()
    return stripper.feed(code) + stripper.close()


def find_leftover(code: str, language: str = "python") -> ProtocolLeftover | None:
    """Return what in the code is a leftover of the protocol, if anything is.

    Tags in strings and comments of Python are code like any other. A leading
    backtick alone can be code in other languages, but not in Python.
    """
    start = len(code) - len(code.lstrip())
    fence = "`" if language == "python" else "```"
    if code.startswith(fence, start):
        return _leftover(code, start, FENCE_MARKER)
    has_tags = any(pattern.search(code) for pattern in _TAG_MARKERS.values())
    if not has_tags:
        return None
    searched = _without_strings(code) if language == "python" else code
    for marker, pattern in _TAG_MARKERS.items():
        if found := pattern.search(searched):
            return _leftover(code, found.start(), marker)
    return None


def _leftover(code: str, at: int, marker: str) -> ProtocolLeftover:
    rest_of_line = code[at : at + MAX_EXCERPT_LENGTH].splitlines()[0]
    return ProtocolLeftover(marker, code.count("\n", 0, at) + 1, rest_of_line.rstrip())


def _without_strings(code: str) -> str:
    """Return Python code of the same length with its strings and comments blanked out.

    What cannot be read as Python is returned as it is.
    """
    line_starts = [0]
    for line in io.StringIO(code):
        line_starts.append(line_starts[-1] + len(line))
    parts: list[str] = []
    kept_until = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type in _TEXT_TOKENS:
                start = line_starts[token.start[0] - 1] + token.start[1]
                end = line_starts[token.end[0] - 1] + token.end[1]
                parts += code[kept_until:start], " " * (end - start)
                kept_until = end
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code
    return "".join(parts) + code[kept_until:]
