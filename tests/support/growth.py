"""Measure how the time of a streaming parser grows with the length of its text."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

SLICES = 50


def growth(
    start: Callable[[], Callable[[str], object]], once: Sequence[str], twice: Sequence[str]
) -> float:
    """Return t(2n)/t(n), the median of 5, for chunks that are fed to what `start` returns.

    Both texts are fed in turns, a slice of each at a time: another load on the
    machine then slows both alike, while a parser that slows down as it goes
    still needs more than twice the time for twice the text.
    """
    return statistics.median(_ratio(start, once, twice) for _ in range(5))


def _ratio(
    start: Callable[[], Callable[[str], object]], once: Sequence[str], twice: Sequence[str]
) -> float:
    runs = [(start(), once), (start(), twice)]
    seconds = [0.0, 0.0]
    for number in range(SLICES):
        for index, (feed, chunks) in enumerate(runs):
            first = len(chunks) * number // SLICES
            last = len(chunks) * (number + 1) // SLICES
            began = time.process_time()
            for chunk in chunks[first:last]:
                feed(chunk)
            seconds[index] += time.process_time() - began
    return seconds[1] / seconds[0]
