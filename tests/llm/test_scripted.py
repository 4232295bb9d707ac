from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.chat_model import Message, TextDelta
from taskweaver_ext.llm.model_errors import BrokenStreamError, ReplyCancelledError
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptedReply
from tests.support.model_replies import read_reply

QUESTION = (Message("user", "Say something."),)


def test_replies_are_given_in_order_and_in_pieces() -> None:
    model = ScriptedModel(["abcde", ScriptedReply(text="second", thinking="hm")], piece_chars=2)

    with model.stream(QUESTION) as stream:
        pieces = [event.text for event in stream if isinstance(event, TextDelta)]
    second = read_reply(model.stream(QUESTION))

    assert pieces == ["ab", "cd", "e"]
    assert (second.text, second.thinking) == ("second", "hm")
    assert second.finished.reason == "stop"
    assert model.requests == [QUESTION, QUESTION]


def test_it_is_never_taken_for_a_model() -> None:
    assert "no model" in ScriptedModel([]).name


def test_a_reply_may_depend_on_the_messages() -> None:
    def repeat(messages: Sequence[Message]) -> str:
        return f"you said: {messages[-1].content}"

    reply = read_reply(ScriptedModel([repeat]).stream(QUESTION))

    assert reply.text == "you said: Say something."


def test_the_end_of_the_script_is_an_error_that_says_so() -> None:
    model = ScriptedModel(["only one"])
    read_reply(model.stream(QUESTION))

    with pytest.raises(ModelError, match="ends after 1 replies"):
        model.stream(QUESTION)


def test_a_failure_comes_after_the_text() -> None:
    model = ScriptedModel([ScriptedReply(text="half", failure=BrokenStreamError("cut"))])

    with model.stream(QUESTION) as stream:
        events = iter(stream)
        first = next(events)
        with pytest.raises(BrokenStreamError):
            next(events)

    assert first == TextDelta("half")


def test_a_cancel_ends_the_pause_between_pieces() -> None:
    model = ScriptedModel(["abcd"], piece_chars=2, delay_seconds=0)
    slow = ScriptedModel(["abcd"], delay_seconds=20)

    with model.stream(QUESTION) as stream:
        events = iter(stream)
        next(events)
        stream.cancel()
        with pytest.raises(ReplyCancelledError) as caught:
            next(events)
    with slow.stream(QUESTION) as stream:
        canceller = threading.Thread(target=stream.cancel)
        canceller.start()
        with pytest.raises(ReplyCancelledError):
            next(iter(stream))
        canceller.join()

    assert caught.value.received == "ab"
