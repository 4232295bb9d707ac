"""Rows are never wider than the screen, and nothing is lost by cutting."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.console.rows import (
    ERROR_OUTPUT,
    OUTPUT,
    Painter,
    cell_width,
    clip,
    framed,
    wrap,
    wrap_words,
)

COLOR = re.compile("\x1b\\[[0-9;]*m")
TEXT = st.text(st.sampled_from("ab 好\u0301\u200dé🎉"), max_size=60)


@given(TEXT, st.integers(2, 12))
def test_cutting_loses_nothing_and_keeps_to_the_width(text: str, width: int) -> None:
    rows = wrap(text, width)

    assert "".join(rows) == text
    assert all(cell_width(row) <= width for row in rows)


@given(st.lists(st.tuples(st.sampled_from(["31", "1;32", "0"]), TEXT)), st.integers(2, 12))
def test_each_row_opens_and_closes_its_own_colors(runs: list[tuple[str, str]], width: int) -> None:
    line = "".join(f"\x1b[{color}m{text}" for color, text in runs) + "\x1b[0m"

    rows = wrap(line, width)

    plain = [COLOR.sub("", row) for row in rows]
    assert "".join(plain) == "".join(text for _, text in runs)
    assert all(cell_width(row) <= width for row in plain)
    for row in rows:
        codes = COLOR.findall(row)
        assert not codes or codes[-1] == "\x1b[0m"


@given(TEXT, st.integers(2, 12))
def test_prose_is_cut_within_the_width_and_loses_only_spaces(text: str, width: int) -> None:
    rows = wrap_words(text, width)

    assert "".join(rows).replace(" ", "") == text.replace(" ", "")
    assert all(cell_width(row) <= width for row in rows)


def test_prose_is_cut_between_words() -> None:
    assert wrap_words("one two three", 8) == ["one two", "three"]


def test_a_path_without_a_frame_stays_whole() -> None:
    def rows(first: str) -> list[str]:
        painter = Painter(has_color=False)
        return framed("in /a/long/path now", 9, painter, first=first, rest=first, is_prose=True)

    assert rows("") == ["in", "/a/long/path", "now"]
    assert rows("| ") == ["| in", "/a/long/path", "| now"]
    assert framed("in /a/long/path", 9, Painter(False), first="| ", is_prose=True)[1:] == [
        "/a/long/path"
    ]


def test_a_word_that_could_pass_for_a_frame_is_cut_in_its_own() -> None:
    word = "/a" + "\u2800" * 20 + "╰──●" + "\u2800" * 20

    rows = framed(word, 19, Painter(has_color=False), first="| ", rest="| ", is_prose=True)

    assert all(row.startswith("| ") and len(row) <= 19 for row in rows)


def test_tabs_become_spaces() -> None:
    assert wrap("a\tb", 20) == ["a       b"]


def test_standard_error_has_a_mark_that_survives_without_color() -> None:
    rows = framed(
        "wrong!", 9, Painter(has_color=False), first=ERROR_OUTPUT, rest=ERROR_OUTPUT, color="31"
    )

    assert rows == [" │ ! wron", " │ ! g!"]


def test_text_with_colors_of_its_own_is_not_painted_over() -> None:
    painter = Painter(has_color=True)

    rows = framed("\x1b[32mgreen\x1b[0m", 80, painter, first=OUTPUT, color="31")

    assert rows == ["\x1b[2m │   \x1b[0m\x1b[32mgreen\x1b[0m"]


@pytest.mark.parametrize(("width", "clipped"), [(5, "hello"), (4, "hel…"), (1, "h…")])
def test_clipping_marks_what_is_cut(width: int, clipped: str) -> None:
    assert clip("hello", width) == clipped
