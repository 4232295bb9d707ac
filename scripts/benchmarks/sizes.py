"""How much is measured: enough for numbers to rely on, or as much as fits into two minutes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Repetitions and amounts of one run."""

    repetitions: int
    """Of what takes a second or so."""
    small_repetitions: int
    """Of what takes milliseconds."""
    latency_samples: int
    """Per repetition."""
    prints: int
    megabytes: int
    flushed_prints: int
    prints_per_kernel: int
    many_kernels: int
    is_quick: bool
    """Whether peers are left out of what takes them much longer than us."""


FULL = Sizes(
    repetitions=5,
    small_repetitions=200,
    latency_samples=40,
    prints=1_000_000,
    megabytes=100,
    flushed_prints=20_000,
    prints_per_kernel=100_000,
    many_kernels=32,
    is_quick=False,
)

QUICK = Sizes(
    repetitions=3,
    small_repetitions=50,
    latency_samples=6,
    prints=60_000,
    megabytes=30,
    flushed_prints=2_000,
    prints_per_kernel=10_000,
    many_kernels=32,
    is_quick=True,
)
