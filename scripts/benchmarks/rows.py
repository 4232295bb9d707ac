"""What was measured and what it should have been: samples, goals, and how the two compare."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

OURS = "ours"
RAW = "raw"
NBCLIENT = "nbclient"
LIMIT = "limit"
"""What nothing of this kind can beat: a plain program whose output comes through a pipe."""

LOCAL = "local"
"""Ours again, as a measure for our kernels in containers."""

PEERS = (OURS, RAW, NBCLIENT, LIMIT, LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on our value, or on its ratio to a peer's."""

    bound: float
    peer: str | None = None
    """Whose value ours is divided by; None: the bound is on our value itself."""
    is_minimum: bool = False

    def is_met_by(self, value: float) -> bool:
        """Whether a value or ratio is within the bound."""
        return value >= self.bound if self.is_minimum else value <= self.bound

    def __str__(self) -> str:
        whose = f" × {self.peer}" if self.peer else ""
        return f"{'≥' if self.is_minimum else '≤'} {self.bound:g}{whose}"


def at_most(bound: float, peer: str | None = None) -> Goal:
    """Our value, or its ratio to a peer's, is to be no more than this."""
    return Goal(bound=bound, peer=peer)


def at_least(bound: float, peer: str | None = None) -> Goal:
    """Our value, or its ratio to a peer's, is to be no less than this."""
    return Goal(bound=bound, peer=peer, is_minimum=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a quantity, as each peer has it."""

    name: str
    """What the line is called on the command line; several lines may share it."""
    title: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    """By peer; a peer without samples was not measured."""
    percentile: int = 50
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()

    def value(self, peer: str) -> float | None:
        """The peer's value at the row's percentile."""
        samples = sorted(self.samples.get(peer, ()))
        if not samples:
            return None
        if self.percentile == 50:
            return statistics.median(samples)
        return samples[min(len(samples) - 1, len(samples) * self.percentile // 100)]

    def spread(self, peer: str) -> float | None:
        """How far the middle half of the samples reaches from the median, as a share of it."""
        samples = self.samples.get(peer, ())
        if self.percentile != 50 or len(samples) < 3 or not (median := statistics.median(samples)):
            return None
        lower, _, upper = statistics.quantiles(samples, method="inclusive")
        return (upper - lower) / 2 / abs(median)

    def reached(self, goal: Goal) -> float | None:
        """What the goal's bound is compared with; None when it was not measured."""
        ours = self.value(OURS)
        if ours is None or goal.peer is None:
            return ours
        theirs = self.value(goal.peer)
        return ours / theirs if theirs else None


def interleave(
    repetitions: int, actions: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Call every action in turn, again and again, so that noise of the machine hits them alike."""
    samples: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for repetition in range(repetitions):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(actions[name]())
    return samples
