"""A value that must not be seen: a key that prints as stars, and text with the key taken out."""

from __future__ import annotations

import json
from typing import NoReturn, Self
from urllib.parse import quote, quote_plus

STARS = "****"

SHORTEST_MASKED = 4
"""Shorter values are placeholders, and taking them out would garble ordinary words."""


class Secret:
    """Hold a key so that printing, logging or copying what holds it does not show it.

    It refuses to be pickled: a key has no business in another process.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself, for the one place that sends it."""
        return self._value

    def mask(self, text: str) -> str:
        """Return the text with every spelling of the value replaced by stars."""
        if len(self._value) < SHORTEST_MASKED:
            return text
        for spelling in sorted(self._spellings(), key=len, reverse=True):
            text = text.replace(spelling, STARS)
        return text

    def _spellings(self) -> set[str]:
        value = self._value
        return {value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1]}

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return f"Secret({STARS if self._value else ''!r})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: keys stay in the process that was given them")
