"""What is run is code, and not the form in which a model wrapped it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.streaming.code_cleaning import FenceStripper, clean_code, find_leftover
from tests.support.data import DATA
from tests.support.growth import growth

FENCES = json.loads((DATA / "04_structured_fence_strip.json").read_text())
CONTAMINATION = json.loads((DATA / "08_exec_code_contamination.json").read_text())

LINE_DEVIATIONS = {"leading_fence": 2}
"""The recorded function counts lines after stripping the code; ours counts as an editor does."""


def stripped(chunks: list[str]) -> str:
    stripper = FenceStripper()
    return "".join(stripper.feed(chunk) for chunk in chunks) + stripper.close()


@pytest.mark.parametrize("case", FENCES["cases"], ids=lambda case: repr(case["input"]))
def test_a_fence_around_structured_content_is_taken_off(case: dict[str, str]) -> None:
    # White space around text without a fence is the caller's: code begins with its indentation.
    for size in (1, 2, 3, 5, 1000):
        text = case["input"]
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        assert stripped(chunks).strip() == case["expect"]


@pytest.mark.parametrize("case", CONTAMINATION["cases"], ids=lambda case: case["id"])
def test_leftovers_are_found_as_recorded(case: dict[str, Any]) -> None:
    found = find_leftover(case["code"])

    if case["expect"] is None:
        assert found is None
    else:
        assert found is not None
        assert found.marker == case["expect"]["marker"]
        assert found.line == LINE_DEVIATIONS.get(case["id"], case["expect"]["line"])
        assert found.excerpt == case["expect"]["excerpt"]
        assert "nothing was run" in found.message


@pytest.mark.parametrize(
    ("code", "cleaned"),
    [
        ("x = 1\n", "x = 1\n"),
        ("  x = 1\n\n", "  x = 1\n\n"),
        ("\n```python\nx=1\n```", "x=1"),
        ("```py\n    x = 1\n    y = 2\n```\n\n", "    x = 1\n    y = 2"),
        ("```\nx = 1\n", "x = 1\n"),
        ("```python\r\nx = 1\r\n```", "x = 1"),
        ("````md\n```\ninner\n```\n````", "```\ninner\n```"),
        ("x = 1\n```\n", "x = 1\n```\n"),
        ("```python\nx = '```'", "x = '```'"),
        ("``x``", "``x``"),
        ("   ", "   "),
        ("", ""),
        ("```python\nx" + " " * 200 + "```", "x" + " " * (200 + 3 - 64)),
    ],
)
def test_only_a_fence_around_the_whole_code_is_removed(code: str, cleaned: str) -> None:
    assert clean_code(code) == cleaned
    assert stripped(list(code)) == cleaned


def test_fenced_code_is_clean_once_the_fence_is_gone() -> None:
    case = next(case for case in CONTAMINATION["cases"] if case["id"] == "leading_fence")

    assert find_leftover(clean_code(case["code"])) is None


def test_fenced_code_streams_while_it_is_written() -> None:
    stripper = FenceStripper()

    pieces = [stripper.feed(chunk) for chunk in ("``", "`py", "\n", "x=", "1\n", "y\n``", "`\n")]

    assert pieces == ["", "", "", "x=", "1", "\ny", ""]
    assert stripper.close() == ""


@pytest.mark.parametrize(
    ("code", "language", "marker"),
    [
        ("print('<channel:code>')  # </channel:code>", "python", None),
        ('"""\n<thinking>\n"""\nx = f"</channel:{x}>"', "python", None),
        ("x = 1\n<THINKING>so", "python", "<thinking>"),
        ("'<channel:a>'\nx = 1 </channel:code>", "python", "</channel:"),
        ("print('never closed <channel:code>", "python", "<channel:"),
        ("'''never closed <channel:code>", "python", "<channel:"),
        ("  </think>x", "python", "</think>"),
        ("echo '<channel:code>'", "bash", "<channel:"),
        ("`which ls` -la", "bash", None),
        ("```bash\nls", "bash", "markdown_fence_or_backtick"),
        ("if a <channel: pass", "python", "<channel:"),
        ("é = 1\nİ = '<channel:a>'\n</channel:a>", "python", "</channel:"),
    ],
)
def test_tags_count_where_they_are_not_part_of_the_code(
    code: str, language: str, marker: str | None
) -> None:
    found = find_leftover(code, language)

    assert (found.marker if found else None) == marker


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(
            ["`", "```", "````", "python", "\n", "\r\n", " ", "x = 1", "{", " " * 30, "é"]
        ),
        max_size=20,
    ).map("".join),
    size=st.integers(1, 9),
)
def test_any_way_to_cut_fenced_code_gives_the_same(text: str, size: int) -> None:
    chunks = [text[start : start + size] for start in range(0, len(text), size)]

    assert stripped(chunks) == clean_code(text)


@pytest.mark.parametrize("pattern", ["`", "```\n", "x = 1\n", " "])
def test_twice_the_code_takes_twice_the_time(pattern: str) -> None:
    def start() -> Callable[[str], str]:
        stripper = FenceStripper()
        stripper.feed("```\nx")
        return stripper.feed

    ratio = growth(start, [pattern * 4] * 5_000, [pattern * 4] * 10_000)

    assert ratio <= 2.5
