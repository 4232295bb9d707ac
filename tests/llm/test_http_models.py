"""The promises of `ChatModel`, kept by both HTTP adapters against a server that misbehaves."""

from __future__ import annotations

import base64
import contextlib
import logging
import math
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Literal, TypeAlias

import pytest

from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.anthropic_model import AnthropicModel
from taskweaver_ext.llm.chat_model import (
    ChatModel,
    Finished,
    Message,
    ModelStream,
    TextDelta,
    TokenUsage,
)
from taskweaver_ext.llm.model_errors import (
    BrokenStreamError,
    ContextTooLongError,
    ModelOverloadedError,
    ModelTimeoutError,
    ModelUnreachableError,
    ReplyCancelledError,
    ReplyInterruptedError,
    RequestRefusedError,
    UnknownModelError,
    WrongKeyError,
)
from taskweaver_ext.llm.model_settings import ApiType, ModelSettings, ResponseFormat, TimeLimits
from taskweaver_ext.llm.openai_model import OpenAIModel
from taskweaver_ext.llm.secret import Secret
from tests.support.model_replies import Reply, read_reply
from tests.support.model_server import (
    Ending,
    HangUp,
    HttpFailure,
    ModelServer,
    RecordedRequest,
    ScriptedAnswer,
    ScriptEntry,
)

Protocol: TypeAlias = Literal["openai", "anthropic"]

KEY = "sk-test/4f5e6d+7c8b9a=0123456789"
QUESTION = (Message("system", "Be brief."), Message("user", "Say something."))
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
PATIENT = TimeLimits(connect_seconds=60, first_token_seconds=60, between_tokens_seconds=60)
HASTY_AT_FIRST = TimeLimits(connect_seconds=60, first_token_seconds=0.3, between_tokens_seconds=60)
HASTY_LATER = TimeLimits(connect_seconds=60, first_token_seconds=60, between_tokens_seconds=0.3)
WAIT_SECONDS = 60


@pytest.fixture(params=["openai", "anthropic"])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    protocol: Protocol = request.param
    return protocol


def make_model(
    protocol: Protocol,
    server: ModelServer,
    *,
    limits: TimeLimits = PATIENT,
    response_format: ResponseFormat = "json_schema",
) -> ChatModel:
    settings = ModelSettings(
        api_type=protocol,
        api_key=Secret(KEY),
        model="test-model",
        limits=limits,
        response_format=response_format,
    )
    if protocol == "anthropic":
        return AnthropicModel(settings, api_base=server.anthropic_url)
    return OpenAIModel(settings, api_base=server.openai_url)


def ask(protocol: Protocol, *script: ScriptEntry, limits: TimeLimits = PATIENT) -> Reply:
    with ModelServer(script) as server:
        return read_reply(make_model(protocol, server, limits=limits).stream(QUESTION))


def failure_of(
    protocol: Protocol, *script: ScriptEntry, limits: TimeLimits = PATIENT
) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(protocol, *script, limits=limits)
    return caught.value


def test_a_reply_arrives_with_its_thinking_its_end_and_its_cost(protocol: Protocol) -> None:
    reply = ask(protocol, ScriptedAnswer("The answer is 42.", thinking="Let me see."))

    assert reply.text == "The answer is 42."
    assert reply.thinking == "Let me see."
    assert reply.finished == Finished("stop", TokenUsage(11, 7))


def test_thinking_that_a_server_leaves_in_the_text_is_no_part_of_the_reply() -> None:
    reply = ask("openai", ScriptedAnswer("<think>Is it 41?</think>It is 42.", piece_chars=3))

    assert (reply.thinking, reply.text) == ("Is it 41?", "It is 42.")


def test_a_piece_is_delivered_before_the_reply_has_ended(protocol: Protocol) -> None:
    with (
        ModelServer([ScriptedAnswer("first", ending="stall")]) as server,
        make_model(protocol, server).stream(QUESTION) as stream,
    ):
        first = next(iter(stream))

        assert first == TextDelta("first")
        assert not server.client_left.is_set()


@pytest.mark.parametrize("wire_bytes", [1, 2, 3, 7, 64])
def test_chunk_boundaries_do_not_matter(protocol: Protocol, wire_bytes: int) -> None:
    text = 'naïve 日本語 👩‍🚀 "quoted"\nnew line \\ done'

    reply = ask(protocol, ScriptedAnswer(text, piece_chars=1, wire_bytes=wire_bytes))

    assert reply.text == text


def test_running_out_of_room_is_a_finish_reason_of_its_own(protocol: Protocol) -> None:
    reply = ask(protocol, ScriptedAnswer("cut o", finish_reason="length"))

    assert reply.finished.reason == "length"


def test_a_provider_that_does_not_count_tokens_is_no_failure(protocol: Protocol) -> None:
    reply = ask(protocol, ScriptedAnswer("hello", has_usage=False))

    assert reply.text == "hello"
    assert reply.finished == Finished("stop", None)


def test_keep_alives_are_no_part_of_the_reply(protocol: Protocol) -> None:
    reply = ask(protocol, ScriptedAnswer("hello", keep_alives=3))

    assert reply.text == "hello"


@pytest.mark.parametrize("ending", ["cut", "drop", "reset", "junk"])
def test_a_reply_that_breaks_off_is_noticed_and_keeps_what_came(
    protocol: Protocol, ending: Ending
) -> None:
    error = failure_of(protocol, ScriptedAnswer("half of it", ending=ending))

    assert isinstance(error, BrokenStreamError)
    assert "half of it".startswith(error.received)
    if ending != "reset":  # a reset may overtake what was sent before it
        assert error.received == "half of it"


@pytest.mark.parametrize(
    "junk",
    [
        "{this is no json",
        "7",
        "null",
        "[" * 50_000,
        '{"choices": 5}',
        '{"choices": [{"delta": 5}, null, 7]}',
        '{"choices": [{"delta": {"content": ["x"]}, "finish_reason": ["x"]}]}',
        '{"type": "message_delta", "delta": {"stop_reason": ["x"]}, "usage": 5}',
        '{"type": "content_block_delta", "delta": 5}',
    ],
)
def test_events_that_are_none_break_the_stream_and_nothing_else(
    protocol: Protocol, junk: str
) -> None:
    error = failure_of(protocol, ScriptedAnswer("begun", ending="junk", junk=junk))

    assert isinstance(error, BrokenStreamError)
    assert error.received == "begun"
    assert "no event of a reply" in str(error) or "ended without a reason" in str(error)


def test_an_error_of_one_word_is_told(protocol: Protocol) -> None:
    error = failure_of(protocol, ScriptedAnswer("", ending="error", error="overloaded"))

    assert isinstance(error, ModelOverloadedError if protocol == "openai" else ModelError)
    assert "overloaded" in str(error)


def test_an_error_in_the_middle_of_a_reply_is_told_by_its_kind(protocol: Protocol) -> None:
    error = failure_of(protocol, ScriptedAnswer("half", ending="error"))

    assert isinstance(error, ModelOverloadedError)
    assert "overloaded" in str(error)


@pytest.mark.parametrize("ending", ["stall", "ping"])
def test_silence_in_the_middle_of_a_reply_ends_at_the_limit(
    protocol: Protocol, ending: Ending
) -> None:
    error = failure_of(protocol, ScriptedAnswer("half", ending=ending), limits=HASTY_LATER)

    assert isinstance(error, ModelTimeoutError)
    assert error.received == "half"
    assert "middle of its reply for 0.3 s" in str(error)


@pytest.mark.parametrize(
    "answer", [ScriptedAnswer("", stall_before_headers=True), ScriptedAnswer("", ending="stall")]
)
def test_silence_before_the_reply_ends_at_the_limit(
    protocol: Protocol, answer: ScriptedAnswer
) -> None:
    error = failure_of(protocol, answer, limits=HASTY_AT_FIRST)

    assert isinstance(error, ModelTimeoutError)
    assert "did not begin to reply within 0.3 s" in str(error)


@pytest.mark.parametrize(
    ("failure", "expected", "advice"),
    [
        (HttpFailure(401, "Incorrect API key provided"), WrongKeyError, "llm.api_key"),
        (HttpFailure(403, "not allowed"), WrongKeyError, "llm.api_key"),
        (HttpFailure(404, "no such model"), UnknownModelError, "llm.model"),
        (HttpFailure(429, "slow down"), ModelOverloadedError, "later"),
        (HttpFailure(500, "oops"), ModelOverloadedError, "later"),
        (HttpFailure(503, "starting"), ModelOverloadedError, "later"),
        (HttpFailure(529, "busy"), ModelOverloadedError, "later"),
        (
            HttpFailure(
                429, "You exceeded your current quota", fields={"code": "insufficient_quota"}
            ),
            RequestRefusedError,
            "billing",
        ),
        (
            HttpFailure(400, "too long", fields={"code": "context_length_exceeded"}),
            ContextTooLongError,
            "larger context",
        ),
        (HttpFailure(400, "prompt is too long: 9 > 8"), ContextTooLongError, "larger context"),
        (HttpFailure(413, "request too large"), ContextTooLongError, "larger context"),
        (HttpFailure(400, "no idea what this is"), RequestRefusedError, "llm.*"),
        (
            HttpFailure(307, "elsewhere", headers={"location": "http://127.0.0.1:1/"}),
            RequestRefusedError,
            "llm.api_base",
        ),
    ],
    ids=lambda value: f"{value.status}-{value.message[:12]}" if hasattr(value, "status") else "",
)
def test_each_refusal_becomes_one_of_our_errors(
    protocol: Protocol, failure: HttpFailure, expected: type[ModelError], advice: str
) -> None:
    error = failure_of(protocol, failure)

    assert type(error) is expected
    assert advice in str(error)
    assert failure.message in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_the_provider_asks_for_is_read(
    protocol: Protocol, headers: dict[str, str], seconds: float | None
) -> None:
    error = failure_of(protocol, HttpFailure(429, "slow down", headers))

    assert isinstance(error, ModelOverloadedError)
    assert error.retry_after_seconds == seconds
    assert f"Try again {f'in {math.ceil(seconds)} s' if seconds else 'later'}." in str(error)


def test_a_provider_that_hangs_up_is_unreachable(protocol: Protocol) -> None:
    error = failure_of(protocol, HangUp())

    assert isinstance(error, ModelUnreachableError)
    assert "hung up" in str(error)


def test_a_port_without_a_listener_is_unreachable(protocol: Protocol) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    settings = ModelSettings(api_type=protocol, api_key=Secret(KEY), model="m")
    model_class = OpenAIModel if protocol == "openai" else AnthropicModel
    model = model_class(settings, api_base=f"http://127.0.0.1:{port}/v1")

    with pytest.raises(ModelUnreachableError, match=f"127.0.0.1:{port}.*network"):
        read_reply(model.stream(QUESTION))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse instead of waiting")
def test_a_connection_that_is_not_accepted_ends_at_its_limit(protocol: Protocol) -> None:
    limits = TimeLimits(connect_seconds=0.3, first_token_seconds=60)
    settings = ModelSettings(api_type=protocol, api_key=Secret(KEY), model="m", limits=limits)
    model_class = OpenAIModel if protocol == "openai" else AnthropicModel
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):  # fill the queue of connections to accept
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        model = model_class(settings, api_base=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")

        with pytest.raises(ModelUnreachableError, match="Cannot connect"):
            read_reply(model.stream(QUESTION))


PAGE = "<!DOCTYPE html><html><head><title>Log in &amp; pay</title></head><body>b</body></html>"


@pytest.mark.parametrize(
    ("failure", "complaint"),
    [
        (HttpFailure(502, page=PAGE), "in trouble (HTTP 502: a web page, 'Log in & pay')."),
        (HttpFailure(403, page="<html>no title"), "does not accept the key (HTTP 403: a web page)"),
        (HttpFailure(200, page=PAGE), "else than a stream of events (HTTP 200: a web page, 'Log"),
        (HttpFailure(200, "no such route"), "else than a stream of events (HTTP 200: no such rou"),
        (
            HttpFailure(301, headers={"location": "https://me:secret@login.test/sso?t=secret"}),
            "sent us elsewhere, to https://login.test/sso (HTTP 301).",
        ),
        (HttpFailure(307, headers={"location": "/v2"}), "elsewhere, to http://127.0.0.1:"),
        (HttpFailure(302, headers={"location": "http://[broken"}), "elsewhere, to no address"),
        (HttpFailure(500, "line\nbreak \x1b[31m"), "(HTTP 500: line break [31m)"),
    ],
)
def test_pages_and_redirects_are_explained_in_one_line(
    protocol: Protocol, failure: HttpFailure, complaint: str
) -> None:
    message = str(failure_of(protocol, failure))

    assert complaint in message
    assert message.isprintable()
    assert "secret" not in message


def test_a_password_in_the_address_is_sent_and_shows_up_nowhere_else(
    protocol: Protocol, caplog: pytest.LogCaptureFixture
) -> None:
    def echo(request: RecordedRequest) -> HttpFailure:
        return HttpFailure(407, f"wrong password: pass-word in {request.headers['authorization']}")

    caplog.set_level(logging.DEBUG)
    with ModelServer([echo]) as server:
        base = server.openai_url if protocol == "openai" else server.anthropic_url
        settings = ModelSettings(api_type=protocol, model="m", limits=PATIENT)
        model_class = OpenAIModel if protocol == "openai" else AnthropicModel
        model = model_class(settings, api_base=base.replace("//", "//me:pass-word@"))
        with pytest.raises(ModelError) as caught:
            read_reply(model.stream(QUESTION))

    sent = server.requests[0].headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"me:pass-word"
    assert "wrong password: ****" in str(caught.value)
    for text in (str(caught.value), repr(model), model.name, caplog.text):
        assert "pass-word" not in text
        assert sent not in text


def test_half_of_a_surrogate_pair_is_sent_as_a_question_mark(protocol: Protocol) -> None:
    with ModelServer([ScriptedAnswer("fine")]) as server:
        model = make_model(protocol, server)

        reply = read_reply(model.stream([Message("user", "broken \udc80 name")]))

    assert reply.text == "fine"
    assert server.requests[0].body["messages"][0]["content"] == "broken ? name"


def test_the_key_is_sent_and_shows_up_nowhere_else(
    protocol: Protocol, caplog: pytest.LogCaptureFixture
) -> None:
    def echo_the_key(request: RecordedRequest) -> HttpFailure:
        sent = request.headers.get("authorization") or request.headers["x-api-key"]
        return HttpFailure(401, f"wrong key: {sent}", fields={"param": sent})

    caplog.set_level(logging.DEBUG)
    with ModelServer([echo_the_key]) as server:
        model = make_model(protocol, server)
        with pytest.raises(WrongKeyError) as caught:
            read_reply(model.stream(QUESTION))

        assert KEY in str(server.requests[0].headers)
    told = "".join(traceback.format_exception(caught.value))
    assert "wrong key: " in told
    for text in (told, repr(caught.value), repr(model), model.name, caplog.text):
        assert KEY not in text
        assert KEY[8:20] not in text


def test_a_key_echoed_into_the_stream_is_masked_in_the_error(protocol: Protocol) -> None:
    error = failure_of(
        protocol,
        ScriptedAnswer("x", ending="error", error={"type": "api_error", "message": f"for {KEY}"}),
    )

    assert KEY not in str(error)
    assert "****" in str(error)


def test_leaving_early_stops_the_provider(protocol: Protocol) -> None:
    with ModelServer([ScriptedAnswer("first piece", ending="stall")]) as server:
        with make_model(protocol, server).stream(QUESTION) as stream:
            next(iter(stream))

        assert server.client_left.wait(WAIT_SECONDS)
    assert no_model_thread_is_left()


def cancel_soon(stream: ModelStream, ready: Callable[[], object]) -> threading.Thread:
    """Cancel from another thread once the reader is blocked; `ready` says when."""

    def run() -> None:
        ready()
        stream.cancel()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_cancel_from_another_thread_ends_a_blocked_read(protocol: Protocol) -> None:
    half_read = threading.Event()
    with ModelServer([ScriptedAnswer("half", ending="stall")]) as server:
        with make_model(protocol, server).stream(QUESTION) as stream:
            thread = cancel_soon(stream, half_read.wait)
            events = iter(stream)
            next(events)
            half_read.set()
            with pytest.raises(ReplyCancelledError) as caught:
                next(events)
            thread.join()

        assert caught.value.received == "half"
        assert server.client_left.wait(WAIT_SECONDS)
    assert no_model_thread_is_left()


def test_a_cancel_before_the_response_headers_also_ends_the_request(protocol: Protocol) -> None:
    with ModelServer([ScriptedAnswer("", stall_before_headers=True)]) as server:
        with make_model(protocol, server).stream(QUESTION) as stream:
            thread = cancel_soon(stream, server.wait_for_request)
            with pytest.raises(ReplyCancelledError):
                next(iter(stream))
            thread.join()

        assert server.client_left.wait(WAIT_SECONDS)
    assert no_model_thread_is_left()


def test_streams_of_one_model_do_not_disturb_each_other(protocol: Protocol) -> None:
    script = [ScriptedAnswer("one", ending="stall"), ScriptedAnswer("two")]
    with ModelServer(script) as server:
        model = make_model(protocol, server)
        with model.stream(QUESTION) as stalled:
            events = iter(stalled)
            next(events)
            second = read_reply(model.stream(QUESTION))
            stalled.cancel()
            with pytest.raises(ReplyInterruptedError):
                next(events)

    assert second.text == "two"


def test_a_refused_response_format_costs_one_request_and_a_notice(protocol: Protocol) -> None:
    option = "response_format" if protocol == "openai" else "output_config"
    refusal = HttpFailure(400, f"{option} is not supported here")
    # OpenAI's protocol has a looser form to try in between.
    refusals = [refusal, refusal] if protocol == "openai" else [refusal]
    script: list[ScriptEntry] = [
        *refusals,
        ScriptedAnswer('{"answer": 1}'),
        ScriptedAnswer('{"answer": 2}'),
    ]
    with ModelServer(script) as server:
        model = make_model(protocol, server)
        first = read_reply(model.stream(QUESTION, schema=SCHEMA))
        second = read_reply(model.stream(QUESTION, schema=SCHEMA))

    assert (first.text, second.text) == ('{"answer": 1}', '{"answer": 2}')
    assert option in server.requests[0].body
    assert all(option not in request.body for request in server.requests[-2:])
    assert server.unused_entries == 0, "the second stream knows better than to ask"
    assert any(option in notice for notice in second.finished.notices)


def test_a_refused_temperature_is_left_out(protocol: Protocol) -> None:
    refusal = HttpFailure(400, "Unsupported value: 'temperature' does not support 0")

    with ModelServer([refusal, ScriptedAnswer("hello")]) as server:
        reply = read_reply(make_model(protocol, server).stream(QUESTION))

    assert reply.text == "hello"
    assert server.requests[0].body["temperature"] == 0
    assert "temperature" not in server.requests[1].body


def test_a_refusal_that_names_no_option_is_not_asked_again(protocol: Protocol) -> None:
    with (
        ModelServer([HttpFailure(400, "bad day"), ScriptedAnswer("hello")]) as server,
        pytest.raises(RequestRefusedError),
    ):
        read_reply(make_model(protocol, server).stream(QUESTION, schema=SCHEMA))

    assert len(server.requests) == 1


def test_new_models_get_their_own_name_for_the_room_of_the_reply() -> None:
    refusal = HttpFailure(400, "Unsupported parameter: use 'max_completion_tokens' instead.")

    with ModelServer([refusal, ScriptedAnswer("hello")]) as server:
        read_reply(make_model("openai", server).stream(QUESTION, max_tokens=99))

    assert server.requests[0].body["max_tokens"] == 99
    assert server.requests[1].body["max_completion_tokens"] == 99
    assert "max_tokens" not in server.requests[1].body


@pytest.mark.parametrize(
    ("response_format", "expected"),
    [
        ("text", None),
        ("json_object", {"type": "json_object"}),
        (
            "json_schema",
            {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
            },
        ),
    ],
)
def test_openai_is_asked_for_the_configured_response_format(
    response_format: ResponseFormat, expected: object
) -> None:
    with ModelServer([ScriptedAnswer("{}"), ScriptedAnswer("plain")]) as server:
        model = make_model("openai", server, response_format=response_format)
        read_reply(model.stream(QUESTION, schema=SCHEMA))
        read_reply(model.stream(QUESTION))

    assert server.requests[0].body.get("response_format") == expected
    assert "response_format" not in server.requests[1].body


def test_openai_gets_the_settings_under_its_names() -> None:
    with ModelServer([ScriptedAnswer("hello")]) as server:
        read_reply(make_model("openai", server).stream(QUESTION))

    body = server.requests[0].body
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Say something."},
    ]
    assert body["model"] == "test-model"
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0, 4096, 123456)
    assert body["stop"] == ["<EOS>"]
    assert "top_p" not in body


def test_anthropic_gets_the_settings_under_its_names() -> None:
    with ModelServer([ScriptedAnswer("hello")]) as server:
        read_reply(make_model("anthropic", server).stream(QUESTION, schema=SCHEMA))

    body = server.requests[0].body
    assert body["system"] == "Be brief."
    assert body["messages"] == [{"role": "user", "content": "Say something."}]
    assert (body["temperature"], body["max_tokens"]) == (0, 4096)
    assert body["stop_sequences"] == ["<EOS>"]
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("api_type", "header", "value"),
    [("azure", "api-key", KEY), ("azure_ad", "authorization", f"Bearer {KEY}")],
)
def test_azure_is_asked_by_deployment_and_version(
    api_type: ApiType, header: str, value: str
) -> None:
    with ModelServer([ScriptedAnswer("hello")]) as server:
        settings = ModelSettings(api_type=api_type, api_key=Secret(KEY), model="my-deployment")
        reply = read_reply(OpenAIModel(settings, api_base=server.url).stream(QUESTION))

    request = server.requests[0]
    assert reply.text == "hello"
    assert request.path == (
        "/openai/deployments/my-deployment/chat/completions?api-version=2024-06-01"
    )
    assert request.headers[header] == value


def no_model_thread_is_left() -> bool:
    deadline = time.monotonic() + WAIT_SECONDS
    for thread in threading.enumerate():
        if thread.name == "taskweaver-model":
            thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.name == "taskweaver-model" for thread in threading.enumerate())
