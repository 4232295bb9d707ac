"""A token stops its own execution, whenever it is cancelled."""

from __future__ import annotations

import pytest

from taskweaver_ext.ces.execution.cancellation import CancellationToken


def test_what_can_stop_the_execution_is_told_each_time() -> None:
    token = CancellationToken()
    told: list[float | None] = []
    token.on_cancel(told.append)

    token.cancel()
    token.cancel(kill_after=0.0)

    assert token.is_cancelled
    assert told == [None, 0.0]


@pytest.mark.parametrize(
    ("wishes", "hardest"),
    [([None], None), ([None, 2.0], 2.0), ([0.0, None], 0.0), ([0.0, 2.0], 0.0), ([2.0, 1.0], 1.0)],
)
def test_a_wish_that_came_too_early_is_told_at_once(
    wishes: list[float | None], hardest: float | None
) -> None:
    token = CancellationToken()
    for kill_after in wishes:
        token.cancel(kill_after)
    told: list[float | None] = []

    token.on_cancel(told.append)

    assert told == [hardest]


def test_what_is_forgotten_is_not_told() -> None:
    token = CancellationToken()
    told: list[float | None] = []
    token.on_cancel(told.append)

    token.forget(told.append)
    token.cancel()

    assert told == []
