"""The string at a JSON path arrives as it is written, however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.json_stream import JsonStringPiece, JsonStringScanner, JsonStringStream
from tests.support.data import DATA
from tests.support.growth import growth

VECTORS = json.loads((DATA / "06_xpath_json_streaming.json").read_text())

DEVIATIONS = {
    "tool_id_gate_match": "the gate is the widget's (tests/streaming/test_exec_widget.py)",
    "tool_id_after_code": "the gate is the widget's (tests/streaming/test_exec_widget.py)",
}


def chunks_of(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def streamed(path: str, chunks: list[str]) -> list[str]:
    stream = JsonStringStream(path)
    pieces = [stream.feed(chunk) for chunk in chunks]
    stream.close()
    return pieces


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_recorded_cases_stream_as_recorded(case: dict[str, Any]) -> None:
    if case["id"] in DEVIATIONS:
        assert case["options"]  # nothing but the gate sets these cases apart
        return
    expected = "".join(piece for piece in case["expect"] if isinstance(piece, str))

    pieces = streamed(case["xpath"], case["chunks"])

    assert "".join(pieces) == expected
    if case["id"] == "escape_split":
        assert pieces == case["expect"][:-1]
    whole = "".join(case["chunks"])
    for size in (1, 2, 3, 7, 1000):
        assert "".join(streamed(case["xpath"], chunks_of(whole, size))) == expected


@pytest.mark.parametrize(
    ("path", "text", "expected", "value_count"),
    [
        ("a", '{"a": "x"}', "x", 1),
        ("a", ' \n{ "a" \t:\r "x" } ', "x", 1),
        ("a", '{"a": ""}', "", 1),
        ("a", '{"b": "x"}', "", 0),
        ("a", '{"a": 1, "b": {"a": "no"}}', "", 0),
        ("a", '{"a": null}', "", 0),
        ("a", '{"a": {"a": "no"}}', "", 0),
        ("a.b", '{"a": [{"b": "x"}, [{"b": ["y", 1, "z"]}]]}', "xyz", 3),
        ("a", '{"a": "x", "a": "y"}', "xy", 2),
        ("a", '[{"a": "x"}, {"a": "y"}]', "xy", 2),
        ("a", '{"\\u0061": "x"}', "x", 1),
        ("a", '{"aa": "no", "' + "a" * 5000 + '": "no", "": "no", "a": "x"}', "x", 1),
        ("a", r'{"a": "\"\\\/\b\f\n\r\t\u00e9"}', '"\\/\b\f\n\r\té', 1),
        ("a", r'{"a": "\ud83d\ude00!"}', "😀!", 1),
        ("a", r'{"a": "\ud83dx\ude00\ud83d\ud83d\ude00"}', "\ufffdx\ufffd\ufffd😀", 1),
        ("a", r'{"a": "\ud83d"}', "\ufffd", 1),
        ("a", r'{"a": "\\ud83d\\\ud83d\ude00"}', "\\ud83d\\😀", 1),
        ("a", '{"a": "line\n\tline"}', "line\n\tline", 1),
        ("a", '"just a string"', "", 0),
        ("a", " -12.5e+3 ", "", 0),
        ("a", '{"x": [], "y": {}, "a": "x", "z": [true, false, null, 0]}', "x", 1),
    ],
)
def test_every_cut_gives_the_same_text(
    path: str, text: str, expected: str, value_count: int
) -> None:
    for size in (1, 2, 3, 4, 5, 6, 7, 11, len(text)):
        stream = JsonStringStream(path)

        said = "".join(stream.feed(chunk) for chunk in chunks_of(text, size))
        stream.close()

        assert (said, stream.value_count, stream.finished) == (expected, value_count, True)


def test_text_arrives_before_its_string_is_complete() -> None:
    stream = JsonStringStream("code")

    pieces = [stream.feed(chunk) for chunk in ('{"co', 'de": "prin', "t(1)\\", "nx", '"', "}")]

    assert pieces == ["", "prin", "t(1)", "\nx", "", ""]
    assert stream.finished


def test_several_paths_keep_their_order() -> None:
    scanner = JsonStringScanner("tool.id", "tool.code")

    pieces = scanner.feed('{"tool": {"code": "early", "id": "t1", "code": "late')

    assert pieces == [
        JsonStringPiece("tool.code", "early", True),
        JsonStringPiece("tool.id", "t1", True),
        JsonStringPiece("tool.code", "late", False),
    ]


@pytest.mark.parametrize(
    ("text", "kept", "complaint"),
    [
        ('{"a": "kept" oops}', "kept", "character 14: ',' or the end"),
        ('{"a": "kept", }', "kept", "a key in quotes should stand where '}'"),
        ('{"a": "kept" "b": 1}', "kept", "character 14"),
        ('{"a": "kept\\x"}', "kept", "no such escape: '\\\\x"),
        ('{"a": "kept\\u12G4"}', "kept", "no such escape"),
        ('{"a": "kept"}{', "kept", "nothing more should stand where '{'"),
        ('{"a": "kept", "b": tru}', "kept", "'tru' is no JSON value"),
        ('{"a": "kept", "b": 01}', "kept", "'01' is no JSON value"),
        ('{"a": "kept", "b": -}', "kept", "'-' is no JSON value"),
        ('{"a": "kept"]', "kept", "where ']' is"),
        ("{'a': 1}", "", "character 2: a key in quotes or '}'"),
        ("no json", "", "'no' is no JSON value"),
        ("[" * 1001, "", "nested more than 1000 deep"),
        ("1" * 1001, "", "a number of more than 1000 characters"),
    ],
)
def test_a_mistake_is_named_and_costs_nothing_that_came_before(
    text: str, kept: str, complaint: str
) -> None:
    messages = set()
    for size in (1, 2, 3, 5, 10_000):
        stream = JsonStringStream("a")
        said = []

        with pytest.raises(ProtocolError) as caught:  # noqa: PT012 - which call raises may vary
            for chunk in chunks_of(text, size):
                said.append(stream.feed(chunk))
            stream.close()

        assert "".join(said) == kept
        assert complaint in str(caught.value)
        messages.add(str(caught.value)[:60])
        with pytest.raises(ProtocolError, match="what came before is kept"):
            stream.feed("x")
    assert len(messages) == 1


@pytest.mark.parametrize("text", ["", " ", '{"a": "kept', '{"a": "kept\\', '{"a": "kept"', "tru"])
def test_text_that_breaks_off_is_an_error_when_closed(text: str) -> None:
    stream = JsonStringStream("a")
    said = stream.feed(text)

    with pytest.raises(ProtocolError, match=r"ends after \d+ characters|no JSON value"):
        stream.close()

    assert said == ("kept" if "kept" in text else "")
    assert not stream.finished


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b"])
def test_a_path_without_keys_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="keys joined by dots"):
        JsonStringStream(path)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()), max_size=12),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "", "ab", "é", '"']), children, max_size=4)
    ),
    max_leaves=20,
)


def strings_at(value: object, keys: tuple[str, ...]) -> str:
    """Find the strings the slow way: in the parsed value."""
    if isinstance(value, list):
        return "".join(strings_at(item, keys) for item in value)
    if isinstance(value, dict) and keys:
        return strings_at(value.get(keys[0]), keys[1:]) if keys[0] in value else ""
    return value if isinstance(value, str) and not keys else ""


@settings(max_examples=200, deadline=None)
@given(
    value=json_values,
    path=st.sampled_from(["a", "a.b", "b.a", "é"]),
    is_ascii=st.booleans(),
    size=st.integers(1, 9),
)
def test_any_json_streams_what_a_whole_parse_finds(
    value: object, path: str, is_ascii: bool, size: int
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    expected = strings_at(json.loads(text), tuple(path.split(".")))

    said = "".join(streamed(path, chunks_of(text, size)))

    # Half a surrogate pair is replaced when it was escaped, and passed on when it was not.
    assert replaced_surrogates(said) == replaced_surrogates(expected)


def replaced_surrogates(text: str) -> str:
    return "".join(
        "\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text
    )


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(
            ['{"a":"', '"a"', '"', "\\", "\\n", "\\ud83d", "\\ude00", "\\u", "{", "}", "[", "]"]
            + [",", ":", "1", "-", "true", "x", " ", "\n", "é", '"a":']
        ),
        max_size=25,
    ).map("".join),
    size=st.integers(1, 7),
)
def test_any_text_gives_the_same_outcome_however_it_is_cut(text: str, size: int) -> None:
    outcomes = []
    for chunks in ([text], chunks_of(text, size)):
        stream = JsonStringStream("a")
        said = ""
        verdict = "fine"
        try:
            for chunk in chunks:
                said += stream.feed(chunk)
            stream.close()
        except ProtocolError as error:
            verdict = str(error)
        outcomes.append((said, verdict, stream.value_count, stream.finished))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("start", "pattern"),
    [
        ('{"a":"', "x"),
        ('{"a":"', "\\n"),
        ('{"a":"', "\\\\"),
        ('{"a":"', "\\ud83d\\ude00"),
        ('{"a":"', '","a":"'),
        ('{"', "k"),
        ("[", "[],"),
        ("[", "1,"),
    ],
)
def test_twice_the_text_takes_twice_the_time(start: str, pattern: str) -> None:
    repeats = 20_000 // len(pattern)
    once, twice = start + pattern * repeats, start + pattern * repeats * 2

    ratio = growth(lambda: JsonStringStream("a").feed, chunks_of(once, 4), chunks_of(twice, 4))

    assert ratio <= 2.5
