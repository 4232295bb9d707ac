"""What one execution wrote, as rows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.console.output_block import MAX_LINE_CHARS, OutputBlock
from taskweaver_ext.console.rows import Painter
from taskweaver_ext.text.terminal import strip_terminal

PLAIN = Painter(has_color=False)
FRAME = re.compile(r" │ [ !] ")


def test_a_partial_line_is_live_and_completed_in_place() -> None:
    block = OutputBlock(40, PLAIN)

    assert block.feed("stdout", "Starting") == []
    assert block.live_rows(10) == [" │   Starting"]
    assert block.feed("stdout", "... done\n") == [" │   Starting... done"]
    assert block.live_rows(10) == []


def test_a_progress_bar_updates_one_line() -> None:
    block = OutputBlock(40, PLAIN)

    for percent in range(0, 100, 10):
        assert block.feed("stdout", f"\r{percent}%") == []
        assert block.live_rows(10) == [f" │   {percent}%"]

    assert block.feed("stdout", "\r100%\n") == []
    assert block.live_rows(10) == [" │   100%"]
    assert block.feed("stdout", "done\n") == [" │   100%", " │   done"]


def test_bars_below_each_other_are_updated_in_place() -> None:
    block = OutputBlock(40, PLAIN)

    for outer in range(3):
        rows = block.feed("stderr", f"\router {outer}/2")
        for inner in range(4):
            rows += block.feed("stderr", f"\n\rinner {inner}/3\x1b[A")
            assert block.live_rows(10) == [f" │ ! outer {outer}/2", f" │ ! inner {inner}/3"]
        assert rows == []

    assert block.close() == [" │ ! outer 2/2", " │ ! inner 3/3"]


def test_a_bar_that_is_complete_stays_above_what_the_other_stream_says_next() -> None:
    block = OutputBlock(40, PLAIN)

    assert block.feed("stderr", "\r100%\n") == []
    assert block.feed("stdout", "done\n") == [" │ ! 100%", " │   done"]


def test_both_streams_keep_their_own_lines() -> None:
    block = OutputBlock(40, PLAIN)

    rows = [
        *block.feed("stdout", "one "),
        *block.feed("stderr", "oops\n"),
        *block.feed("stdout", "line\n"),
    ]

    assert rows == [" │ ! oops", " │   one line"]


@pytest.mark.parametrize("width", [79, 80, 81])
def test_the_heading_of_a_traceback_takes_no_row_more_on_80_columns(width: int) -> None:
    heading = f"{'NameError':<42}Traceback (most recent call last)"
    block = OutputBlock(width, PLAIN)

    rows = block.feed("stderr", f"{'-' * 75}\n{heading}\n")

    missing = max(0, 80 - width)
    gap = " " * (33 - missing)
    assert rows == [
        f" │ ! {'-' * (75 - missing)}",
        f" │ ! NameError{gap}Traceback (most recent call last)",
    ]


def test_what_only_looks_like_the_heading_of_a_traceback_is_shown_whole() -> None:
    block = OutputBlock(79, PLAIN)
    line = "a" * 20 + " " * 5 + "b" * 50

    rows = [*block.feed("stdout", "-" * 75 + "\n"), *block.feed("stderr", line + "\n")]

    assert [row[5:] for row in rows] == ["-" * 74, "-", line[:74], line[74:]]


def test_a_last_line_without_an_end_is_shown() -> None:
    block = OutputBlock(40, PLAIN)
    block.feed("stdout", "no newline")

    assert block.close() == [" │   no newline"]


def test_of_long_output_the_first_and_the_last_lines_stay() -> None:
    block = OutputBlock(60, PLAIN, number=7, preview_lines=10)

    shown = block.feed("stdout", "".join(f"line {n}\n" for n in range(1000)))
    running = block.live_rows(30)
    end = block.close()

    assert shown == [f" │   line {n}" for n in range(5)]
    assert running[-1] == " │   line 999"
    assert len(running) == 21, "more of the end is seen while it runs"
    assert end[0] == " │   ⋯ 990 more lines: /expand 7"
    assert end[1:] == [f" │   line {n}" for n in range(995, 1000)]


@pytest.mark.parametrize("count", [9, 10, 11])
def test_nothing_is_hidden_where_the_notice_would_take_as_much_room(count: int) -> None:
    block = OutputBlock(60, PLAIN, preview_lines=10)
    text = "".join(f"{n}\n" for n in range(count))

    rows = [*block.feed("stdout", text), *block.close()]

    assert rows == [f" │   {n}" for n in range(count)]


def test_without_a_number_the_notice_names_no_command() -> None:
    block = OutputBlock(60, PLAIN, preview_lines=4)

    rows = [*block.feed("stdout", "x\n" * 9), *block.close()]

    assert rows[2] == " │   ⋯ 5 more lines"


@pytest.mark.parametrize("color", ["", "\x1b[31m"])
def test_of_a_very_long_line_the_beginning_stays(color: str) -> None:
    block = OutputBlock(105, Painter(has_color=True), number=3, preview_lines=10)

    rows = [*block.feed("stdout", color + "x" * 5000 + "\nnext\n"), *block.close()]

    plain = [strip_terminal(row) for row in rows]
    assert plain[:-2] == [" │   " + "x" * 100] * (MAX_LINE_CHARS // 100)
    assert plain[-2:] == [" │   ⋯ 1,000 more characters: /expand 3", " │   next"]


@pytest.mark.parametrize("piece", [1000, 65_536, 3_000_000])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_preview_counts_what_is_left_out_of_a_line_that_is_too_long_to_be_kept(
    piece: int, end: str
) -> None:
    block = OutputBlock(105, PLAIN, number=3, preview_lines=20)
    text = "first\n" + "x" * 3_000_000 + end

    rows: list[str] = []
    for at in range(0, len(text), piece):
        rows += block.feed("stdout", text[at : at + piece])
    rows += [*block.feed("stderr", "failed\n"), *block.close()]

    long = [" │   " + "x" * 100] * (MAX_LINE_CHARS // 100)
    long.append(" │   ⋯ 2,996,000 more characters: /expand 3")
    failed = [" │ ! failed"]
    assert rows == [" │   first", *(long + failed if end else failed + long)]


def test_live_rows_never_outgrow_the_screen() -> None:
    block = OutputBlock(30, PLAIN, preview_lines=10)
    block.feed("stdout", "".join(f"{'wide ' * 30}{n}\n" for n in range(100)))
    block.feed("stderr", "x" * 5000)
    block.feed("stdout", "y" * 5000)

    for height in range(1, 40):
        assert len(block.live_rows(height)) <= height


def test_ten_megabytes_without_a_newline_stay_small() -> None:
    block = OutputBlock(80, PLAIN, preview_lines=10)
    rows = 0

    for _ in range(160):
        rows += len(block.feed("stdout", "x" * 65536))
        live = block.live_rows(24)
        assert len(live) <= 24
        assert all(len(row) <= 80 for row in live)
    rows += len(block.close())

    assert rows <= MAX_LINE_CHARS // 75 + 3


HOSTILE = st.sampled_from(
    ["\x1b[2J", "\x1b[10A", "\x1b]0;title\x07", "\x1bc", "\x1b[?1049h", "\x9b5A", "\x07", "\x0b"]
    + ["\x1b[31m", "\x1b", "\r", "\b\b\b", "\t", "\n", "text", "好", "e\u0301", "\u202e", "\x00"]
)


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), HOSTILE)), st.integers(1, 50))
def test_no_output_breaks_the_frame(pieces: list[tuple[str, str]], width: int) -> None:
    block = OutputBlock(width, PLAIN)
    rows: list[str] = []

    for stream, text in pieces:
        rows += block.feed("stderr" if stream == "stderr" else "stdout", text)
        rows += block.live_rows(10)
    rows += block.close()

    assert all(FRAME.match(row) for row in rows)
    assert all(not re.search("[\x00-\x1f\x7f-\x9f\u202e]", row) for row in rows)


def test_a_resize_counts_for_what_comes_next() -> None:
    block = OutputBlock(80, PLAIN)
    block.feed("stdout", "x" * 100)

    block.width = 25

    assert block.live_rows(10) == [" │   " + "x" * 20] * 3


def test_open_lines_can_be_replaced_and_cleared_until_they_are_final() -> None:
    block = OutputBlock(40, PLAIN, open_lines=3)

    rows = [*block.add("stdout", "0 %", "bar"), *block.feed("stdout", "a\n")]
    rows += block.update("bar", ["50 %"])
    assert (rows, block.live_rows(10)) == ([], [" │   50 %", " │   a"])

    assert block.feed("stdout", "b\nc\n") == [" │   50 %"]
    assert block.update("bar", ["100 %"]) == [" │   a"]
    assert block.live_rows(10) == [" │   b", " │   c", " │   100 %"]

    block.clear(wait=True)
    assert block.live_rows(10) == [" │   b", " │   c", " │   100 %"]
    assert block.feed("stderr", "d") == []
    assert block.live_rows(10) == [" │ ! d"]
    assert block.close() == [" │ ! d"]


def test_of_many_lines_only_the_last_stay_open() -> None:
    block = OutputBlock(40, PLAIN, open_lines=2)
    block.feed("stdout", "first\n")

    rows = block.feed("stdout", "".join(f"{n}\n" for n in range(50)))

    assert rows == [" │   first", *(f" │   {n}" for n in range(48))]
    assert block.settle() == [" │   48", " │   49"]
    assert block.live_rows(10) == []
