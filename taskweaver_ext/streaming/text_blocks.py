"""Split a streamed answer into prose, thinking and code.

For models that answer freely, in Markdown or with simple tags, instead of in
channels. Linear in time, bounded in memory, independent of where the chunks
are cut; text waits only while it may be part of a tag or fence, for at most
66 characters (a line end, 32 blanks and 32 backticks in code).

- `<python>`, `<shell>`, `<think>` and `<detail>` open a block, which only their
  own closing tag ends. Blanks, a prefix (`<ns:python>`), capitals and aliases are
  accepted; a tag longer than 50 characters, or with a line end in it, is text.
  So is a tag in inline code (`BacktickTracker.quoted_until`), and an unknown one.
- Three or more backticks open a block of code, if nothing but a language
  follows them on the line (at the start of a line: also attributes, or code).
  At least as many at the start of a line, with no word behind them, end it.
- The line end after the opening of a code block, and the one before its
  closing, belong to neither. White space after a block is dropped.
- What is still open at the end is completed there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from taskweaver_ext.streaming.quoting import NOT_QUOTED, UNDECIDED, BacktickTracker

BlockKind: TypeAlias = Literal["prose", "thinking", "detail", "code"]

_TAG_BLOCKS: dict[str, tuple[BlockKind, str]] = {
    **dict.fromkeys(("python", "py", "code"), ("code", "python")),
    **dict.fromkeys(("shell", "bash", "sh", "cmd", "tool_call"), ("code", "bash")),
    **dict.fromkeys(("think", "thinking"), ("thinking", "")),
    "detail": ("detail", ""),
}
_LANGUAGE_ALIASES = {
    "py": "python",
    "python3": "python",
    "sh": "bash",
    "shell": "bash",
    "js": "javascript",
    "node": "javascript",
}

_MAX_ROW = 32  # longer rows of backticks are decoration
_MARK = re.compile("<|`+")
_TAG = re.compile(
    r"(?=<[^<>\n]{1,48}>)<[ \t]*(?P<slash>/?)[ \t]*(?:[\w-]+:)?(?P<name>[\w-]+)[ \t]*>", re.ASCII
)
_BEGINNING_OF_A_TAG = re.compile(
    r"(?=<[^<>\n]{0,48}\Z)<[ \t]*/?[ \t]*(?:[\w-]+:?)?[\w-]*[ \t]*\Z", re.ASCII
)
_OPENING_FENCE = re.compile(
    rf"(?P<row>`{{3,{_MAX_ROW}}}+)(?!`)[ \t]*+(?P<language>[\w+#.-]*+)(?P<rest>[^\n`]*+)\n"
)
_BEGINNING_OF_A_FENCE = re.compile(rf"(?:`{{1,2}}|`{{3,{_MAX_ROW}}}+[^\n`]*+)\Z")
_FENCE_ATTRIBUTES = re.compile(r"\s*(?:\{[^{}]*\}|[\w-]+=.*)?\s*")
_MAX_OPENING_LENGTH = 64
_CLOSING_AT_ONCE = re.compile(rf"[ \t]{{0,32}}(?P<row>`{{3,{_MAX_ROW}}}+)(?!`)")
_CLOSING_FENCE = re.compile("\n" + _CLOSING_AT_ONCE.pattern)
_BEGINNING_AT_ONCE = re.compile(rf"[ \t]{{0,32}}`{{0,{_MAX_ROW}}}\Z")
_BEGINNING_OF_A_CLOSING = re.compile("\n" + _BEGINNING_AT_ONCE.pattern)


@dataclass(frozen=True, slots=True)
class BlockPiece:
    """Some more text of a block, or its end."""

    index: int
    """Counts the blocks of the answer, from 0."""
    kind: BlockKind
    language: str
    """Of code, in small letters; empty when it was not named."""
    text: str
    completed: bool
    """True, with no text, for the last piece of a block."""


@dataclass(frozen=True, slots=True)
class _Block:
    kind: BlockKind
    language: str = ""
    fence_length: int = 0
    """Of the row that opened it; 0 when a tag did."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """Where a block ends: at `data[start:end]`, which is no text."""

    start: int
    end: int
    next_block: _Block | None
    """None when it is not yet known whether this is an edge."""


_PROSE = _Block("prose")


class TextBlockSplitter:
    """Turn the chunks of one answer into pieces of its blocks."""

    def __init__(self) -> None:
        self._block = _PROSE
        self._index = 0
        self._has_begun = False  # whether this block said anything yet
        self._skips_space = False
        self._is_line_blank = True
        self._backticks = BacktickTracker(has_fences=False)
        self._held = ""

    def feed(self, chunk: str) -> list[BlockPiece]:
        """Take the next chunk of the answer and return what it says, in order."""
        return self._read(self._held + chunk if self._held else chunk, is_last=False)

    def close(self) -> list[BlockPiece]:
        """Return what was still waiting, and complete the last block."""
        pieces = self._read(self._held, is_last=True)
        self._enter(_PROSE, pieces)
        return pieces

    def _read(self, data: str, *, is_last: bool) -> list[BlockPiece]:
        pieces: list[BlockPiece] = []
        at = 0
        while edge := self._find_edge(data, at, is_last=is_last):
            self._say(data[at : edge.start], pieces)
            at = edge.start
            if edge.next_block is None:
                break
            self._enter(edge.next_block, pieces)
            at = edge.end
        else:
            self._say(data[at:], pieces)
            at = len(data)
        self._held = data[at:]
        return pieces

    def _say(self, text: str, pieces: list[BlockPiece]) -> None:
        if self._skips_space:
            text = text.lstrip()
        if text:
            self._has_begun, self._skips_space = True, False
            block = self._block
            pieces.append(BlockPiece(self._index, block.kind, block.language, text, False))

    def _enter(self, block: _Block, pieces: list[BlockPiece]) -> None:
        ended = self._block
        if ended != _PROSE or self._has_begun:
            pieces.append(BlockPiece(self._index, ended.kind, ended.language, "", True))
            self._index += 1
        self._skips_space = ended != _PROSE
        self._block, self._has_begun = block, False
        self._is_line_blank = True
        self._backticks = BacktickTracker(has_fences=False)

    def _find_edge(self, data: str, at: int, *, is_last: bool) -> _Edge | None:
        if self._block == _PROSE:
            return self._find_opening(data, at, is_last=is_last)
        if self._block.fence_length:
            return self._find_closing_fence(data, at, is_last=is_last)
        return self._find_closing_tag(data, at, is_last=is_last)

    def _find_opening(self, data: str, at: int, *, is_last: bool) -> _Edge | None:
        noted = at
        while mark := _MARK.search(data, at):
            self._note(data[noted : mark.start()])
            noted = mark.start()
            find = self._opening_tag if mark[0] == "<" else self._opening_fence
            found = find(data, mark, is_last=is_last)
            if isinstance(found, _Edge):
                return found
            at = found
        self._note(data[noted:])
        return None

    def _note(self, text: str) -> None:
        self._backticks.advance(text)
        line = text[text.rfind("\n") + 1 :]
        is_blank = not line.strip(" \t")
        self._is_line_blank = is_blank and (self._is_line_blank or len(line) < len(text))

    def _opening_tag(self, data: str, mark: re.Match[str], *, is_last: bool) -> _Edge | int:
        """Return the edge at a `<`, or how far the text goes on."""
        start = mark.start()
        tag = _TAG.match(data, start)
        if tag is None:
            may_become = not is_last and _BEGINNING_OF_A_TAG.match(data, start)
            return _Edge(start, start, None) if may_become else start + 1
        kind, language = _TAG_BLOCKS.get(tag["name"].lower(), ("prose", ""))
        if kind == "prose" or tag["slash"]:
            return tag.end()
        self._backticks.end_row()
        hidden_until = self._backticks.quoted_until(data, start, tag.end(), is_last=is_last)
        if hidden_until == UNDECIDED:
            return _Edge(start, start, None)
        if hidden_until != NOT_QUOTED:
            return hidden_until
        end = tag.end()
        if kind == "code":  # the line end after the tag belongs to the tag
            if end == len(data) and not is_last:
                return _Edge(start, start, None)
            end += data.startswith("\n", end)
        return _Edge(start, end, _Block(kind, language))

    def _opening_fence(self, data: str, mark: re.Match[str], *, is_last: bool) -> _Edge | int:
        """Return the edge at a row of backticks, or how far the text goes on."""
        if self._backticks.is_in_row:
            return mark.end()  # the rest of a row that was too long
        start = mark.start()
        window = start + _MAX_OPENING_LENGTH
        fence = _OPENING_FENCE.match(data, start, window)
        if fence is None:
            begins = _BEGINNING_OF_A_FENCE.match(data, start)
            may_become = begins and len(data) < window and not is_last
            return _Edge(start, start, None) if may_become else mark.end()
        rest = fence["rest"]
        if rest.strip() and not self._is_line_blank:
            return mark.end()
        language = fence["language"].lower()
        block = _Block(
            "code", _LANGUAGE_ALIASES.get(language, language), fence_length=len(fence["row"])
        )
        has_code = not _FENCE_ATTRIBUTES.fullmatch(rest)
        code_start = fence.start("rest") + len(rest) - len(rest.lstrip())
        return _Edge(start, code_start if has_code else fence.end(), block)

    def _find_closing_tag(self, data: str, at: int, *, is_last: bool) -> _Edge | None:
        own = (self._block.kind, self._block.language)
        first = at
        while (start := data.find("<", at)) >= 0:
            tag = _TAG.match(data, start)
            if tag and tag["slash"] and _TAG_BLOCKS.get(tag["name"].lower()) == own:
                return _Edge(self._before_newline(data, first, start), tag.end(), _PROSE)
            if tag is None and not is_last and _BEGINNING_OF_A_TAG.match(data, start):
                return _Edge(self._before_newline(data, first, start), start, None)
            at = start + 1
        end = self._before_newline(data, first, len(data))
        return None if is_last or end == len(data) else _Edge(end, end, None)

    def _before_newline(self, data: str, first: int, end: int) -> int:
        """Let the line end before the tag that closes code belong to the tag."""
        is_markup = self._block.kind == "code" and end > first and data[end - 1] == "\n"
        return end - 1 if is_markup else end

    def _find_closing_fence(self, data: str, at: int, *, is_last: bool) -> _Edge | None:
        at_once = not self._has_begun
        fence = _CLOSING_AT_ONCE.match(data, at) if at_once else None
        fence = fence or _CLOSING_FENCE.search(data, at)
        while fence:
            end = fence.end()
            if end == len(data) and not is_last:
                return _Edge(fence.start(), end, None)
            is_followed_by_word = end < len(data) and (data[end].isalnum() or data[end] == "_")
            if len(fence["row"]) >= self._block.fence_length and not is_followed_by_word:
                return _Edge(fence.start(), end, _PROSE)
            fence = _CLOSING_FENCE.search(data, end)
        begins = _BEGINNING_AT_ONCE.match(data, at) if at_once else None
        begins = begins or _BEGINNING_OF_A_CLOSING.search(data, at)
        return None if is_last or begins is None else _Edge(begins.start(), begins.start(), None)
