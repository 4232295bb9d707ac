"""Surrogate pairs that arrive in two pieces, and halves that arrive alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.text.surrogates import SurrogateJoiner


def joined(*pieces: str) -> str:
    joiner = SurrogateJoiner()
    return "".join([*map(joiner.feed, pieces), joiner.close()])


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("a\ud83d", "\ude00b"), "a😀b"),
        (("a\ud83d", "", "\ude00b"), "a😀b"),
        (("\ud83d\ude00",), "😀"),
        (("a\ud83d", "b"), "a\ufffdb"),
        (("a\ud83d",), "a\ufffd"),
        (("\ud83d", "\ud83d", "\ude00"), "\ufffd😀"),
        (("\ude00a",), "\ufffda"),
    ],
)
def test_halves_are_joined_or_replaced(pieces: tuple[str, ...], text: str) -> None:
    assert joined(*pieces) == text


@given(st.lists(st.text(st.characters())))
def test_whole_text_passes_unchanged_and_the_rest_can_be_stored(pieces: list[str]) -> None:
    joined(*pieces).encode()
    whole = [piece.encode(errors="replace").decode() for piece in pieces]

    assert joined(*whole) == "".join(whole)
