"""SIGKILL at any moment loses nothing that was shown."""

from __future__ import annotations

from scripts.campaigns import killed_sessions


def test_what_was_shown_survives_a_kill_at_any_moment() -> None:
    assert killed_sessions.main(killed_sessions.ROUNDS // 10, seed=7) == 0
