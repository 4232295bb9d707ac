"""Replies that no model should give: none may crash a round, hang it, or spoil what follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.config.settings import ReplyForm
from taskweaver_ext.conversation import RoundId
from taskweaver_ext.events.emitter import PostEventProxy, SessionEventEmitter
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptedReply
from taskweaver_ext.roles.base.correction import UnusableReplyError, reject
from taskweaver_ext.roles.base.live_fields import LiveFields
from taskweaver_ext.roles.base.model_caller import ModelReply
from taskweaver_ext.roles.base.reply_json import ReplyFieldReader
from taskweaver_ext.roles.code_interpreter.channel_form import ChannelReading
from taskweaver_ext.roles.code_interpreter.json_form import JsonReading
from taskweaver_ext.roles.code_interpreter.reply_reading import ReplyReading
from taskweaver_ext.roles.planner.planner_reply import ATTACHMENTS, PlannerReader
from tests.support.conversations import Listener, answer, code, plan
from tests.support.growth import growth

FRAGMENTS = [
    *'{}[]":,\\`\n\r\0é\u2028',
    *("\\u", "\\ud83d", "\\ude00", "\ud83d", "null", "true", "1e999", "NaN", "```python\n"),
    *("<channel:", "</channel:", "<channel:code>", "</channel:code>", "<channel:thinking>"),
    *("</channel:thinking>", "<channel:ReactDecisionOutV2>", "</channel:ReactDecisionOutV2>"),
    *('"response"', '"thought"', '"reply_type"', '"reply_content"', '"send_to"', '"message"'),
    *('"plan"', '"stop"', '"User"', '"python"', '"text"', '"tool_call"', '"tool_id"', '"params"'),
    *('"exec_tools.execute_code_python"', '"final_answer"', '"contract"', '[{"filepath": 3}]'),
    '{"response": {"thought": "x", "reply_type": "python", "reply_content": "',
    '{"response": {"message": "hi", "send_to": "User"}}',
]
REPLIES = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)


def new_post() -> PostEventProxy:
    emitter = SessionEventEmitter()
    emitter.start_round(RoundId("r1"))
    return emitter.create_post_proxy("X")


@given(REPLIES, st.integers(1, 7), st.sampled_from(["json", "channels"]))
@settings(max_examples=200)
def test_a_planners_reply_is_read_or_it_is_not(text: str, size: int, form: ReplyForm) -> None:
    post = new_post()
    live = LiveFields(post, ATTACHMENTS, "message")
    reader = PlannerReader(live, form)
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])

    fields = reader.finish()

    if fields is not None:
        live.complete(fields)
        assert post.post.message == fields.get("message", post.post.message)
    json.dumps(post.post.to_dict())


@given(REPLIES, st.integers(1, 7), st.sampled_from([JsonReading, ChannelReading]), st.booleans())
@settings(max_examples=200)
def test_a_code_interpreters_reply_is_read_or_refused(
    text: str, size: int, kind: Callable[..., ReplyReading], is_whole: bool
) -> None:
    post = new_post()
    reader = kind(post, ("python", "bash"))
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])

    reply = ModelReply(text, "stop") if is_whole else ModelReply(text, "broken", "It broke off.")
    try:
        reader.finish(reply)
    except UnusableReplyError as problem:
        reader.abandon(str(problem))
        reject(post, reply, str(problem), "Reply again.")
    json.dumps(post.post.to_dict())


DEEP = "[" * 100_000
FOR_PLANNER = {
    "nothing": "",
    "blank": " \n" * 40,
    "prose": "I would rather not use JSON today.",
    "cut": plan("go")[:-30],
    "cut-escape": '{"response": {"message": "\\u12',
    "deep": f'{{"response": {DEEP}',
    "deep-object": '{"response":' * 50_000,
    "numbers": '{"response": {"send_to": 7, "message": {"a": [1, null]}, "plan": true}}',
    "unknown-reader": plan("go", to="The Moon"),
    "itself": plan("go", to="Planner"),
    "list": json.dumps([{"send_to": "User"}]),
    "nul": "\0" * 100,
    "half-pair": '{"response": {"send_to": "\ud83d", "message": "\\ud83d"}}',
    "quotes": '"' * 10_001,
    "html": "<html><body>502</body></html>",
}
USABLE_BY_PLANNER = {
    "plan-as-list": json.dumps(
        {"response": {"plan": ["1. a", "2. b"], "send_to": "User", "message": "fine"}}
    ),
    "twice-the-same-key": '{"response": {"send_to": "Moon", "send_to": "User", "message": "fine"}}',
    "prose-around": f"Sure!\n```json\n{answer('fine')}\n```\nAnything else?",
    "no-wrapper": json.dumps({"send_to": "user", "message": "fine", "stop": "Completed"}),
    "half-pair-in-text": answer("fine")[:-3] + ' \\ud83d"}}',
    "nul-in-text": answer("fine \0 and"),
    "byte-order-mark": "\ufeff" + answer("fine"),
    "thinking-tags": f"<think>{{hmm}}</think>{answer('fine')}",
}
FOR_CODE_INTERPRETER = {
    "nothing": "",
    "prose": "I would rather not.",
    "cut": code("print('never')")[:-20],
    "deep": f'{{"response": {DEEP}',
    "number-as-type": '{"response": {"reply_type": 3, "reply_content": "print(1)"}}',
    "unknown-type": code("print(1)", language="klingon"),
    "blank-code": code(" \n "),
    "nul-in-code": code("print('a\0b')"),
    "deep-code": code("(" * 5000 + ")" * 5000),
    "two-blocks": "```python\nprint(1)\n```\nor\n```python\nprint(2)\n```",
    "fence-inside-text": code("x = '''\n```\n'''\n1 / 0"),
}


def test_a_planner_that_writes_nonsense_is_asked_again(tmp_path: Path) -> None:
    script = [reply for nonsense in FOR_PLANNER.values() for reply in (nonsense, answer("fine"))]
    model = ScriptedModel([*script, *USABLE_BY_PLANNER.values()], piece_chars=1000)
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        for name in (*FOR_PLANNER, *USABLE_BY_PLANNER):
            listener = Listener()
            chat_round = session.send_message(name, listener)

            assert listener.errors() == [], name
            assert chat_round.post_list[-1].message.startswith("fine"), name
            assert len(chat_round.post_list) == (2 if name in USABLE_BY_PLANNER else 3), name
    assert len(model.requests) == len(FOR_PLANNER) * 2 + len(USABLE_BY_PLANNER)
    for kept in session.session_dir.glob("*.json"):
        kept.read_text(encoding="utf-8")


def test_a_code_interpreter_that_writes_nonsense_is_asked_again(tmp_path: Path) -> None:
    script = [
        reply
        for nonsense in FOR_CODE_INTERPRETER.values()
        for reply in (plan("go"), nonsense, code("print('fine')"), answer("done"))
    ]
    model = ScriptedModel(script, piece_chars=1000)
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        for name in FOR_CODE_INTERPRETER:
            listener = Listener()
            chat_round = session.send_message(name, listener)

            assert listener.errors() == [], name
            assert chat_round.post_list[-1].message == "done", name
            assert listener.output() == "fine\n", name


@pytest.mark.parametrize("kind", ["text", "thinking", "blank"])
def test_a_reply_that_does_not_end_is_stopped(tmp_path: Path, kind: str) -> None:
    endless = {
        "text": ScriptedReply(text='{"response": {"message": "' + "la" * 1_000_000),
        "thinking": ScriptedReply(text="", thinking="What if? " * 200_000),
        "blank": ScriptedReply(text='{"response":' + "\n\t " * 1_000_000),
    }
    model = ScriptedModel([endless[kind], answer("shorter")], piece_chars=100)
    with TaskWeaverApp(tmp_path, model=model) as app:
        chat_round = app.get_session().send_message("go")

    assert chat_round.post_list[-1].message == "shorter"
    assert "The reply did not end. Be much shorter." in model.requests[1][-1].content
    assert sum(len(message.content) for message in model.requests[1]) < 40_000


@pytest.mark.parametrize("text", [" ", "{", '{"a":1,', "`"])
def test_reading_takes_linear_time_also_where_nothing_is_said(text: str) -> None:
    pieces = [text] * 40_000

    ratio = growth(lambda: ReplyFieldReader(("message",)).feed, pieces, pieces * 2)

    assert ratio <= 2.5
