"""All adapters with a real, tiny model: the plumbing, not the wisdom."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from taskweaver_ext.llm.chat_model import (
    ChatModel,
    Message,
    ModelEvent,
    PromptRead,
    TextDelta,
)
from taskweaver_ext.llm.factory import create_chat_model
from taskweaver_ext.llm.local_model import LocalModel
from taskweaver_ext.llm.model_errors import (
    ContextTooLongError,
    ModelSetupError,
    ReplyCancelledError,
    RequestRefusedError,
)
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.reply_stream import Deliver
from taskweaver_ext.llm.request_options import RequestBody
from tests.support.executions import LIMIT_SECONDS
from tests.support.model_replies import read_reply
from tests.support.smol_model import (
    SmolServer,
    require_xllamacpp,
    serve_smol_model,
    smol_model_file,
)

QUESTION = (Message("system", "You are helpful."), Message("user", "Tell me a long story."))
TOO_LONG_QUESTION = (Message("user", "word " * 3000),)
STOP_SECONDS = 60
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "sure": {"type": "boolean"}},
    "required": ["mood", "sure"],
    "additionalProperties": False,
}


def long_question() -> tuple[Message]:
    """A question that no model has read before: what was read once is remembered."""
    return (Message("user", f"{uuid.uuid4()} " + "word " * 300),)


def no_model_thread_is_left() -> bool:
    deadline = time.monotonic() + STOP_SECONDS
    for thread in threading.enumerate():
        if thread.name == "taskweaver-model":
            thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.name == "taskweaver-model" for thread in threading.enumerate())


@pytest.fixture(scope="module")
def server() -> Iterator[SmolServer]:
    with serve_smol_model() as server:
        yield server


@pytest.fixture(params=["openai", "anthropic"])
def served_model(request: pytest.FixtureRequest, server: SmolServer) -> ChatModel:
    api_type: Literal["openai", "anthropic"] = request.param
    api_base = server.openai_url if api_type == "openai" else server.anthropic_url
    return create_chat_model(
        ModelSettings(
            api_type=api_type, api_base=api_base, model="smol", response_format="json_schema"
        )
    )


@pytest.fixture(scope="module")
def local_settings() -> ModelSettings:
    return ModelSettings(api_type="local", context_tokens=1024, threads=1)


@pytest.fixture(scope="module")
def local_model(local_settings: ModelSettings) -> Iterator[WatchedModel]:
    model = WatchedModel(smol_model_file(), local_settings)
    read_reply(model.stream(QUESTION, max_tokens=1))  # so that no test is the one that loads it
    yield model
    model.close()


def test_a_served_model_streams_its_reply(served_model: ChatModel) -> None:
    with served_model.stream(QUESTION, max_tokens=12) as stream:
        events = list(stream)

    pieces = [event for event in events if isinstance(event, TextDelta)]
    assert len(pieces) > 1
    assert events[-1].reason == "length"  # type: ignore[union-attr]  # the last event is Finished
    usage = events[-1].usage  # type: ignore[union-attr]
    assert usage is not None
    assert usage.completion_tokens == 12
    assert usage.prompt_tokens > 5


def test_a_served_model_is_stopped_by_leaving_in_the_middle(
    served_model: ChatModel, server: SmolServer
) -> None:
    with served_model.stream(QUESTION, max_tokens=900) as stream:
        next(iter(stream))
        assert server.is_busy()

    assert server.becomes_idle()


def test_a_served_model_says_when_the_conversation_is_too_long(served_model: ChatModel) -> None:
    with pytest.raises(ContextTooLongError):
        read_reply(served_model.stream(TOO_LONG_QUESTION))


def test_a_served_model_answers_where_a_schema_is_asked_for(served_model: ChatModel) -> None:
    reply = read_reply(served_model.stream(QUESTION, schema=SCHEMA, max_tokens=30))

    assert reply.text


def test_a_local_model_streams_its_reply(local_model: LocalModel) -> None:
    reply = read_reply(local_model.stream(QUESTION, max_tokens=12))

    assert reply.text
    assert reply.finished.reason == "length"
    assert reply.finished.usage is not None
    assert reply.finished.usage.completion_tokens == 12


def test_a_local_model_says_how_much_it_has_read(local_model: LocalModel) -> None:
    with local_model.stream(long_question(), max_tokens=4) as stream:
        events = list(stream)

    read = [event for event in events if isinstance(event, PromptRead)]
    counts = [event.read_tokens for event in read]
    assert counts == sorted(counts)
    assert len(counts) > 2
    assert 0 < counts[-1] <= read[-1].total_tokens
    assert events[: len(read)] == read


def test_a_local_model_keeps_to_the_schema(local_model: LocalModel) -> None:
    reply = read_reply(local_model.stream(QUESTION, schema=SCHEMA, max_tokens=60))

    answer = json.loads(reply.text)
    assert answer["mood"] in ("good", "bad")
    assert isinstance(answer["sure"], bool)


def test_a_local_model_is_stopped_by_leaving_in_the_middle(local_model: WatchedModel) -> None:
    with local_model.stream(QUESTION, max_tokens=900) as stream:
        next(iter(stream))

    assert no_model_thread_is_left()
    assert local_model.signs_of_life < 900


class WatchedModel(LocalModel):
    """Tells when it has read the first part of a prompt, and how far it has come."""

    def __init__(self, path: Path, settings: ModelSettings) -> None:
        super().__init__(path, settings)
        self.is_reading = threading.Event()
        self.signs_of_life = 0

    def run(self, body: RequestBody, deliver: Deliver) -> None:
        self.signs_of_life = 0

        def watch(event: ModelEvent | None) -> bool:
            self.signs_of_life += 1
            if self.signs_of_life == 3:  # the model has its turn; it has begun; one part is read
                self.is_reading.set()
            return deliver(event)

        super().run(body, watch)


def test_a_local_model_is_stopped_while_it_reads_the_prompt(local_settings: ModelSettings) -> None:
    question = long_question()
    with closing(WatchedModel(smol_model_file(), local_settings)) as model:
        with model.stream(question) as stream:
            assert model.is_reading.wait(LIMIT_SECONDS)
            stream.cancel()
            with pytest.raises(ReplyCancelledError):
                next(iter(stream))
        assert no_model_thread_is_left()
        usage = read_reply(model.stream(question, max_tokens=1)).finished.usage

    assert usage is not None
    assert usage.cached_tokens < usage.prompt_tokens * 0.8, "the prompt was read to its end"


def test_streams_of_a_local_model_take_turns(local_model: LocalModel) -> None:
    second: list[str] = []

    def ask_too() -> None:
        second.append(read_reply(local_model.stream(QUESTION, max_tokens=3)).text)

    with local_model.stream(QUESTION, max_tokens=20) as stream:
        events = iter(stream)
        next(events)
        other = threading.Thread(target=ask_too)
        other.start()
        rest = list(events)
    other.join(LIMIT_SECONDS)

    assert len(rest) > 3
    assert second
    assert second[0]


def test_a_local_model_says_when_the_conversation_is_too_long(local_model: LocalModel) -> None:
    with pytest.raises(ContextTooLongError, match="1024 tokens"):
        read_reply(local_model.stream(TOO_LONG_QUESTION))


def test_a_local_model_refuses_a_schema_that_is_none(local_model: LocalModel) -> None:
    with pytest.raises(RequestRefusedError, match="nonsense"):
        read_reply(local_model.stream(QUESTION, schema={"type": "nonsense"}))


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    require_xllamacpp()
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(1000))
    model = LocalModel(junk, ModelSettings(api_type="local"))

    with pytest.raises(ModelSetupError, match=r"junk\.gguf cannot be loaded"):
        read_reply(model.stream(QUESTION))


def test_closing_a_local_model_stops_its_reply_and_refuses_more(
    local_settings: ModelSettings,
) -> None:
    model = LocalModel(smol_model_file(), local_settings)

    with model.stream(QUESTION, max_tokens=900) as stream:
        next(iter(stream))
        model.close()

    with pytest.raises(ReplyCancelledError, match="closed"):
        read_reply(model.stream(QUESTION))
