"""Replies that never end are told from those that are only long."""

from __future__ import annotations

import random

import pytest

from taskweaver_ext.roles.base.endless import MAX_CHARS, EndlessWatch


def chars_until_noticed(text: str, size: int = 7) -> int | None:
    watch = EndlessWatch()
    for start in range(0, len(text), size):
        watch.feed(text[start : start + size])
        if watch.is_endless:
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
