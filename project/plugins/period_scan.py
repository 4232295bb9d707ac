"""Look for a rhythm in a series of numbers, and say meanwhile how far the search has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from taskweaver.plugin import Plugin, register_plugin, test_plugin


@register_plugin
class PeriodScan(Plugin):
    """Compare the series with itself, shifted by every period in turn."""

    def __call__(
        self, values: Iterable[float], max_period: int | None = None
    ) -> tuple[int, float, str]:
        numbers = [float(value) for value in values]
        if len(numbers) < 8:
            raise ValueError(f"a series of {len(numbers)} numbers is too short; 8 are needed")
        longest = min(max_period or len(numbers) // 3, len(numbers) - 2)
        self.log("info", f"looking at {len(numbers)} numbers for periods from 2 to {longest}")
        strengths = {}
        for period in range(2, longest + 1):
            strengths[period] = similarity(numbers, period)
            self._report(period - 1, longest - 1)
        best = first_peak(strengths)
        strength = max(0.0, strengths.get(best, 0.0))
        if strength < self.config.get("threshold", 0.3):
            self.log("warning", f"no period is clear (the best, {best}, has {strength:.2f})")
            return 0, strength, "The series does not repeat itself."
        self.log("info", f"the clearest period is {best}")
        return best, strength, f"The series repeats itself every {best} steps ({strength:.0%})."

    def _report(self, done: int, total: int) -> None:
        """Draw a bar that is written over in place."""
        filled = round(20 * done / total)
        end = "\n" if done == total else ""
        bar = "#" * filled + "." * (20 - filled)
        print(f"\rscanning [{bar}] {done}/{total}", end=end, flush=True)  # noqa: T201 - to be seen
        time.sleep(self.config.get("pause_seconds", 0.0))


def similarity(numbers: list[float], shift: int) -> float:
    """Return how well a series agrees with itself after a shift, from -1 to 1."""
    mean = sum(numbers) / len(numbers)
    total = sum((number - mean) ** 2 for number in numbers)
    if total == 0:
        return 0.0
    pairs = zip(numbers, numbers[shift:])  # noqa: B905 - the second is shorter, and meant to be
    shared = sum((one - mean) * (other - mean) for one, other in pairs)
    return shared / total * len(numbers) / (len(numbers) - shift)


def first_peak(strengths: dict[int, float]) -> int:
    """Return the shortest period that is about as clear as the clearest: multiples are, too."""
    if not strengths:
        return 0
    clearest = max(strengths.values())
    return min(period for period, strength in strengths.items() if strength >= 0.9 * clearest)


@test_plugin(name="finds a week", description="a series with a period of 7 is recognised")
def finds_a_week(period_scan: Callable[..., tuple[int, float, str]]) -> None:
    """A plain weekly rhythm."""
    period, strength, _ = period_scan([1, 2, 3, 4, 5, 9, 8] * 8)
    assert period == 7
    assert strength > 0.9
