"""The fields of a reply: while it arrives, and from whatever arrived."""

from __future__ import annotations

import json

import pytest

from taskweaver_ext.roles.base.reply_json import ReplyFieldStream, parse_reply

FIELDS = ("thought", "reply_type", "reply_content")
REPLY = {"thought": 'say "hi"', "reply_type": "python", "reply_content": "print('ä\\n')\n# 😀"}
WRAPPED = json.dumps({"response": REPLY})


def streamed(text: str, size: int) -> dict[str, str]:
    stream = ReplyFieldStream(FIELDS)
    found: dict[str, str] = {}
    for start in range(0, len(text), size):
        for piece in stream.feed(text[start : start + size]):
            found[piece.name] = found.get(piece.name, "") + piece.text
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        WRAPPED,
        json.dumps(REPLY),
        f"Well {{then}}, here:\n```json\n{WRAPPED}\n```\nbye {{}}",
        f"{{ {{ {WRAPPED}",
        json.dumps({"response": {"other": {"thought": "not this"}, **REPLY}}),
    ],
)
def test_fields_are_found_whatever_stands_around_them(text: str, size: int) -> None:
    assert streamed(text, size) == REPLY
    assert parse_reply(text, FIELDS) == REPLY


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_list_of_texts_reads_as_lines(size: int) -> None:
    text = json.dumps({"response": {"thought": ["one", "two"], "reply_type": "text"}})

    assert streamed(text, size)["thought"] == "one\ntwo"
    assert (parse_reply(text, FIELDS) or {})["thought"] == "one\ntwo"


def test_what_a_model_thinks_aloud_is_not_its_reply() -> None:
    draft = json.dumps({"response": {**REPLY, "reply_content": "a draft"}})
    about_tags = json.dumps({"response": {**REPLY, "reply_content": "print('</think>')"}})

    # Some chat templates open the tag themselves, so that only its end is seen.
    assert parse_reply(f"Maybe {draft}? No.</think>\n{WRAPPED}", FIELDS) == REPLY
    assert (parse_reply(about_tags, FIELDS) or {})["reply_content"] == "print('</think>')"


def test_the_code_is_reported_before_the_reply_ends() -> None:
    assert streamed(WRAPPED[:-20], 4)["reply_content"].startswith("print(")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"response": {"thought": "a", "reply_type": "text",}}', {"thought": "a"}),
        ('{"response": {"thought": "a", "reply_type": "text"', {"thought": "a"}),
        (r'{"response": {"thought": "a \d", "reply_type": "text"}}', {"thought": r"a \d"}),
        ('{"thought": "a", "reply_type": "text", "x": None, "y": [1, 2}', {"thought": "a"}),
        ('{"response": {"thought": "a\nb", "reply_type": "text"}}', {"thought": "a\nb"}),
        (
            json.dumps({"response": json.dumps({"thought": "a", "reply_type": "text"})}),
            {"thought": "a"},
        ),
    ],
)
def test_small_mistakes_are_repaired(text: str, expected: dict[str, str]) -> None:
    assert parse_reply(text, FIELDS) == {**expected, "reply_type": "text"}


@pytest.mark.parametrize(
    "text",
    ["", "prose", "[]", "{}", '{"other": 1}', '{"response": {"thought": "cut of', "{" * 1000, "}"],
)
def test_what_says_nothing_is_no_reply(text: str) -> None:
    assert parse_reply(text, FIELDS) is None
    assert streamed(text, 3) in ({}, {"thought": "cut of"})


def test_values_that_are_no_text_become_text() -> None:
    assert parse_reply('{"thought": {"a": 1}, "reply_type": 3}', FIELDS) == {
        "thought": '{"a": 1}',
        "reply_type": "3",
    }
