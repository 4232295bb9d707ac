"""Python that is being typed, as tokens: also where it is not complete, or wrong."""

from __future__ import annotations

import keyword
import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
  | (?P<string>(?P<prefix>[rRbBuUfFtT]{0,3})(?P<quote>\"\"\"|'''|\"|'))
  | (?P<name>[^\W\d]\w*)
  | (?P<number>\d[\w.]*)
  | (?P<space>[ \t\r\f\\]+)
  | (?P<newline>\n)
  | (?P<operator>.)
    """,
    re.VERBOSE,
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {closing: opening for opening, closing in _OPENING.items()}


class Token(NamedTuple):
    """A piece of code."""

    kind: str
    text: str
    start: int
    end: int


class OpenString(NamedTuple):
    """A string that is not closed where the code ends."""

    start: int
    """Where its prefix begins."""
    content_start: int
    prefix: str
    quote: str


class SourceText:
    """Code up to a place in it: its tokens, which brackets are open there, and which string is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.open_brackets: list[int] = []
        """Which tokens open brackets that are not closed, outermost first."""
        self.open_string: OpenString | None = None
        self.is_comment = False
        self._opener_of: dict[int, int] = {}
        self._read()

    def _read(self) -> None:
        position = 0
        while position < len(self.text):
            found = _TOKEN.match(self.text, position)
            if found is None:  # every character is a token
                return
            kind, end = found.lastgroup or "", found.end()
            if found["string"] is not None:
                kind, end = "string", self._end_of_string(found)
                if end < 0:
                    self.open_string = OpenString(
                        position, found.end(), found["prefix"].lower(), found["quote"]
                    )
                    return
            self.is_comment = kind == "comment"
            if kind not in ("space", "comment"):
                self._add(Token(kind, self.text[position:end], position, end))
            position = end

    def _end_of_string(self, found: re.Match[str]) -> int:
        """Where a string ends; -1 where it does not. One of a line ends with the line."""
        quote = found["quote"]
        position = found.end()
        while position < len(self.text):
            if self.text.startswith(quote, position):
                return position + len(quote)
            if self.text[position] == "\n" and len(quote) == 1:
                return position
            position += 2 if self.text[position] == "\\" else 1
        return -1

    def _add(self, token: Token) -> None:
        if token.kind == "operator" and token.text in _OPENING:
            self.open_brackets.append(len(self.tokens))
        elif token.kind == "operator" and token.text in _CLOSING and self.open_brackets:
            opener = self.open_brackets[-1]
            if self.tokens[opener].text == _CLOSING[token.text]:
                self._opener_of[len(self.tokens)] = self.open_brackets.pop()
        self.tokens.append(token)

    def expression_before(self, index: int) -> str:
        """The name, call, item or literal that ends just before a token; empty if none does."""
        last = index - 1
        start = self._start_of_operand(last)
        while start > 1 and self.tokens[start - 1].text == ".":
            before = self._start_of_operand(start - 2)
            if before > start - 2:
                return ""
            start = before
        if start > last:
            return ""
        return self.text[self.tokens[start].start : self.tokens[last].end]

    def _start_of_operand(self, index: int) -> int:
        """Where what ends with a token begins, with calls and items; `index + 1` if it is none."""
        position = index
        while position in self._opener_of:
            opener = self._opener_of[position]
            if opener == 0 or not self._can_be_called(opener - 1):
                return opener
            position = opener - 1
        return position if self._can_be_called(position) else index + 1

    def _can_be_called(self, index: int) -> bool:
        if index < 0 or index >= len(self.tokens):
            return False
        token = self.tokens[index]
        is_name = token.kind == "name" and not keyword.iskeyword(token.text)
        return is_name or token.kind in ("string", "number") or index in self._opener_of

    def words(self) -> set[str]:
        """The names that stand in it, but for attributes."""
        return {
            token.text
            for index, token in enumerate(self.tokens)
            if token.kind == "name" and (not index or self.tokens[index - 1].text != ".")
        }
