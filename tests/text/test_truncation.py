"""What is left of a text too long, at every size, and what is said about the rest."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.text.truncation import (
    cut_head,
    cut_tail,
    left_out_marker,
    shorten_middle,
)
from tests.support.data import DATA

RECORDED = json.loads((DATA / "14_truncation.json").read_text("utf-8"))["cases"]
CASES = [case for case in RECORDED if case["fn"] in ("head_bytes", "tail_bytes", "elision_marker")]
"""The others cut by lines, which nothing of ours does."""

# Where ours differs from the recorded case, and why.
DEVIATIONS: dict[str, tuple[Any, str]] = {
    '{"bytes": 512, "lines": 0} elision_marker': (
        "[... 512 bytes left out ...]",
        "whole words, for people and models that do not know the abbreviations",
    ),
    '{"bytes": 4096, "lines": 123} elision_marker': (
        "[... 123 lines (4,096 bytes) left out ...]",
        "lines alone do not say how much is missing",
    ),
}

texts_with_lines = st.text(alphabet=st.sampled_from("ab\n\n é中😀"), max_size=300)


def case_name(case: dict[str, Any]) -> str:
    return f"{json.dumps(case['input'], sort_keys=True, ensure_ascii=False)} {case['fn']}"


def run_case(function: str, given_input: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if function == "elision_marker":
        return left_out_marker(given_input["bytes"], given_input["lines"], unit="byte")
    cut = cut_head if function == "head_bytes" else cut_tail
    kept = cut(given_input["text"].encode(), given_input["max_bytes"])
    return {"text": kept.decode(), "bytes": len(kept)}


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_recorded_cases_hold_or_differ_for_a_reason(case: dict[str, Any]) -> None:
    expected, _reason = DEVIATIONS.get(case_name(case), (case["expect"], ""))

    actual = run_case(case["fn"], case["input"])

    if isinstance(expected, dict):
        actual = {key: actual[key] for key in expected}
    assert actual == expected


def test_every_deviation_names_a_recorded_case() -> None:
    assert DEVIATIONS.keys() <= {case_name(case) for case in CASES}


def test_a_text_within_the_budget_is_returned_as_it_is() -> None:
    shortened = shorten_middle("a\nb\n", 4)

    assert shortened == "a\nb\n"


def test_the_middle_is_left_out_between_lines_and_counted() -> None:
    text = "".join(f"line {number:04}\n" for number in range(1000))

    shortened = shorten_middle(text, 200, where="out.txt")

    assert shortened == (
        "line 0000\nline 0001\nline 0002\nline 0003\nline 0004\nline 0005\n"
        "[... 988 lines (9,880 characters) left out; whole output: out.txt ...]\n"
        "line 0994\nline 0995\nline 0996\nline 0997\nline 0998\nline 0999\n"
    )


def test_a_single_long_line_is_cut_in_its_middle() -> None:
    shortened = shorten_middle("x" * 1000, 100)

    assert shortened == f"{'x' * 32}\n[... 937 characters left out ...]\n{'x' * 31}"


def test_only_lines_left_out_as_a_whole_are_counted_as_lines() -> None:
    text = "x" * 200 + "\n" + "lost\n" * 3 + "y" * 200

    shortened = shorten_middle(text, 150)

    assert "[... 3 lines (" in shortened
    assert shortened.startswith("xxx")
    assert shortened.endswith("yyy")


def test_the_place_is_not_named_when_it_would_take_half_the_budget() -> None:
    shortened = shorten_middle("x" * 1000, 120, where="/very/long" * 20)

    assert "/very" not in shortened
    assert "characters left out" in shortened


@settings(deadline=None)
@given(
    text=texts_with_lines, max_chars=st.integers(-1, 320), where=st.sampled_from(["", "a/b.out"])
)
def test_a_shortened_text_fits_and_accounts_for_every_character(
    text: str, max_chars: int, where: str
) -> None:
    shortened = shorten_middle(text, max_chars, where=where)

    assert len(shortened) <= max(0, max_chars)
    if len(text) <= max_chars:
        assert shortened == text
    elif max_chars < 9:
        assert shortened == "[...]"[: max(0, max_chars)]
    else:
        head, marker, tail = re.split(r"(\[\.\.\.[^\]]*\])", shortened)
        assert text.startswith(head.removesuffix("\n"))
        assert text.endswith(tail.removeprefix("\n"))
        if amount := re.search(r"([\d,]+) character", marker):
            kept = len(text) - int(amount[1].replace(",", ""))
            assert 0 <= len(head) + len(tail) - kept <= 2  # the newlines around the marker
        else:
            assert marker == "[...]"


@settings(deadline=None)
@given(text=texts_with_lines, limit=st.integers(-1, 900))
def test_cut_bytes_are_the_longest_that_end_well(text: str, limit: int) -> None:
    data = text.encode()

    head, tail = cut_head(data, limit), cut_tail(data, limit)

    assert data.startswith(head)
    assert data.endswith(tail)
    assert head.decode() in text  # whole characters only
    assert tail.decode() in text
    assert max(len(head), len(tail)) <= max(limit, 0)
    if len(data) <= limit:
        assert head == tail == data
    elif limit > 0:
        outer = data[limit // 2 : limit]
        assert head.endswith(b"\n") if b"\n" in outer else limit - len(head) <= 3
        window = data[len(data) - limit :]
        is_at_start = data[len(data) - limit - 1 : len(data) - limit] == b"\n"
        if not is_at_start and b"\n" in window[: limit // 2]:
            assert tail == window.split(b"\n", 1)[1]
        else:
            assert limit - len(tail) <= 3


def test_a_line_end_far_from_the_cut_is_not_worth_losing_the_rest() -> None:
    text = "a\n" + "x" * 200 + "\nb"

    shortened = shorten_middle(text, 100)

    assert cut_head(text.encode(), 50) == text[:50].encode()
    assert cut_tail(text.encode(), 50) == text[-50:].encode()
    assert shortened.startswith("a\nxxx")
    assert shortened.endswith("xxx\nb")


def test_a_cut_that_falls_between_two_lines_loses_no_more() -> None:
    assert cut_head(b"aaaa\nbbbb\ncccc\n", 10) == b"aaaa\nbbbb\n"
    assert cut_tail(b"aaaa\nbbbb\ncccc\n", 10) == b"bbbb\ncccc\n"


def test_bytes_that_are_not_utf8_are_cut_at_the_limit() -> None:
    assert cut_head(b"\x80" * 20, 10) == b"\x80" * 10
    assert cut_tail(b"\x80" * 20, 10) == b"\x80" * 10
