"""JSON while it arrives, and what models make of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.text.lenient_json import MAX_DEPTH, JsonEvent, LenientJsonReader
from tests.support.growth import growth

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
SIZES = [1, 2, 5, 1000]


def read(text: str, size: int = 1000) -> tuple[LenientJsonReader, list[JsonEvent]]:
    reader = LenientJsonReader()
    events: list[JsonEvent] = []
    for start in range(0, len(text), size):
        if not reader.is_over:
            events += reader.feed(text[start : start + size])
    return reader, events + reader.close()


def value_of(text: str, size: int = 1000) -> object:
    reader, events = read(text, size)
    assert reader.problem == ""
    return events[-1].value


@given(VALUES, st.booleans(), st.integers(1, 7))
def test_what_is_json_is_read_as_json(value: object, is_ascii: bool, size: int) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)

    assert value_of(text, size) == json.loads(text)


@given(st.text(alphabet='{}[]":,\\ du123abe\n\ud83d', max_size=30), st.integers(1, 4))
def test_where_it_is_cut_makes_no_difference(text: str, size: int) -> None:
    whole, events = read(text)
    cut, same_events = read(text, size)

    assert whole.problem == cut.problem
    ends = [event for event in events if event.kind != "text"]
    assert [event for event in same_events if event.kind != "text"] == ends


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "\d\u12\"\ud83d"}', {"a": '\\d\\u12"\ufffd'}),
        (r'["\ud83d\ude00", "\ude00"]', ["😀", "\ufffd"]),
        ('{"a": [1, 2,], "b": None,}', {"a": [1, 2], "b": None}),
        ('{"a": [1, {"b": True}', {"a": [1, {"b": True}]}),
        ('{"a": [1, {"b": 2]}', {"a": [1, {"b": 2}]}),
        ('{"a": 1]', {"a": 1}),
        ('{"a": "line\nbreak\t"}', {"a": "line\nbreak\t"}),
        ('{"a": 1, "a": 2, ', {"a": 2}),
        ("{\n  \\", {}),
        ("{}", {}),
        ("[[], {}]", [[], {}]),
    ],
)
def test_what_models_get_wrong_is_forgiven(text: str, value: object, size: int) -> None:
    assert value_of(text, size) == value


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        *('{"a": "cut', '{"a', '{"a"', '{"a":', '{"a": tru', '{"a": 1 "b": 2}', "{then}", "{1: 2}"),
        *("[1,,2]", "{,}", '{"a": }', '{"a": +1}', '{"a": 01}', "", "[" * 101, f"[{'1' * 2000}]"),
    ],
)
def test_what_cannot_be_known_is_a_problem(text: str, size: int) -> None:
    reader, _ = read(text, size)

    assert reader.problem.startswith("The text is not JSON: ")
    assert len(reader.problem) < 200


def test_it_says_where_it_ended() -> None:
    complete, wrong = LenientJsonReader(), LenientJsonReader()

    complete.feed('{"a": 1} and more')
    wrong.feed('{"a": 1 and more')

    assert (complete.is_over, complete.problem, complete.rest) == (True, "", " and more")
    assert (wrong.is_over, wrong.rest) == (True, "and more")


def test_strings_are_reported_with_their_place_as_they_grow() -> None:
    reader = LenientJsonReader()

    events = reader.feed('{"a": {"b": ["x", "y')

    assert [(event.kind, event.path, event.text, event.is_item) for event in events[-4:]] == [
        ("text", ("a", "b"), "x", True),
        ("end", ("a", "b"), "", True),
        ("begin", ("a", "b"), '"', True),
        ("text", ("a", "b"), "y", True),
    ]
    assert MAX_DEPTH >= 100


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        ('{"a": "', r"\d\ud83d"),
        ("[", '"x", '),
        ("[", "1, {}, "),
        ('{"a": "', "x"),
        ("{", '"a": 1,'),
    ],
)
def test_twice_the_text_takes_twice_the_time(head: str, piece: str) -> None:
    once, twice = [head, *[piece] * 4_000], [head, *[piece] * 8_000]

    assert growth(lambda: LenientJsonReader().feed, once, twice) <= 2.5
