"""Replies that never end, and surrogate pairs that arrive in two pieces."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.roles.base.model_caller import MAX_CHARS, RunawayDetector, SurrogateJoiner


def chars_until_noticed(text: str, size: int = 7) -> int | None:
    detector = RunawayDetector()
    for start in range(0, len(text), size):
        detector.feed(text[start : start + size])
        if detector.is_runaway:
            return start + size
    return None


@pytest.mark.parametrize(
    "unit", ["a", "la", "I will try again. ", "\n\t ", "0, ", "x" * 150 + "y", "é漢"]
)
def test_what_only_repeats_itself_is_noticed_soon(unit: str) -> None:
    beginning = "def f():\n    return "

    noticed = chars_until_noticed(beginning + unit * (MAX_CHARS // len(unit)))

    assert noticed is not None
    assert noticed < MAX_CHARS / 8


def test_what_never_ends_is_noticed_at_last() -> None:
    words = random.Random(7).choices(["one", "two", "three", "four"], k=MAX_CHARS)

    noticed = chars_until_noticed(" ".join(words))

    assert noticed is not None
    assert noticed <= MAX_CHARS + 7


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 9_000,
        " " * 9_000 + "x" + " " * 9_000,
        "\n".join(f"row {number}: 0, 0, 0, 0" for number in range(10_000)),
        "=" * 5_000 + "title" + "=" * 14_000,
    ],
)
def test_long_replies_are_left_alone(text: str) -> None:
    assert chars_until_noticed(text) is None


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
