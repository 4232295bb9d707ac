"""Whatever is done to a session at whatever moment, it says the truth and goes on."""

from __future__ import annotations

from pathlib import Path

from scripts.campaigns import any_moment, interrupts

INTERRUPT_ROUNDS = 150
"""A part of what `scripts/campaigns/interrupts.py` does by itself."""


def test_a_session_survives_whatever_happens_whenever() -> None:
    assert any_moment.main(any_moment.ROUNDS // 10, seed=7) == 0


def test_an_interrupt_stops_what_it_is_meant_for_or_nothing(tmp_path: Path) -> None:
    with interrupts.open_campaign(tmp_path, seed=7) as campaign:
        for number in range(INTERRUPT_ROUNDS):
            try:
                campaign.play()
            except AssertionError as error:
                raise AssertionError(f"round {number}: {campaign.what}") from error
