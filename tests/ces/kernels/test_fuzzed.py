"""Whatever bytes come from a kernel or a gateway, nothing else comes of them than what is meant to.

Inputs that were found by fuzzing, and changes to them at random; `scripts/campaign` tries more.
"""

from __future__ import annotations

import random

import pytest

from tests.support.fuzz_targets import TARGETS, changed, inputs_for

CHANGES = 1000


@pytest.mark.parametrize("target", TARGETS)
def test_what_fuzzing_has_found_is_read_or_named(target: str) -> None:
    inputs = inputs_for(target)

    for data in inputs:
        TARGETS[target](data)

    assert len(inputs) > 20


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_changed_at_random_is_read_or_named(target: str) -> None:
    inputs = inputs_for(target)
    chance = random.Random(1)

    for _ in range(CHANGES):
        TARGETS[target](changed(inputs, chance))
