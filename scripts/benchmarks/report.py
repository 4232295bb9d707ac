"""The results of a run, as a table for people and as JSON for programs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.benchmarks.rows import OURS, PEERS, Goal, Row

_PACKAGES = ("ipykernel", "jupyter_client", "nbclient", "pyzmq")
_GAP = "  "
_OWN_LOAD = 2
"""What the measurements themselves may add to the load average."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What one run found."""

    is_quick: bool
    started_at: str
    load_before: float
    load_after: float = 0.0
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Why measurements were not made, by name."""
    failed: dict[str, str] = field(default_factory=dict)

    def as_text(self) -> str:
        """The table, with what the numbers are worth before it and what they mean after it."""
        parts = (self._header(), self._table() if self.rows else (), self._footer())
        return "\n\n".join(text for part in parts if (text := "\n".join(part)))

    def as_json(self) -> dict[str, Any]:
        """All that is known, every sample included."""
        return {
            "started_at": self.started_at,
            "seconds": self.seconds,
            "is_quick": self.is_quick,
            "machine": _machine(),
            "load_average": {"before": self.load_before, "after": self.load_after},
            "rows": [_row_as_json(row) for row in self.rows],
            "skipped": self.skipped,
            "failed": self.failed,
        }

    def _header(self) -> Iterable[str]:
        machine = _machine()
        packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
        yield (
            f"{self.started_at}, {self.seconds:.0f} s{' (quick)' if self.is_quick else ''};"
            f" {machine['processors']} processors, {machine['memory_gb']:.0f} GB,"
            f" load average {self.load_before:.1f} before and {self.load_after:.1f} after"
        )
        yield f"Python {machine['python']}, {packages}"
        yield "Medians with half the spread of their middle half; ratios are what counts."
        if max(self.load_before, self.load_after) > machine["processors"] + _OWN_LOAD:
            yield "Others used the machine too: expect noise, and bounds in seconds to be missed."

    def _table(self) -> list[str]:
        peers = [peer for peer in PEERS if any(peer in row.samples for row in self.rows)]
        lines = [["", *peers, "", "goal", ""]]
        for row in self.rows:
            goals = [_goal_cells(row, goal) for goal in row.goals] or [["", "", ""]]
            title = f"{row.title}, {row.unit}"
            lines.append([title, *(_value_cell(row, peer) for peer in peers), *goals[0]])
            lines += [["", *("" for _ in peers), *more] for more in goals[1:]]
            lines += [[f"    {note}"] for note in row.notes]
        return _aligned(lines)

    def _footer(self) -> Iterable[str]:
        outcomes = [
            (row, goal, reached)
            for row in self.rows
            for goal in row.goals
            if (reached := row.reached(goal)) is not None
        ]
        missed = [
            f"  {row.title}: {_number(reached)}, goal {goal}"
            for row, goal, reached in outcomes
            if not goal.is_met_by(reached)
        ]
        yield f"{len(outcomes) - len(missed)} of {len(outcomes)} goals met."
        yield from ["Missed:", *missed] if missed else []
        yield from (f"Skipped {name}: {reason}." for name, reason in self.skipped.items())
        yield from (f"Failed {name}: {reason}" for name, reason in self.failed.items())


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "title": row.title,
        "unit": row.unit,
        "percentile": row.percentile,
        "peers": {
            peer: {
                "value": row.value(peer),
                "spread": row.spread(peer),
                "ratio_to_ours": _ratio(row.value(peer), row.value(OURS)),
                "samples": list(samples),
            }
            for peer, samples in row.samples.items()
        },
        "goals": [
            {
                "goal": str(goal),
                "reached": (reached := row.reached(goal)),
                "is_met": None if reached is None else goal.is_met_by(reached),
            }
            for goal in row.goals
        ],
        "notes": list(row.notes),
    }


def _ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None


def _value_cell(row: Row, peer: str) -> str:
    value, spread = row.value(peer), row.spread(peer)
    if value is None:
        return "–"
    return _number(value) if spread is None else f"{_number(value)} ±{spread:.0%}"


def _goal_cells(row: Row, goal: Goal) -> list[str]:
    reached = row.reached(goal)
    if reached is None:
        return ["–", str(goal), ""]
    ratio = f"{_number(reached)} × {goal.peer}" if goal.peer else _number(reached)
    return [ratio, str(goal), "met" if goal.is_met_by(reached) else "MISSED"]


def _number(value: float) -> str:
    """Three digits that count, without an exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Pad cells to columns; a line with one cell only spans them all."""
    table = [line for line in lines if len(line) > 1]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    ]


def _machine() -> dict[str, Any]:
    return {
        "processors": len(os.sched_getaffinity(0)),
        "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }
