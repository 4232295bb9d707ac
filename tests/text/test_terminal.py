"""What running code writes: what of it reaches a terminal, and what is left of each line."""

from __future__ import annotations

import json
import math
import re
import statistics
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.text.cell_row import CellRow
from taskweaver_ext.text.terminal import (
    MAX_CSI_PARAMETERS,
    MAX_LINE_CHARS,
    MAX_OPEN_LINES,
    MAX_STRING_CHARS,
    LineFolder,
    TerminalFilter,
    fold,
    strip_terminal,
)
from tests.support.data import DATA

VECTORS = json.loads((DATA / "20_oneshot_exec_ansi_sse.json").read_text("utf-8"))

# Where ours differs from the recorded case, and why.
DEVIATIONS = {
    "50%\r100%": ("100%", "a carriage return writes over the line, as on a terminal"),
    "\x1bno bracket": ("o bracket", "no ESC may reach a terminal; `ESC n` is a sequence"),
}

SAFE = re.compile(
    "(?:[^\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    f"|\x1b\\[[0-9;:]{{1,{MAX_CSI_PARAMETERS}}}m)*"
)
COLOR = re.compile("\x1b\\[[0-9;:]*m")

PIECES = [
    *("\x1b", "[", "]", "P", "\\", "\x9b", "\x9d", "\x9c", "\x07", "\x18", "\x85", "\x00", "\x7f"),
    *(
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[1;38;5;9m",
        "\x1b[4:3m",
        "\x1b[38;2;1;2;3m",
        "\x1b[m",
        "\x9b32m",
    ),
    *(
        "\x1b[2K",
        "\x1b[K",
        "\x1b[1K",
        "\x1b[1G",
        "\x1b[2J",
        "\x1b[?1049h",
        "\x1b[>4;2m",
        "\x1b[5A",
        "\x1b[A",
        "\x1b[2F",
        "\x1b[B",
        "\x1b[J",
        "\x1b(0",
    ),
    *("\x1b]0;title\x07", "\x1b]52;c;aGk=\x1b\\", "\x1bP1;q", "\x1b_G", "\x1b[" + "1;" * 80),
    *("\r", "\n", "\r\n", "\b", "\b\b\b", "\t", "\u202e", "\u2066", "\u200f", "\ud800"),
    *(
        "abc",
        "x",
        " ",
        "12;3",
        "m",
        "K",
        "中文",
        "é",
        "e\u0301",
        "\u0301",
        "👩\u200d👩",
        "█▌",
        "\xad",
    ),
]
color_sequences = st.text("0123456789;:", max_size=16).map(lambda codes: f"\x1b[{codes}m")
hostile_texts = st.lists(
    st.sampled_from(PIECES) | color_sequences | st.text(max_size=3), max_size=12
).map("".join)
printable_texts = st.text(
    st.characters(
        # What hides or piles up is shown instead: tests/text/test_hidden_characters.py.
        exclude_categories=["Cc", "Cs", "Cf", "Mn", "Me", "Zl", "Zp"],
        max_codepoint=0xDFFFF,
    )
    | st.sampled_from("\n\t"),
)


def filter_in_chunks(text: str, size: int, keep_colors: bool = True) -> str:
    terminal_filter = TerminalFilter(keep_colors)
    shown = [terminal_filter.feed(text[i : i + size]) for i in range(0, len(text), size)]
    return "".join(shown) + terminal_filter.close()


def fold_in_chunks(text: str, size: int, max_line_chars: int = MAX_LINE_CHARS) -> list[str]:
    folder = LineFolder(max_line_chars=max_line_chars)
    lines = [line for i in range(0, len(text), size) for line in folder.feed(text[i : i + size])]
    return lines + folder.close()


def filter_all(text: str) -> str:
    return filter_in_chunks(text, max(1, len(text)))


@pytest.mark.parametrize(
    "case", VECTORS["groups"]["ansi_strip"], ids=lambda case: repr(case["input"])
)
def test_recorded_cases_hold_or_differ_for_a_reason(case: dict[str, str]) -> None:
    expected, _reason = DEVIATIONS.get(case["input"], (case["expect"], ""))

    assert fold(case["input"]) == expected


@pytest.mark.parametrize(
    "sequence",
    [
        pytest.param("\x1b[2J\x1b[H\x1b[10;10f\x1b[3A\x1b[6n", id="cursor, screen, reports"),
        pytest.param("\x1b[?1049h\x1b[?25l\x1b[?2004h", id="private modes"),
        pytest.param("\x1b[>4;2m\x1b[?4m\x1b[>1u", id="keyboard modes that look like colours"),
        pytest.param("\x1b[1 q\x1b[!p\x1b[31 m", id="intermediates"),
        pytest.param("\x1b]0;title\x07\x1b]2;title\x1b\\\x9d2;title\x9c", id="titles"),
        pytest.param("\x1b]52;c;ZXZpbA==\x07", id="clipboard"),
        pytest.param("\x1b]8;;http://a.b\x1b\\\x1b]8;;\x1b\\", id="hyperlinks"),
        pytest.param(
            "\x1bPq#0\x1b\\\x90q\x9c\x1bXsos\x1b\\\x1b^pm\x1b\\\x1b_apc\x1b\\", id="strings"
        ),
        pytest.param("\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\", id="passthrough"),
        pytest.param("\x1bc\x1b7\x1b8\x1bM\x1b=\x1b>", id="single"),
        pytest.param("\x1b(0\x1b)B\x1b%G\x1b#8\x0e\x0f\x1bn", id="character sets"),
        pytest.param("\x00\x05\x07\x0b\x0c\x1a\x7f\x84\x85\x8d\x9a\x9b2J", id="controls"),
        pytest.param("\x1b\x1b\x1b[\x1b[?\x1b", id="broken off by the next"),
        pytest.param("\x1b[5m\x1b[8m\x1b[11m\x1b[m", id="blinking, concealed, fonts"),
    ],
)
def test_nothing_is_left_of_what_drives_a_terminal(sequence: str) -> None:
    assert filter_all(f"a{sequence}\x1b[0mb") == "ab"


def test_direction_marks_line_controls_and_unencodable_characters() -> None:
    assert filter_all("\u200e\u200f\u061c\t\r\b\n") == "\u200e\u200f\u061c\t\r\b\n"
    assert filter_all("\udc9b2J") == "\ufffd2J"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[1m\x1b[01;32mboth\x1b[m", "\x1b[1;32mboth\x1b[0m"),
        ("\x9b31mred", "\x1b[31mred\x1b[0m"),
        ("\x1b[31mred\x1b[1mbold\x1b[22;39mplain", "\x1b[31mred\x1b[0;31;1mbold\x1b[0mplain"),
        ("\x1b[38;5;9;48;2;1;2;3mx", "\x1b[38;5;9;48;2;1;2;3mx\x1b[0m"),
        ("\x1b[38;5;8mx", "\x1b[38;5;8mx\x1b[0m"),
        ("\x1b[38;5;999;31mx", "x"),
        ("\x1b[38;5:1;31mx", "x"),
        ("\x1b[38;05;" + "0" * 99 + "9mx", "\x1b[38;5;9mx\x1b[0m"),
        ("\x1b[31;38mx", "\x1b[31mx\x1b[0m"),
        ("\x1b[38:5:1:2:3:4:5:6;1mx", "\x1b[1mx\x1b[0m"),
        ("\x1b[4:3;58:2::1:2:3mx", "\x1b[4:3;58:2::1:2:3mx\x1b[0m"),
        ("\x1b[1;8;5mx", "\x1b[1mx\x1b[0m"),
        ("\x1b[31m\x1b[0m", ""),
    ],
)
def test_colors_pass_in_one_normal_form_and_are_closed(text: str, shown: str) -> None:
    assert filter_all(text) == shown
    assert filter_in_chunks(text, 1, keep_colors=False) == COLOR.sub("", shown)


def test_a_reset_is_passed_on_at_once_so_that_no_color_leaks_while_waiting() -> None:
    terminal_filter = TerminalFilter()

    assert terminal_filter.feed("\x1b[31mred\x1b[0m") == "\x1b[31mred\x1b[0m"
    assert terminal_filter.close() == ""


def test_a_string_sequence_without_an_end_swallows_no_more_than_its_limit() -> None:
    assert filter_in_chunks("\x1b]" + "x" * (MAX_STRING_CHARS + 3), 1000) == "xxx"
    assert filter_all("\x1b]unfinished title\nnext line") == "\nnext line"
    assert filter_all("\x1bPunfinished\r50%") == "\r50%"


def test_a_control_sequence_without_an_end_swallows_no_more_than_its_limit() -> None:
    assert filter_all("\x1b[" + "1" * (MAX_CSI_PARAMETERS + 3) + "m") == "111m"
    assert filter_all("\x1b[12\n34mtext") == "\n34mtext"
    assert filter_all("\x1b[12é") == "é"


def test_an_endless_sequence_is_not_kept_in_memory() -> None:
    for start, body in (("\x1b]", "x"), ("\x1b[", "1"), ("\x1b", " "), ("\x1bP", "\x80")):
        terminal_filter = TerminalFilter()
        terminal_filter.feed(start)
        chunk = body * 10_000
        tracemalloc.start()
        for _ in range(10):
            terminal_filter.feed(chunk)
        held, _peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert held < 5_000


@settings(deadline=None)
@given(text=hostile_texts)
def test_filtered_text_is_safe_and_does_not_depend_on_chunks(text: str) -> None:
    shown = filter_all(text)

    assert SAFE.fullmatch(shown)
    assert not COLOR.findall(shown) or COLOR.findall(shown)[-1] == "\x1b[0m"
    assert filter_all(shown) == shown
    assert strip_terminal(text) == COLOR.sub("", shown)
    for size in range(1, len(text)):
        assert filter_in_chunks(text, size) == shown


@settings(deadline=None)
@given(text=printable_texts)
def test_text_without_control_characters_is_untouched(text: str) -> None:
    assert filter_all(text) == text
    assert fold(text) == text
    assert fold_in_chunks(text, 2) == [
        *text.split("\n")[:-1],
        *([text.split("\n")[-1]] if text.split("\n")[-1] else []),
    ]


@settings(deadline=None)
@given(text=hostile_texts, max_line_chars=st.sampled_from([1, 2, 5, MAX_LINE_CHARS]))
def test_folded_lines_are_final_safe_and_do_not_depend_on_chunks(
    text: str, max_line_chars: int
) -> None:
    lines = fold_in_chunks(text, max(1, len(text)), max_line_chars)

    for line in lines:
        assert SAFE.fullmatch(line)
        assert not set("\r\b\n") & set(line)
        assert not COLOR.findall(line) or COLOR.findall(line)[-1] == "\x1b[0m"
    for size in range(1, len(text)):
        assert fold_in_chunks(text, size, max_line_chars) == lines


@settings(deadline=None)
@given(text=hostile_texts)
def test_folding_again_changes_nothing(text: str) -> None:
    once = fold(text, keep_colors=True)

    assert fold(once, keep_colors=True) == once
    assert fold(once) == COLOR.sub("", once)


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("50%\r100%", "100%"),
        ("100%\r50%", "50%%"),
        ("one\r\ntwo\r\r\nthree\r", "one\ntwo\nthree"),
        ("wiped\r     \rDone\n", "Done\n"),
        ("abc\b\bX", "aXc"),
        ("a\b\b\b\bX", "X"),
        ("longer text\r\x1b[KDone", "Done"),
        ("longer text\x1b[2K\rDone", "Done"),
        ("longer text\x1b[2K\x1b[1GDone", "Done"),
        ("longer text\x1b[G\x1b[0KDone", "Done"),
        ("abc\x1b[2GX", "abcX"),
        ("中文\b\x1b[KX", "中 X"),
        ("match\x1b[K\n", "match\n"),
        ("a\tb\n", "a\tb\n"),
        ("a\tb\rc", "c       b"),
        ("abcdefghij\r\tX", "abcdefghXj"),
        ("中文\rab", "ab文"),
        ("中文\ra", "a 文"),
        ("中文\b\b\bX", " X文"),
        ("ab\r中", "中"),
        ("abc\r中", "中c"),
        ("e\u0301x\r\u0301y", "\u0301y"),
        ("ab\re\u0301", "e\u0301b"),
        ("\x1b[31mabc\x1b[0m\rX", "Xbc"),
        ("\n\n", "\n\n"),
        ("", ""),
    ],
)
def test_folding_leaves_what_a_terminal_would_show(written: str, left: str) -> None:
    assert fold(written) == left


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("\x1b[31mred\nstill\x1b[0m", ["\x1b[31mred\x1b[0m", "\x1b[31mstill\x1b[0m"]),
        ("\x1b[31mabc\x1b[0m\rX", ["X\x1b[31mbc\x1b[0m"]),
        ("\x1b[31m50%\r\x1b[32m100%\x1b[0m", ["\x1b[32m100%\x1b[0m"]),
        ("\x1b[44m   \x1b[0m\rX", ["X\x1b[44m  \x1b[0m"]),
        ("\x1b[31ma\nb\nc\n", [f"\x1b[31m{line}\x1b[0m" for line in "abc"]),
        ("\x1b[31m\n\n\x1b[0m", ["", ""]),
    ],
)
def test_each_line_opens_and_closes_its_own_colors(written: str, left: list[str]) -> None:
    assert fold_in_chunks(written, 3) == left
    assert fold_in_chunks(written, len(written)) == left


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_progress_bar_of_ten_thousand_updates_is_one_line(ending: str) -> None:
    updates = (f"\r{i:5}/10000 |\x1b[32m{'█' * (i // 200):50}\x1b[0m|" for i in range(10_001))

    assert fold("".join(updates) + ending) == f"10000/10000 |{'█' * 50}|" + ending[-1:]


def test_the_partial_line_is_shown_and_completed_in_place() -> None:
    folder = LineFolder()

    assert folder.feed("first\n\x1b[31m10") == ["first"]
    assert folder.partial_line == "\x1b[31m10\x1b[0m"
    assert folder.feed("%\r") == []
    assert folder.partial_line == "\x1b[31m10%\x1b[0m"
    assert folder.feed("20\x1b[0m") == []
    assert folder.partial_line == "\x1b[31m20%\x1b[0m"
    assert folder.feed("\n") == []
    assert folder.partial_line == ""
    assert folder.open_lines == ["\x1b[31m20%\x1b[0m"]
    assert folder.feed("next\n") == ["\x1b[31m20%\x1b[0m", "next"]
    assert folder.close() == []


# As tqdm writes them: each bar goes down to its line, and back up.
NESTED_BARS = "".join(
    f"\router {outer}/2" + "".join(f"\n\rinner {inner}/3\x1b[A" for inner in range(4))
    for outer in range(3)
)


@pytest.mark.parametrize("size", [1, 2, 7, len(NESTED_BARS)])
@pytest.mark.parametrize(
    ("ending", "left"),
    [
        ("", ["outer 2/2", "inner 3/3"]),
        ("\n\r         \r\x1b[A\ndone\n", ["outer 2/2", "done"]),
        ("\n\ndone\n", ["outer 2/2", "inner 3/3", "done"]),
    ],
    ids=["running", "inner bar wiped", "both bars left"],
)
def test_bars_below_each_other_are_one_line_each(size: int, ending: str, left: list[str]) -> None:
    assert fold_in_chunks(f"before\n{NESTED_BARS}{ending}", size) == ["before", *left]


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("a\nb\n\x1b[2AA\nB\n\x1b[2Fx\x1b[Ey\n", ["a", "b", "x", "y"]),
        ("one\ntwo\x1b[A\x1b[Jnew", ["one", "new"]),
        ("a\nb\n\x1b[2A\x1b[Jx\ny\nz\n", ["a", "b", "x", "y", "z"]),
        ("\x1b[2A\x1b[Jx\ny", ["x", "y"]),
        ("x\x1b[5A", ["x"]),
        ("x\x1b[5B\ny", ["x", "y"]),
        ("\x1b[3Atop\n", ["top"]),
        ("\rab\n\rcd\x1b[1AX", ["abX", "cd"]),
        ("\rab\n\rcd\x1b[A\bX\n!", ["aX", "!d"]),
    ],
)
def test_lines_above_can_be_written_again(written: str, left: list[str]) -> None:
    assert fold_in_chunks(written, 1) == left
    assert fold_in_chunks(written, len(written)) == left


def test_only_so_many_lines_stay_open() -> None:
    folder = LineFolder()

    lines = folder.feed("".join(f"\rbar {number}\n" for number in range(MAX_OPEN_LINES + 3)))
    folder.feed("\x1b[999A\x1b[2Know\x1b[999B")

    assert lines == ["bar 0", "bar 1", "bar 2"]
    assert folder.open_lines == ["now", *(f"bar {n}" for n in range(4, MAX_OPEN_LINES + 3))]


def test_a_line_beyond_the_limit_is_released_in_pieces_of_the_limit() -> None:
    folder = LineFolder()
    text = "x" * (3 * MAX_LINE_CHARS + 5)

    lines = folder.feed(text)

    assert [len(line) for line in lines] == [MAX_LINE_CHARS] * 3
    assert folder.close() == ["xxxxx"]
    assert fold_in_chunks("a\nbcdef\ng\n", 100, max_line_chars=4) == ["a", "bcde", "f", "g"]


def test_a_cell_takes_thirty_marks_and_leaves_the_others_to_the_next() -> None:
    marks = "\u0301" * 62
    row = CellRow()

    row.write("abcdef", "", 80)
    row.column = 0
    row.write(f"x{marks}", "", 80)

    assert row.runs() == [("", f"x{marks}def")]


def test_a_rewritten_line_beyond_the_limit_is_released_in_pieces_too() -> None:
    assert fold_in_chunks("ab\rcdefg中h", 2, max_line_chars=4) == ["cdef", "g中h"]
    assert fold_in_chunks("ab\rcde中", 2, max_line_chars=4) == ["cde", "中"]


@pytest.mark.parametrize("unit", ["x", "x\r", "\t\b", "\u0301\b", "\x1b[31mx\x1b[32m"])
def test_memory_does_not_grow_with_a_line_that_never_ends(unit: str) -> None:
    folder = LineFolder(max_line_chars=2_000)
    chunk = unit * 4_000
    folder.feed(chunk)
    tracemalloc.start()
    for _ in range(10):
        folder.feed(chunk)
    held, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 300_000


def growth(work: Callable[[str, int], object], text: str, doubled: str) -> float:
    """How much longer twice the text takes, in CPU time, fed four characters at a time.

    The least of three measurements: a busy machine can only make a ratio worse.
    """

    def seconds_for(text: str) -> float:
        start = time.process_time()
        work(text, 4)
        return time.process_time() - start

    ratios: list[float] = []
    while len(ratios) < 3 and min(ratios, default=math.inf) > 2.5:
        pairs = [(seconds_for(text), seconds_for(doubled)) for _ in range(5)]
        single, double = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratios.append(double / single)
    return min(ratios)


@pytest.mark.parametrize("work", [filter_in_chunks, fold_in_chunks])
@pytest.mark.parametrize(
    "unit",
    [
        pytest.param("no newline ", id="no newline"),
        pytest.param("short\n", id="lines"),
        pytest.param("\x1b]" + "x" * 100, id="unfinished strings"),
        pytest.param("\x1b[" + "1" * 120, id="unfinished control sequences"),
        pytest.param("x\x1b[1;31m\x1b[0;32m", id="colours"),
        pytest.param("x\u0301\u0301\u0301", id="combining"),
        pytest.param("word\rx", id="carriage returns"),
    ],
)
def test_time_grows_linearly(work: Callable[[str, int], object], unit: str) -> None:
    count = 100_000 // len(unit)

    assert growth(work, unit * count, unit * 2 * count) <= 2.5


@pytest.mark.parametrize(
    "unit",
    [
        "\rab",
        "\b\bX",
        "\u0301",
        "\r\x1b[K中\b",
        "\t\r",
        "\x1b[2Kx\b",
        "\x1b[1K",
        "\x1b[A\bx\x1b[Bx\b",
        "\x1b[Jx\x1b[9A",
        "\rx\n\x1b[2A",
    ],
)
def test_time_grows_linearly_while_a_long_line_is_rewritten(unit: str) -> None:
    count = 30_000 // len(unit)

    def text_for(count: int) -> str:
        return "中" * count + "\b" + unit * count

    assert growth(fold_in_chunks, text_for(count), text_for(2 * count)) <= 2.5
