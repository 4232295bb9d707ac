from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.chat_model import (
    ChatModel,
    Finished,
    Message,
    ModelEvent,
    RetryScheduled,
    TextDelta,
)
from taskweaver_ext.llm.model_errors import (
    BrokenStreamError,
    ContextTooLongError,
    ModelOverloadedError,
    ModelTimeoutError,
    ModelUnreachableError,
    ReplyCancelledError,
    RequestRefusedError,
    UnknownModelError,
    WrongKeyError,
)
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.openai_model import OpenAIModel
from taskweaver_ext.llm.retrying import RetryingModel, RetryPolicy
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptedReply
from tests.support.model_replies import read_reply
from tests.support.model_server import (
    WAIT_SECONDS,
    HangUp,
    HttpFailure,
    ModelServer,
    ScriptedAnswer,
    ScriptEntry,
)

QUESTION = (Message("user", "Say something."),)
OVERLOADED = ModelOverloadedError("overloaded")


class RecordedWait:
    """Stands in for waiting; keeps how long it would have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, cancelled: threading.Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        return cancelled.is_set()


def failing(error: ModelError, text: str = "") -> ScriptedReply:
    return ScriptedReply(text=text, failure=error)


def retrying(
    script: Sequence[str | ScriptedReply], policy: RetryPolicy | None = None
) -> tuple[RetryingModel, ScriptedModel, RecordedWait]:
    inner = ScriptedModel(script, piece_chars=100)
    wait = RecordedWait()
    return RetryingModel(inner, policy, wait=wait), inner, wait


@pytest.mark.parametrize(
    "error", [OVERLOADED, ModelUnreachableError("no network"), BrokenStreamError("cut")]
)
def test_a_failure_that_may_pass_is_tried_again(error: ModelError) -> None:
    model, inner, wait = retrying([failing(error), failing(error), "hello"])

    with model.stream(QUESTION) as stream:
        events = list(stream)

    retries = [event for event in events if isinstance(event, RetryScheduled)]
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("hello")]
    assert [retry.attempt for retry in retries] == [2, 3]
    assert [retry.wait_seconds for retry in retries] == wait.seconds
    assert retries[0].reason == str(error)
    assert inner.requests == [QUESTION] * 3


@pytest.mark.parametrize(
    "error",
    [
        WrongKeyError("key"),
        UnknownModelError("model"),
        ContextTooLongError("long"),
        RequestRefusedError("no"),
        ModelTimeoutError("silent"),
    ],
)
def test_a_failure_that_stays_is_not_tried_again(error: ModelError) -> None:
    model, inner, _ = retrying([failing(error), "hello"])

    with pytest.raises(type(error)):
        read_reply(model.stream(QUESTION))

    assert len(inner.requests) == 1


def test_nothing_is_tried_again_once_the_reply_has_begun() -> None:
    model, inner, _ = retrying([failing(OVERLOADED, "half"), "hello"])

    events: list[ModelEvent] = []
    with model.stream(QUESTION) as stream, pytest.raises(ModelOverloadedError):
        events.extend(stream)

    assert len(inner.requests) == 1


def test_waits_double_up_to_a_limit_and_end() -> None:
    policy = RetryPolicy(max_retries=5, first_wait_seconds=1, longest_wait_seconds=4)
    model, inner, wait = retrying([failing(OVERLOADED)] * 9, policy)

    with pytest.raises(ModelOverloadedError):
        read_reply(model.stream(QUESTION))

    assert len(inner.requests) == 6
    for seconds, longest in zip(wait.seconds, [1, 2, 4, 4, 4], strict=True):
        assert longest / 2 <= seconds <= longest


def test_the_wait_that_the_provider_asks_for_is_kept() -> None:
    model, _, wait = retrying([failing(ModelOverloadedError("x", retry_after_seconds=7)), "hello"])

    read_reply(model.stream(QUESTION))

    assert wait.seconds == [7]


def test_a_provider_that_asks_for_too_much_patience_is_not_asked_again() -> None:
    error = ModelOverloadedError("come back tomorrow", retry_after_seconds=86_400)
    model, inner, wait = retrying([failing(error), "hello"])

    with pytest.raises(ModelOverloadedError):
        read_reply(model.stream(QUESTION))

    assert (len(inner.requests), wait.seconds) == (1, [])


def test_a_cancel_ends_the_wait_between_attempts() -> None:
    policy = RetryPolicy(first_wait_seconds=1000, longest_wait_seconds=1000)
    inner = ScriptedModel([failing(OVERLOADED), "hello"])
    model = RetryingModel(inner, policy)

    with model.stream(QUESTION) as stream:
        events = iter(stream)
        assert isinstance(next(events), RetryScheduled)
        canceller = threading.Thread(target=stream.cancel)
        canceller.start()
        with pytest.raises(ReplyCancelledError):
            next(events)
        canceller.join()

    assert len(inner.requests) == 1


def test_a_cancel_reaches_the_stream_of_the_moment() -> None:
    script: list[ScriptEntry] = [HttpFailure(500), ScriptedAnswer("half", ending="stall")]
    with ModelServer(script) as server:
        model = RetryingModel(OpenAIModel(ModelSettings(), api_base=server.openai_url))
        with model.stream(QUESTION) as stream:
            events = iter(stream)
            assert isinstance(next(events), RetryScheduled)
            assert next(events) == TextDelta("half")
            stream.cancel()
            with pytest.raises(ReplyCancelledError) as caught:
                next(events)

        assert server.client_left.wait(WAIT_SECONDS)
    assert caught.value.received == "half"


def test_leaving_stops_the_stream_of_the_moment() -> None:
    with ModelServer([ScriptedAnswer("half", ending="stall")]) as server:
        model = RetryingModel(OpenAIModel(ModelSettings(), api_base=server.openai_url))
        with model.stream(QUESTION) as stream:
            next(iter(stream))

        assert server.client_left.wait(WAIT_SECONDS)


def test_a_real_provider_in_trouble_is_asked_until_it_answers() -> None:
    script: list[ScriptEntry] = [
        HttpFailure(429, headers={"retry-after": "3"}),
        HttpFailure(500),
        HangUp(),
        ScriptedAnswer("", ending="drop"),
        ScriptedAnswer("hello"),
    ]
    wait = RecordedWait()
    with ModelServer(script) as server:
        inner: ChatModel = OpenAIModel(ModelSettings(), api_base=server.openai_url)
        reply = read_reply(RetryingModel(inner, wait=wait).stream(QUESTION))

    assert reply.text == "hello"
    assert isinstance(reply.finished, Finished)
    assert wait.seconds[0] == 3
    assert len(server.requests) == 5
