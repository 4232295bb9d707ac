"""Notice that a model has lost its way: a reply that will never end, or that only repeats itself.

Providers end replies at `max_tokens`; those that do not, and models on one's own
machine, can go on for hours. Pure: text in, a verdict out, in linear time.
"""

from __future__ import annotations

MAX_CHARS = 400_000
"""More than any reply needs, thoughts included."""
MAX_BLANK_CHARS = 10_000
"""So much white space in a row says nothing any more."""
MAX_REPEATED_CHARS = 20_000
"""So long a stretch of the same few characters says nothing any more."""
MAX_PERIOD = 200
"""How long what is repeated may be."""


class EndlessWatch:
    """Measure a reply while it arrives."""

    def __init__(self) -> None:
        self._chars = 0
        self._blank_chars = 0
        self._stretch: list[str] = []
        self._stretch_chars = 0
        self._is_repeating = False

    @property
    def has_begun(self) -> bool:
        """Whether anything has come."""
        return self._chars > 0

    @property
    def is_endless(self) -> bool:
        """Whether it is time to stop."""
        return self._chars > MAX_CHARS or self._blank_chars > MAX_BLANK_CHARS or self._is_repeating

    def feed(self, text: str) -> None:
        """Take the next piece."""
        self._chars += len(text)
        blank = len(text) - len(text.rstrip())
        self._blank_chars = blank + (self._blank_chars if blank == len(text) else 0)
        self._stretch.append(text)
        self._stretch_chars += len(text)
        if self._stretch_chars >= MAX_REPEATED_CHARS:
            self._is_repeating = _repeats_itself("".join(self._stretch))
            self._stretch, self._stretch_chars = [], 0


def _repeats_itself(stretch: str) -> bool:
    period = (stretch + stretch[:MAX_PERIOD]).find(stretch[:MAX_PERIOD], 1)
    if not 0 < period <= MAX_PERIOD:
        return False
    return stretch[period:] == stretch[:-period]
