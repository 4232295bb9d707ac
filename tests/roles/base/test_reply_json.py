"""The fields of a reply: while it arrives, and from whatever arrived."""

from __future__ import annotations

import json

import pytest

from taskweaver_ext.roles.base.reply_json import ReplyFieldReader

FIELDS = ("thought", "reply_type", "reply_content")
REPLY = {"thought": 'say "hi"', "reply_type": "python", "reply_content": "print('ä\\n')\n# 😀"}
WRAPPED = json.dumps({"response": REPLY})


def shown(text: str, size: int) -> dict[str, str]:
    """The fields as somebody sees them who only hears what is reported."""
    return read(text, size)[0]


def read(text: str, size: int = 1000) -> tuple[dict[str, str], dict[str, str] | None]:
    """What is shown of a reply, and what it comes to."""
    reader = ReplyFieldReader(FIELDS)
    found: dict[str, str] = {}
    starts = range(0, len(text), size)
    for pieces in (*(reader.feed(text[start : start + size]) for start in starts), reader.close()):
        for piece in pieces:
            for name in (piece.name,) if piece.name else FIELDS:
                before = "" if piece.restarts else found.pop(name, "")
                found[name] = before + piece.text
    return {name: value for name, value in found.items() if value}, reader.texts


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
    assert shown(text, size) == REPLY
    assert read(text)[1] == REPLY


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_list_of_texts_reads_as_lines(size: int) -> None:
    text = json.dumps({"response": {"thought": ["one", "two"], "reply_type": "text"}})

    assert shown(text, size)["thought"] == "one\ntwo"
    assert (read(text)[1] or {})["thought"] == "one\ntwo"


def test_what_a_model_thinks_aloud_is_not_its_reply() -> None:
    draft = json.dumps({"response": {**REPLY, "reply_content": "a draft"}})
    about_tags = json.dumps({"response": {**REPLY, "reply_content": "print('</think>')"}})

    # Some chat templates open the tag themselves, so that only its end is seen.
    assert read(f"Maybe {draft}? No.</think>\n{WRAPPED}")[1] == REPLY
    assert (read(about_tags)[1] or {})["reply_content"] == "print('</think>')"


def test_the_code_is_reported_before_the_reply_ends() -> None:
    assert shown(WRAPPED[:-20], 4)["reply_content"].startswith("print(")


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
    assert read(text)[1] == {**expected, "reply_type": "text"}


@pytest.mark.parametrize(
    "text",
    ["", "prose", "[]", "{}", '{"other": 1}', '{"response": {"thought": "cut of', "{" * 1000, "}"],
)
def test_what_says_nothing_is_no_reply(text: str) -> None:
    assert read(text)[1] is None
    assert shown(text, 3) in ({}, {"thought": "cut of"})


def test_values_that_are_no_text_become_text() -> None:
    assert read('{"thought": {"a": 1}, "reply_type": 3}')[1] == {
        "thought": '{"a": 1}',
        "reply_type": "3",
    }
