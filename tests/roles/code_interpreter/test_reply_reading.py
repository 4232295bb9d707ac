"""The panel shows what runs: one reading of a reply feeds panel, attachments and execution."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskweaver_ext.conversation import AttachmentType, Post, RoundId
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.roles.base.correction import UnusableReplyError
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.code_interpreter.channel_form import ChannelReading
from taskweaver_ext.roles.code_interpreter.json_form import JsonReading
from taskweaver_ext.roles.code_interpreter.reply_reading import ReplyReading
from taskweaver_ext.roles.code_interpreter.shown_reply import GeneratedCode, GeneratedText
from tests.support.conversations import Listener
from tests.support.growth import growth

LANGUAGES = ("python", "bash")
PREFIX = "import project"


@dataclass(frozen=True)
class Outcome:
    """What became of a reply: what would run, and what was shown."""

    code: str | None
    """None when nothing runs."""
    language: str
    answer: str
    panel_code: str
    statuses: list[str]
    attached: str
    """The code that the post holds."""
    message: str


def read(
    kind: type[ReplyReading],
    text: str,
    sizes: list[int] | int = 1000,
    *,
    is_whole: bool = True,
    prefix: str = "",
) -> Outcome:
    """Let a reply arrive in pieces of the given sizes, again and again, and run what it says."""
    emitter, listener = SessionEventEmitter(), Listener()
    emitter.start_round(RoundId("r1"))
    with emitter.subscribe(listener):
        post = emitter.create_post_proxy("X")
        reading = kind(post, LANGUAGES, prefix)
        at, number = 0, 0
        sizes = [sizes] if isinstance(sizes, int) else sizes
        while at < len(text):
            size = sizes[number % len(sizes)]
            reading.feed(text[at : at + size])
            at, number = at + size, number + 1
        reply = ModelReply(text, "stop") if is_whole else ModelReply(text, "broken", "It broke.")
        try:
            generated = reading.finish(reply)
        except UnusableReplyError as problem:
            reading.abandon(str(problem))
            return outcome(None, post.post, listener)
        if isinstance(generated, GeneratedCode):
            generated.panel.start_execution()
            generated.panel.finish_execution()
        return outcome(generated, post.post, listener)


def outcome(
    generated: GeneratedCode | GeneratedText | None, post: Post, listener: Listener
) -> Outcome:
    code = generated if isinstance(generated, GeneratedCode) else None
    held = [one.content for one in post.get_attachment(AttachmentType.reply_content)]
    return Outcome(
        code=code.code if code else None,
        language=code.language if code else "",
        answer=generated.text if isinstance(generated, GeneratedText) else "",
        panel_code=listener.code_of_panel(),
        statuses=listener.statuses_of_panel(),
        attached=held[0] if len(held) == 1 else str(held or ""),
        message=post.message,
    )


def field(name: str, value: str) -> str:
    return f'"{name}": "{value}"'


def channels(decision: str, *codes: str) -> str:
    parts = (f"<channel:code>{code}</channel:code>" for code in codes)
    return f"<channel:ReactDecisionOutV2>{decision}</channel:ReactDecisionOutV2>" + "".join(parts)


TOOL = '{"tool_call": {"tool_id": "exec_tools.execute_code_python", "params": {"contract": []}}}'
TOOL_AND_ANSWER = '{"action": "complete", "final_answer": "no", ' + TOOL[1:]


# A grammar of replies, good and broken.

CODE = st.lists(
    st.sampled_from(
        [
            *("x = 1", "print('a')", " ", "\n", "\r\n", "# é 😀", "\\d", "\\", "\t", "{", "}", "`"),
            *("```python\n", "```", "\n```\n", "````\n", "<think>", "</think>", "import project\n"),
            *("</channel:code>", "<channel:thinking>", "<channel:odd>", '"', '"""', "\0", "\ufffd"),
        ]
    ),
    max_size=8,
).map("".join)
ESCAPED = st.one_of(
    CODE.map(lambda code: json.dumps(code)[1:-1]),
    CODE.map(lambda code: json.dumps(code, ensure_ascii=False)[1:-1]),
    st.lists(
        st.sampled_from(
            [
                *(r"\d", r"\w+", r"\n", r"\u00e9", r"\ud83d", r"\ude00", r"\ud83d\ude00", r"\u12"),
                *("x = 1", "\n", "\r\n", "\\\\", "```python\\n", "\\n```", "</think>", r"\"", "'"),
            ]
        ),
        max_size=8,
    ).map("".join),
)
TYPES = st.sampled_from(["python", "py", "Bash", "text", "klingon", "", " python "])
JSON_FIELDS = st.lists(
    st.one_of(
        ESCAPED.map(lambda text: field("reply_content", text)),
        TYPES.map(lambda text: field("reply_type", text)),
        ESCAPED.map(lambda text: field("thought", text)),
        st.sampled_from(
            [
                '"reply_content": null',
                '"reply_content": 3',
                '"reply_content": ["a", "b"]',
                '"reply_content": ["a", 1]',
                '"other": {"thought": [1, {}]}',
                '"reply_type": null',
            ]
        ),
    ),
    max_size=4,
).map(lambda fields: "{" + ", ".join(fields) + "}")
GOOD_JSON = st.builds(
    lambda thought, kind, code: json.dumps(
        {"response": {"thought": thought, "reply_type": kind, "reply_content": code}}
    ),
    CODE,
    st.sampled_from(["python", "bash", "text"]),
    CODE,
)
JSON_REPLY = st.one_of(
    GOOD_JSON,
    JSON_FIELDS,
    JSON_FIELDS.map(lambda fields: f'{{"response": {fields}}}'),
    JSON_FIELDS.map(lambda fields: json.dumps({"response": fields})),
    JSON_FIELDS.map(lambda fields: fields.replace("}", ",]")),
)
DECISION = st.one_of(
    st.builds(
        lambda tool, notes, contract: (
            f'{{"action": "call_tool", "notes": "{notes}", "tool_call": {{"tool_id": "{tool}",'
            f' "params": {{"prog_name": "p", "contract": {contract}}}}}}}'
        ),
        st.sampled_from(
            [
                *("exec_tools.execute_code_python", "exec_tools.execute_code_sh", "python"),
                *("web.search", ""),
            ]
        ),
        ESCAPED,
        st.sampled_from(["[]", "null", "3", '[{"filepath": "a", "description": "b"}]', "[,]"]),
    ),
    ESCAPED.map(lambda text: f'{{"action": "complete", "final_answer": "{text}"}}'),
    ESCAPED.map(lambda text: f'{{"final_answer": "{text}", "tool_call": {{"tool_id": "python"}}}}'),
)
CHANNEL = st.one_of(
    DECISION.map(lambda text: ("ReactDecisionOutV2", text)),
    CODE.map(lambda text: ("code", text)),
    CODE.map(lambda text: ("thinking", text)),
    CODE.map(lambda text: ("undeclared", text)),
).map(lambda channel: f"<channel:{channel[0]}>{channel[1]}</channel:{channel[0]}>")
GOOD_CHANNELS = st.lists(CODE.map("x = 1\n{}".format), min_size=1, max_size=3).map(
    lambda codes: channels(TOOL, *codes)
)
BLOCK = st.builds(
    lambda fence, language, code: f"{fence}{language}\n{code}\n{fence}",
    st.sampled_from(["```", "````"]),
    st.sampled_from(["python", "py", "bash", "", "json", "klingon"]),
    CODE,
)
AROUND = st.sampled_from(
    ["", "\ufeff", "\n", "\r\n", "Well {then}, ", "<think>", "</think>", "hm", "<python>"]
)
REPLIES = st.lists(
    st.one_of(JSON_REPLY, CHANNEL, GOOD_CHANNELS, BLOCK, AROUND, CODE), max_size=5
).map("".join)
READINGS = st.sampled_from([JsonReading, ChannelReading])


@given(
    reply=REPLIES,
    cut=st.none() | st.integers(0, 400),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    kind=READINGS,
    is_whole=st.booleans(),
    prefix=st.sampled_from(["", PREFIX]),
)
@example(
    reply=r'{"reply_type": "python", "reply_content": "re.match(\"\d\", x)"}',
    cut=None,
    sizes=[3],
    kind=JsonReading,
    is_whole=True,
    prefix="",
)
@settings(max_examples=1500, deadline=None)
def test_the_panel_shows_what_runs_and_its_status_ends(
    reply: str,
    cut: int | None,
    sizes: list[int],
    kind: type[ReplyReading],
    is_whole: bool,
    prefix: str,
) -> None:
    reply = reply[:cut]

    in_pieces = read(kind, reply, sizes, is_whole=is_whole, prefix=prefix)
    at_once = read(kind, reply, len(reply) + 1, is_whole=is_whole, prefix=prefix)

    for seen in (in_pieces, at_once):
        if seen.code is None:
            assert seen.statuses in ([], ["gen", "error"])
        else:
            assert seen.panel_code == seen.code == seen.attached
            assert seen.statuses == ["gen", "exec", "done"]
            assert seen.code.startswith(prefix) or seen.language != "python"
            assert seen.message == ""
        assert not seen.answer or seen.message == seen.answer
    assert (in_pieces.code, in_pieces.language) == (at_once.code, at_once.language)
    assert in_pieces.answer == at_once.answer


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("kind", "reply", "code"),
    [
        (JsonReading, r'{"reply_type": "py", "reply_content": "re.match(\"\d+\", x)"}',
         r're.match("\d+", x)'),
        (JsonReading, '{"reply_content": "x = 1", "reply_type": "python"}', "x = 1"),
        (JsonReading, '{"reply_content": "x = 1"}', "x = 1"),
        (JsonReading, '{"reply_content": "1", "reply_content": "2"}', "2"),
        (JsonReading, '{"reply_type": "bash", "reply_content": "1", "reply_type": "py"}', "1"),
        (JsonReading, r'{"reply_content": "```python\nx = 1\n```"}', "x = 1"),
        (JsonReading, r'{"reply_content": "\ud83d \ud83d\ude00"}', "\ufffd 😀"),
        (JsonReading, '\ufeff{"response": {"reply_content": "x"}\n```', "x"),
        (JsonReading, 'a {"reply_content": "draft"} b</think>{"reply_content": "real"}', "real"),
        (JsonReading, '<think>{"reply_content": "draft"}</think>{"reply_content": "real"}', "real"),
        (JsonReading, '{"reply_content": "print(1)"} </think>', "print(1)"),
        (JsonReading, '<think>never ends {"reply_content": "x"}', "x"),
        (JsonReading, 'hm {"reply_content": "draft</think>{"reply_content": "real"}', "real"),
        (JsonReading, r'{"response": "{\"reply_content\": \"a\\nb\"}"}', "a\nb"),
        (JsonReading, '{"reply_content": ["a", "b"]}', "a\nb"),
        (JsonReading, "So:\n```python\nx = 1\ny = 2\n```\nThat is all.", "x = 1\ny = 2"),
        (JsonReading, "```\nx = 1", "x = 1"),
        (JsonReading, "```\n{'a': 1}\n```", "{'a': 1}"),
        (JsonReading, '```python\nno()\n```\n{"reply_content": "x = 1"}', "x = 1"),
        (ChannelReading, "```python\nx = 1\n```", "x = 1"),
        (ChannelReading, channels(TOOL, "a = 1", "b = 2"), "a = 1\nb = 2"),
        (ChannelReading, channels(TOOL, "a = 1\n", "", "b = 2"), "a = 1\nb = 2"),
        (ChannelReading, channels(TOOL, "```py\na = 1\n```", "```py\nb\n```"), "a = 1\nb"),
        (ChannelReading, channels(TOOL.replace("exec_tools.execute_code_", ""), "x"), "x"),
        (ChannelReading, "<channel:code>x = 1</channel:code>" + channels(TOOL), "x = 1"),
        (ChannelReading, channels(TOOL.replace('{"tool_id"', r'{"a": "\d", "tool_id"'), "x"), "x"),
        (ChannelReading, "```py\nno()\n```" + channels(TOOL, "x = 1"), "x = 1"),
        (ChannelReading, channels(TOOL_AND_ANSWER, "x"), "x"),
    ],
)  # fmt: skip
def test_what_runs_is_shown_whatever_the_form(
    kind: type[ReplyReading], reply: str, code: str, size: int
) -> None:
    seen = read(kind, reply, size)

    assert (seen.code, seen.panel_code, seen.attached) == (code, code, code)
    assert (seen.language, seen.statuses) == ("python", ["gen", "exec", "done"])
    assert (seen.answer, seen.message) == ("", "")


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        (JsonReading, '{"reply_type": "python", "reply_content": "x = 1'),
        (JsonReading, '{"reply_type": "python", "reply_content": "x = 1" oops}'),
        (JsonReading, "```python\nx = 1\n```\nor\n```python\nx = 2\n```"),
        (ChannelReading, channels(TOOL.replace("[]", '"a'), "x = 1")),
        (ChannelReading, channels(TOOL, " \n")),
        (ChannelReading, channels(TOOL.replace("[]", "3"), "x = 1")),
    ],
)
def test_code_that_is_shown_and_does_not_run_ends_as_an_error(
    kind: type[ReplyReading], reply: str, size: int
) -> None:
    seen = read(kind, reply, size)

    assert seen.code is None
    assert seen.statuses == ["gen", "error"]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_content_before_a_type_that_says_text_is_no_code(size: int) -> None:
    seen = read(JsonReading, '{"reply_content": "All is done.", "reply_type": "text"}', size)

    assert (seen.answer, seen.message) == ("All is done.", "All is done.")
    assert seen.statuses == []


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ('{"reply_content": "x = 1"}', f"{PREFIX}\nx = 1"),
        (json.dumps({"reply_content": f"{PREFIX}\nx = 1"}), f"{PREFIX}\nx = 1"),
        (json.dumps({"reply_content": PREFIX}), f"{PREFIX}\n{PREFIX}"),
        ('{"reply_type": "bash", "reply_content": "ls"}', "ls"),
        ("```python\nx = 1\n```", f"{PREFIX}\nx = 1"),
    ],
)
def test_the_prefix_of_the_project_is_part_of_the_python_code(
    reply: str, code: str, size: int
) -> None:
    seen = read(JsonReading, reply, size, prefix=PREFIX)

    assert (seen.code, seen.panel_code, seen.attached) == (code, code, code)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("kind", "beginning"),
    [
        (JsonReading, '{"response": {"reply_type": "python", "reply_content": "x = 1\\nprint('),
        (JsonReading, "So:\n```python\nx = 1\nprint("),
        (ChannelReading, channels(TOOL, "x = 1\nprint(")[: -len("</channel:code>")]),
        (ChannelReading, "So:\n```python\nx = 1\nprint("),
    ],
)
def test_code_is_shown_while_it_is_written(
    kind: type[ReplyReading], beginning: str, size: int
) -> None:
    emitter, listener = SessionEventEmitter(), Listener()
    emitter.start_round(RoundId("r1"))
    with emitter.subscribe(listener):
        reading = kind(emitter.create_post_proxy("X"), LANGUAGES)

        for start in range(0, len(beginning), size):
            reading.feed(beginning[start : start + size])

        assert listener.code_of_panel() == "x = 1\nprint("
        assert listener.statuses_of_panel() == ["gen"]


def new_reading(kind: type[ReplyReading]) -> Callable[[str], object]:
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("r1"))
    return kind(emitter.create_post_proxy("X"), LANGUAGES, PREFIX).feed


@pytest.mark.parametrize(
    ("kind", "head", "piece"),
    [
        (JsonReading, '{"reply_type": "python", "reply_content": "', r"\d\n "),
        (JsonReading, '{"reply_content": "', "```"),
        (JsonReading, "{", '"reply_type": "python", "reply_content": "x",'),
        (JsonReading, "", "</think>{"),
        (JsonReading, "", '{"a":1,'),
        (JsonReading, "<think>", "{<think>"),
        (JsonReading, "```python\n", "x\n``"),
        (JsonReading, '{"response": "{', r"\"reply_content\": \"x\","),
        (ChannelReading, "", "<channel:code>x</channel:code>"),
        (ChannelReading, "<channel:ReactDecisionOutV2>{", '"notes": "x", "tool_call": {}, '),
        (ChannelReading, '<channel:ReactDecisionOutV2>{"action": "complete", "notes": "', "x"),
        (ChannelReading, channels('{"action": "complete", "final_answer": "')[:-29], "x"),
        (ChannelReading, "<channel:ReactDecisionOutV2>" + TOOL, "</channel:a><channel:code>`"),
    ],
)  # fmt: skip
def test_twice_the_reply_takes_twice_the_time(
    kind: type[ReplyReading], head: str, piece: str
) -> None:
    once = [head, *[piece] * 2_000]
    twice = [head, *[piece] * 4_000]

    assert growth(lambda: new_reading(kind), once, twice) <= 2.5
