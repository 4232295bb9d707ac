"""A reply is split into its channels, however it is cut, and nothing said is lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.streaming.channels import OUTSIDE, ChannelEvent, ChannelParser
from tests.support.data import DATA
from tests.support.growth import growth

VECTORS = json.loads((DATA / "01_channel_stream.json").read_text(encoding="utf-8"))
DEFECTS = json.loads(
    (DATA / "02_channel_stream_reference_defects.json").read_text(encoding="utf-8")
)
CHANNELS = ("thinking", "action", "code")

SAFE_RULES = {
    "undeclared_channel": [(OUTSIDE, 0, "<channel:unknown>x=1</channel:unknown>")],
    "spaces_in_tag": [("code", 0, "x=1"), ("code", 0, None)],
}
"""What we make of the inputs on which the recorded parser fails; None is the end of an instance."""


def chunks_of(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def events_of(chunks: list[str]) -> list[ChannelEvent]:
    parser = ChannelParser(channels=CHANNELS)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


def joined(events: list[ChannelEvent]) -> list[tuple[str, int, str | None]]:
    """Join what belongs together; None in place of the text is the end of an instance."""
    result: list[tuple[str, int, str | None]] = []
    for event in events:
        channel, instance, text = event.channel, event.instance, event.text
        if event.completed:
            assert text == ""
            result.append((channel, instance, None))
            continue
        assert text
        if result and result[-1][:2] == (channel, instance) and result[-1][2] is not None:
            text = result.pop()[2] + text  # type: ignore[operator] # just seen not to be None
        result.append((channel, instance, text))
    return result


def split(text: str) -> list[tuple[str, int, str | None]]:
    """Split a text that gives the same result at many chunk sizes."""
    result = joined(events_of([text]))
    for size in (1, 2, 3, 5, 7, 9, 11, 17, 63, 64, 65):
        assert joined(events_of(chunks_of(text, size))) == result
    return result


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_recorded_cases_split_as_recorded(case: dict[str, Any]) -> None:
    events = joined([event for event in events_of([case["text"]]) if event.channel != OUTSIDE])

    assert events == [
        (event["channel"], event["instance"], None if event.get("completed") else event["text"])
        for event in case["expect"]["events"]
    ]
    assert split(case["text"])


@pytest.mark.parametrize("case", DEFECTS["cases"], ids=lambda case: case["id"])
def test_inputs_that_break_other_parsers_have_a_safe_rule(case: dict[str, Any]) -> None:
    assert split(case["text"]) == SAFE_RULES[case["id"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("hello", [(OUTSIDE, 0, "hello")], id="no_channels"),
        pytest.param(
            "a<channel:code>b</channel:code>c",
            [(OUTSIDE, 0, "a"), ("code", 0, "b"), ("code", 0, None), (OUTSIDE, 0, "c")],
            id="text_outside",
        ),
        pytest.param(
            "<channel:code>a</channel:code><channel:code>b</channel:code>",
            [("code", 0, "a"), ("code", 0, None), ("code", 1, "b"), ("code", 1, None)],
            id="repeated_channels_are_numbered",
        ),
        pytest.param(
            "<CHANNEL:Code>a</channel:CODE>",
            [("code", 0, "a"), ("code", 0, None)],
            id="capitals_do_not_matter",
        ),
        pytest.param(
            "<channel:code>a<channel:foo>b",
            [("code", 0, "a<channel:foo>b"), ("code", 0, None)],
            id="unknown_open_is_text",
        ),
        pytest.param(
            "<channel:code>a</channel:foo>b</channel:thinking>c</channel:code>",
            [("code", 0, "a"), (OUTSIDE, 0, "</channel:foo>"), ("code", 0, "b")]
            + [(OUTSIDE, 0, "</channel:thinking>"), ("code", 0, "c"), ("code", 0, None)],
            id="close_with_another_name_is_set_aside",
        ),
        pytest.param(
            "</channel:code>a", [(OUTSIDE, 0, "</channel:code>a")], id="stray_close_is_text"
        ),
        pytest.param(
            "<channel:thinking>a<channel:code>b</channel:code>c",
            [("thinking", 0, "a"), ("thinking", 0, None), ("code", 0, "b"), ("code", 0, None)]
            + [(OUTSIDE, 0, "c")],
            id="open_completes_the_open_channel",
        ),
        pytest.param(
            "<channel:code>x<y and z</b",
            [("code", 0, "x<y and z</b"), ("code", 0, None)],
            id="unclosed_at_the_end",
        ),
        pytest.param(
            "<channel:code>x</channel:co",
            [("code", 0, "x</channel:co"), ("code", 0, None)],
            id="tag_never_completed",
        ),
        pytest.param(
            "<channel:" + "x" * 100 + ">",
            [(OUTSIDE, 0, "<channel:" + "x" * 100 + ">")],
            id="name_too_long",
        ),
        pytest.param(
            "<\u200bchannel:code>x<channel:co\u200dde>\ufeff<channel:code>y</channel:code\u200b>",
            [(OUTSIDE, 0, "<\u200bchannel:code>x<channel:co\u200dde>\ufeff")]
            + [("code", 0, "y</channel:code\u200b>"), ("code", 0, None)],
            id="zero_width_characters_undo_a_tag",
        ),
        pytest.param(
            "<channel:code\n>x<channel: code><channel:>< < channel:code>",
            [(OUTSIDE, 0, "<channel:code\n>x<channel: code><channel:>< "), ("code", 0, None)],
            id="almost_tags",
        ),
        pytest.param(
            "<channel:thinking>it`s</channel:thinking><channel:code>x=1</channel:code>",
            [("thinking", 0, "it`s"), ("thinking", 0, None), ("code", 0, "x=1"), ("code", 0, None)],
            id="stray_backtick",
        ),
        pytest.param(
            "it`s\n`<channel:code>` is quoted",
            [(OUTSIDE, 0, "it`s\n`<channel:code>` is quoted")],
            id="stray_backtick_ends_with_its_line",
        ),
        pytest.param(
            "a stray `<channel:code>\nx=1</channel:code>",
            [(OUTSIDE, 0, "a stray `"), ("code", 0, "\nx=1"), ("code", 0, None)],
            id="stray_backtick_right_before_a_tag",
        ),
        pytest.param(
            "`" + "<channel:code>" + "x" * 70 + "`",
            [(OUTSIDE, 0, "`"), ("code", 0, "x" * 70 + "`"), ("code", 0, None)],
            id="backticks_too_far_apart_quote_nothing",
        ),
        pytest.param(
            "`<channel:code>x</channel:code>`, ``</channel:code>`` or `a <channel:code>`",
            [
                (
                    OUTSIDE,
                    0,
                    "`<channel:code>x</channel:code>`, ``</channel:code>`` or `a <channel:code>`",
                )
            ],
            id="inline_code",
        ),
        pytest.param(
            "<channel:code>print(\"</channel:code>\", '<channel:code>', x)</channel:code>",
            [("code", 0, "print(\"</channel:code>\", '<channel:code>', x)"), ("code", 0, None)],
            id="quotation_marks_around_a_tag_in_code",
        ),
        pytest.param(
            r'<channel:code>print("\"</channel:code>\"")',
            [("code", 0, r'print("\"</channel:code>\"")'), ("code", 0, None)],
            id="escaped_quotation_marks_around_a_tag",
        ),
        pytest.param(
            '<channel:code>print("a</channel:code>b")',
            [("code", 0, 'print("a'), ("code", 0, None), (OUTSIDE, 0, 'b")')],
            id="tag_inside_a_longer_string_in_code_counts",
        ),
        pytest.param(
            '<channel:action>{"a": "use <channel:code>, \\" </channel:action>"}</channel:action>',
            [("action", 0, '{"a": "use <channel:code>, \\" </channel:action>"}')]
            + [("action", 0, None)],
            id="json_string",
        ),
        pytest.param(
            '<channel:action>```json\n{ "a": "</channel:action>." }\n```</channel:action>',
            [("action", 0, '```json\n{ "a": "</channel:action>." }\n```'), ("action", 0, None)],
            id="json_string_in_a_fence",
        ),
        pytest.param(
            '<channel:action>{"a": "5" disk"}</channel:action><channel:code>x</channel:code>',
            [("action", 0, '{"a": "5" disk"}'), ("action", 0, None), ("code", 0, "x")]
            + [("code", 0, None)],
            id="json_with_a_quote_too_many_still_ends",
        ),
        pytest.param(
            "<channel:thinking>So:\n```\n<channel:code>x</channel:code>\n```\n</channel:thinking>",
            [("thinking", 0, "So:\n```\n<channel:code>x</channel:code>\n```\n")]
            + [("thinking", 0, None)],
            id="fence_in_a_channel",
        ),
        pytest.param(
            "<channel:code>```python\nx=1\n</channel:code><channel:code>y</channel:code>",
            [("code", 0, "```python\nx=1\n"), ("code", 0, None), ("code", 1, "y")]
            + [("code", 1, None)],
            id="fence_never_closed_does_not_hide_the_end_of_its_channel",
        ),
        pytest.param(
            "<channel:code>```\n<channel:code>x</channel:code>\n```\n</channel:code>",
            [("code", 0, "```\n<channel:code>x</channel:code>\n```\n"), ("code", 0, None)],
            id="fence_that_shows_its_own_channel",
        ),
        pytest.param(
            "<channel:code>```\n<channel:code>\n```\n```\n</channel:code>",
            [("code", 0, "```\n<channel:code>\n```\n```\n"), ("code", 0, None)],
            id="each_fence_counts_for_itself",
        ),
    ],
)
def test_odd_cases_follow_the_rules(text: str, expected: list[tuple[str, int, str | None]]) -> None:
    assert split(text) == expected


def test_text_is_passed_on_at_once_unless_it_may_be_a_tag() -> None:
    parser = ChannelParser(channels=CHANNELS)
    waits = {"<": "", "chan": "", "nel:": "", "co": "", "x": "<channel:cox", "y<": "y", "5": "<5"}

    said = {chunk: "".join(e.text for e in parser.feed(chunk)) for chunk in waits}

    assert said == waits


def test_a_complete_tag_counts_at_once() -> None:
    parser = ChannelParser(channels=CHANNELS)
    parser.feed("<channel:code>x")

    assert parser.feed("</channel:code>") == [ChannelEvent("code", 0, "", True)]


def test_a_reply_that_broke_off_completes_nothing() -> None:
    parser = ChannelParser(channels=CHANNELS)
    parser.feed("<channel:code>x<")

    assert parser.close(broken=True) == [ChannelEvent("code", 0, "<", False)]
    assert parser.open_channel == "code"
    assert parser.close() == []


def test_a_parser_reads_one_reply() -> None:
    parser = ChannelParser(channels=CHANNELS)
    parser.close()

    with pytest.raises(ValueError, match="one reply"):
        parser.feed("x")


@pytest.mark.parametrize("channels", [("",), ("a b",), ("a", "A"), ("x" * 41,), ("é",)])
def test_names_that_cannot_be_told_apart_or_written_are_refused(channels: tuple[str]) -> None:
    with pytest.raises(ValueError, match="channel"):
        ChannelParser(channels=channels)


pieces_of_replies = st.lists(
    st.sampled_from(
        ["<channel:code>", "</channel:code>", "<channel:thinking>", "</channel:thinking>"]
        + ["<channel:foo>", "</channel:foo>", "<CHANNEL:Code >", "< /channel:code >"]
        + ["`", "``", "```", "\n", '"', "'", "\\", "{", "}", '{"', "[", "]", "json"]
        + ["<", "</", "< ", "channel:", "code", ">", " ", "x", "\u200b", "a" * 30, "é"]
    ),
    max_size=30,
).map("".join)

any_text = pieces_of_replies | st.text(max_size=60)
cuts = st.lists(st.integers(0, 400), max_size=30)


def cut_at(text: str, places: list[int]) -> list[str]:
    bounds = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


@settings(max_examples=400, deadline=None)
@given(text=any_text, one=cuts, other=cuts)
def test_any_two_ways_to_cut_a_reply_say_the_same(
    text: str, one: list[int], other: list[int]
) -> None:
    assert joined(events_of(cut_at(text, one))) == joined(events_of(cut_at(text, other)))
    assert joined(events_of(list(text))) == joined(events_of([text]))


TAG = re.compile(r"<[ \t]?/?[ \t]?channel:[a-z0-9_-]{1,40}[ \t]?>", re.IGNORECASE | re.ASCII)


@settings(max_examples=400, deadline=None)
@given(text=any_text, places=cuts)
def test_nothing_that_was_said_is_lost(text: str, places: list[int]) -> None:
    events = joined(events_of(cut_at(text, places)))

    # What is gone can only be tags, so apart from tags all is there, in order.
    said = "".join(TAG.sub("", part) for _, _, part in events if part is not None)
    assert said == TAG.sub("", text)


@settings(max_examples=200, deadline=None)
@given(text=any_text.filter(lambda text: not TAG.search(text)))
def test_no_more_than_64_characters_wait(text: str) -> None:
    parser = ChannelParser(channels=CHANNELS)
    waiting = 0
    for character in text:
        said = sum(len(event.text) for event in parser.feed(character))
        waiting += 1 - said
        assert 0 <= waiting <= 64


def test_a_tag_that_may_be_quoted_waits_for_64_characters_at_most() -> None:
    parser = ChannelParser(channels=CHANNELS)
    parser.feed("`<channel:code>")

    fed_until_said = next(count for count in range(1, 100) if parser.feed("x"))

    assert fed_until_said == 64 - len("<channel:code>")


@pytest.mark.parametrize(
    ("start", "pattern"),
    [
        ("", "<"),
        ("", "`"),
        ("", "`\n"),
        ("", "<channel:code>"),
        ("", "<channel:"),
        ("", "`<channel:code>" + "x" * 70),
        ("", '"<channel:code>'),
        ("<channel:code>", "</channel:x>"),
        ("<channel:code>", "print('hello')  # some code\n"),
        ('<channel:action>{"a":"', '\\"'),
        ('<channel:action>{"a":"', "</channel:action>"),
        ("<channel:action>```", "<channel:action>"),
    ],
)
def test_twice_the_reply_takes_twice_the_time(start: str, pattern: str) -> None:
    repeats = 20_000 // len(pattern)
    once, twice = start + pattern * repeats, start + pattern * repeats * 2

    ratio = growth(lambda: ChannelParser(CHANNELS).feed, chunks_of(once, 4), chunks_of(twice, 4))

    assert ratio <= 2.5
