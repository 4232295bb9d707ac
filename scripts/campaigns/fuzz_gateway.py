"""Whatever bytes a gateway sends, they are messages or named as nonsense."""

from __future__ import annotations

import random

from tests.support.fuzz_targets import changed, inputs_for, read_gateway

ROUNDS = 20_000


def main(rounds: int, seed: int) -> int:
    """Play rounds; the input of one that fails is in its error."""
    chance = random.Random(seed)
    inputs = inputs_for("gateway")
    for _ in range(rounds):
        play(changed(inputs, chance))
    return 0


def play(data: bytes) -> None:
    """Read an input."""
    try:
        read_gateway(data)
    except Exception as error:
        raise AssertionError(f"this input failed: {data!r}") from error
