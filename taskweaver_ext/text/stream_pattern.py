"""Regular expressions that can be fed with a text piece by piece, in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_PATTERN = 4096
"""How many characters a match of a pattern can have."""

LONGEST_REPETITION = 1024
"""Where `*`, `+` and `{n,}` end."""

SHORTEST_MATCH = 6
"""A pattern that matches fewer characters would mask ordinary words."""

_LONGEST_SOURCE = 200


class StreamPattern:
    """A regular expression that can say of the end of a text that a match may begin there."""

    _ITEM = re.compile(
        r"(?P<one>\[\^?\]?(?:\\.|[^\]\\])*\]|\\[^\WbBAZ\d]|\\[\W_]|[^\\\[\](){}|^$*+?])"
        r"(?:(?P<sign>[*+?])|\{(?P<least>\d{1,4})(?P<range>,(?P<most>\d{1,4})?)?\})?",
        re.DOTALL,
    )

    def __init__(self, source: str) -> None:
        if len(source) > _LONGEST_SOURCE:
            raise ValueError(f"{source[:20]!r}… has more than {_LONGEST_SOURCE} characters.")
        items = list(self._items(source))
        self._shortest = sum(least for _, least, _ in items)
        longest = sum(most for _, _, most in items)
        if self._shortest < SHORTEST_MATCH:
            raise ValueError(
                f"{source!r} matches fewer than {SHORTEST_MATCH} characters and would mask too"
                " much."
            )
        if longest > LONGEST_PATTERN:
            raise ValueError(f"{source!r} matches more than {LONGEST_PATTERN:,} characters.")
        whole = "".join(f"{one}{{{least},{most}}}+" for one, least, most in items)
        unfinished = ""
        for one, least, most in reversed(items):
            longer = f"|{one}{{{least},{most}}}+{unfinished}" if unfinished else ""
            unfinished = f"(?:{one}{{0,{most - 1}}}+\\Z{longer})"
        head = self._needed_at_first(items)
        self._head_length = len(head)
        try:
            self._head = re.compile("".join(head))
            self._whole = re.compile(whole)
            self._here = re.compile(f"(?P<unfinished>{unfinished})|{whole}")
            self._is_line = not any(re.fullmatch(one, "\n") for one, _, _ in items)
            """Whether no match goes on behind the end of a line."""
        except re.error as error:
            raise ValueError(f"{source!r} is no pattern: {error}.") from None

    def scan(self, text: str, at: int, found: list[tuple[int, int]]) -> int:
        """Add what matches from `at` on, and return where a match may begin that is not decided."""
        tail = len(text) - self._head_length + 1
        if self._is_line:
            tail = max(tail, text.rfind("\n", at) + 1)
        while at < len(text):
            head = self._head.search(text, at)
            at = max(at, min(head.start() if head else tail, tail))
            match = self._here.match(text, at)
            if match is None:
                at += 1
            elif match["unfinished"] is not None:
                break
            else:
                found.append(match.span())
                at = match.end()
        return at

    def settle(self, text: str, at: int, found: list[tuple[int, int]]) -> int:
        """Do the same as if no more came; only for a match that is half there is still waited."""
        while (at := self.scan(text, at, found)) < len(text):
            match = self._whole.match(text, at)
            if match is not None:
                found.append(match.span())
                at = match.end()
            elif 2 * (len(text) - at) >= self._shortest:
                break
            else:
                at += 1
        return at

    def finish(self, text: str, at: int, found: list[tuple[int, int]]) -> None:
        """Add what matches from `at` on, where the text ends."""
        found += (match.span() for match in self._whole.finditer(text, at))

    def _items(self, source: str) -> Iterator[tuple[str, int, int]]:
        """Yield the parts of a pattern: what one character of it is, and how many there are."""
        at = 0
        while at < len(source):
            item = self._ITEM.match(source, at)
            if item is None:
                raise ValueError(
                    f"{source!r} has something at {source[at : at + 8]!r} that patterns do not"
                    " have: they are characters, classes such as [a-z] or \\d, and ?, *, +, {n} or"
                    " {n,m} behind one. Write one pattern for each alternative."
                )
            least, most = self._counts(item)
            if most:
                yield item["one"], least, most
            at = item.end()

    @staticmethod
    def _counts(item: re.Match[str]) -> tuple[int, int]:
        if item["sign"]:
            return int(item["sign"] == "+"), 1 if item["sign"] == "?" else LONGEST_REPETITION
        least = int(item["least"] or 1)
        if item["range"] is None:
            return least, least
        return least, int(item["most"] or max(least, LONGEST_REPETITION))

    @staticmethod
    def _needed_at_first(items: list[tuple[str, int, int]]) -> list[str]:
        """Return what the first characters of every match are, as far as their number is fixed."""
        head: list[str] = []
        for one, least, most in items:
            head += [one] * least
            if least != most or len(head) > SHORTEST_MATCH:
                break
        return head or [items[0][0] + "?"]
