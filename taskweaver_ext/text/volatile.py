"""What differs between two runs of the same code although nothing has changed.

Pure: text in, text out. Times of the run itself, durations, addresses in memory, temporary
paths, random ids and the numbers of cells are put aside; dates and times that are data are not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

_VOLATILE = re.compile(
    r"(?P<time>\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\b"
    r"|\b1\d{9}(?:\.\d{1,9})?\b)"
    r"|(?P<duration>\b\d{1,9}(?:\.\d{1,9})?(?:e-?\d{1,2})? ?"
    r"(?:ns|us|µs|μs|ms|s|secs?|seconds?|min|minutes?)\b)"
    r"|(?P<address>\b0x[0-9a-fA-F]{4,16}\b)"
    r"|(?P<id>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)"
    r"|(?P<path>(?:/private)?(?:/tmp|/var/tmp|/var/folders)/[^\s'\"<>:,;()\[\]]+)"
    r"|(?P<cell>\b(?:In ?\[\d{1,9}\]|ipython-input-\d{1,9}-[0-9a-f]{1,40}))"
)
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class TextComparison:
    """How two texts compare."""

    is_same: bool
    then: str
    now: str
    """The texts without what was put aside."""
    put_aside: Counter[str] = field(default_factory=Counter)
    """How many times, durations, addresses and so on differ and do not count."""


def compare_texts(then: str, now: str, *, then_at: float, now_at: float) -> TextComparison:
    """Compare what code wrote in two runs.

    Args:
        then_at: When the first run was, in seconds since 1970.
        now_at: When the second one was.
    """
    if then == now:
        return TextComparison(True, then, now)
    before, after = _Stable(then, then_at), _Stable(now, now_at)
    pairs = zip(before.put_aside, after.put_aside, strict=False)
    differing = Counter(one[0] for one, other in pairs if one != other)
    return TextComparison(before.text == after.text, before.text, after.text, differing)


class _Stable:
    """A text in which a word stands for everything volatile."""

    def __init__(self, text: str, at: float) -> None:
        self.put_aside: list[tuple[str, str]] = []
        """Kinds, and what stood there."""
        self._at = at
        self.text = "".join(self._pieces(text))

    def _pieces(self, text: str) -> Iterator[str]:
        end = 0
        for match in _VOLATILE.finditer(text):
            kind = match.lastgroup or ""
            if kind == "time" and not _is_of_the_run(match[0], self._at):
                continue
            self.put_aside.append((kind, match[0]))
            yield text[end : match.start()]
            yield f"<{kind}>"
            end = match.end()
        yield text[end:]


def _is_of_the_run(text: str, at: float) -> bool:
    """Whether a time is about when the code ran; all others are data."""
    if ":" in text[:3]:
        return True  # without a date nobody knows
    if "-" not in text:
        return abs(float(text) - at) <= _DAY_SECONDS
    try:
        day = date.fromisoformat(text[:10])
        return abs((day - datetime.fromtimestamp(at, UTC).date()).days) <= 1
    except (ValueError, OverflowError, OSError):
        return False
