"""Old rounds make room for new ones, honestly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.model_errors import ContextTooLongError
from taskweaver_ext.llm.scripted import ScriptedModel, ScriptedReply, ScriptEntry
from taskweaver_ext.roles.base.token_count import estimate_tokens
from tests.support.conversations import answer, make_app
from tests.support.model_server import (
    Answer,
    HttpFailure,
    ModelServer,
    RecordedRequest,
    ScriptedAnswer,
)

CONTEXT_TOKENS = 4000
LONG = "word " * 400


def talk(
    project: Path, script: list[ScriptEntry], queries: list[str], **settings: object
) -> tuple[ScriptedModel, list[str]]:
    """Ask several questions in one session; return the model and the states of the rounds."""
    model = ScriptedModel(script, context_tokens=CONTEXT_TOKENS)
    config = {name.replace("__", "."): value for name, value in settings.items()}
    with TaskWeaverApp(project, config, model=model) as app:
        session = app.get_session()
        return model, [session.send_message(query).state for query in queries]


def text_of(messages: tuple[Message, ...]) -> str:
    return "\n".join(message.content for message in messages)


def queries(count: int) -> list[str]:
    return [f"query-{number} {LONG}" for number in range(count)]


def test_old_rounds_are_summarised_before_the_context_overflows(tmp_path: Path) -> None:
    replies: list[ScriptEntry] = [answer(f"answer-{n}") for n in range(4)]
    replies.insert(3, "The user counts; query-0 was answered.")

    model, states = talk(
        tmp_path,
        replies,
        queries(4),
        round_compressor__rounds_to_retain=2,
    )

    assert states == ["finished"] * 4
    summarising, last = model.requests[3:]
    assert "at most 200 words" in text_of(summarising)
    assert "query-0" in text_of(summarising)
    assert "The user counts" in text_of(last)
    assert "answer-0" not in text_of(last)
    assert "query-3" in text_of(last)
    assert all(estimate_tokens(request) < CONTEXT_TOKENS for request in model.requests)


@pytest.mark.parametrize(
    "failed", [ScriptedReply(text="", failure=ModelError("down")), ScriptedReply(text=" ")]
)
def test_rounds_that_cannot_be_summarised_are_left_out_with_a_notice(
    tmp_path: Path, failed: ScriptedReply
) -> None:
    replies: list[ScriptEntry] = [answer(f"answer-{n}") for n in range(4)]
    replies.insert(3, failed)

    model, states = talk(tmp_path, replies, queries(4), round_compressor__rounds_to_retain=2)

    assert states == ["finished"] * 4
    last = text_of(model.requests[-1])
    assert "earlier rounds are left out for want of room: query-0" in last
    assert "answer-0" not in last


def test_one_message_that_is_too_long_loses_its_middle(tmp_path: Path) -> None:
    query = "begin " + "x" * 100_000 + " end"

    model, states = talk(tmp_path, [answer("hello")], [query])

    assert states == ["finished"]
    [request] = model.requests
    assert estimate_tokens(request) < CONTEXT_TOKENS
    assert "begin" in text_of(request)
    assert "end" in text_of(request)
    assert "left out" in text_of(request)


def test_refusals_as_too_long_are_answered_with_less(tmp_path: Path) -> None:
    refusal = ScriptedReply(text="", failure=ContextTooLongError("too long"))

    model, states = talk(tmp_path, [refusal, refusal, answer("hello")], ["y" * 8000])

    assert states == ["finished"]
    sizes = [estimate_tokens(request) for request in model.requests]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_small_context_is_not_filled_with_room_for_the_reply(tmp_path: Path) -> None:
    def answer_where_it_fits(request: RecordedRequest) -> Answer:
        room = request.body["max_tokens"]
        prompt = estimate_tokens([Message("user", json.dumps(request.body["messages"]))])
        if prompt + room > CONTEXT_TOKENS:
            code = "context_length_exceeded"
            return HttpFailure(400, f"you requested {prompt + room} tokens", fields={"code": code})
        return ScriptedAnswer(answer("It fits."))

    script = [answer_where_it_fits] * 3
    with ModelServer(script) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        states = [session.send_message(query).state for query in ("one", "two")]

    assert states == ["finished", "finished"]
    assert server.unused_entries == 0  # it is asked once too much, and only the first time


def test_a_model_that_finds_everything_too_long_ends_the_round(tmp_path: Path) -> None:
    refusal = ScriptedReply(text="", failure=ContextTooLongError("too long"))

    model, states = talk(tmp_path, [refusal] * 9, ["y" * 8000])

    assert states == ["failed"]
    assert len(model.requests) == 4


def test_scripts_with_a_token_per_character_are_given_room(tmp_path: Path) -> None:
    model, states = talk(tmp_path, [answer("好")], ["汉字" * 4000])

    assert states == ["finished"]
    assert sum("汉" in sign or "字" in sign for sign in text_of(model.requests[0])) < CONTEXT_TOKENS


def test_with_prompt_compression_rounds_are_summarised_as_soon_as_there_are_enough(
    tmp_path: Path,
) -> None:
    replies: list[ScriptEntry] = [answer(f"answer-{n}") for n in range(3)]
    replies.insert(2, "Short words were spoken.")

    model, _ = talk(
        tmp_path,
        replies,
        ["a", "b", "c"],
        planner__prompt_compression=True,
        round_compressor__rounds_to_retain=1,
        round_compressor__rounds_to_compress=2,
    )

    assert "Short words were spoken." in text_of(model.requests[-1])
    assert len(model.requests) == 4


def test_what_was_forgotten_on_purpose_is_not_in_the_summary(tmp_path: Path) -> None:
    replies: list[ScriptEntry] = [answer(f"answer-{n}") for n in range(4)]
    replies.insert(2, "A secret was told.")
    model = ScriptedModel(replies)
    settings = {
        "planner.prompt_compression": True,
        "round_compressor.rounds_to_retain": 1,
        "round_compressor.rounds_to_compress": 2,
    }
    with TaskWeaverApp(tmp_path, settings, model=model) as app:
        session = app.get_session()
        for query in ("a", "b", "c"):
            session.send_message(query)
        session.memory.rounds.clear()
        session.send_message("d")

    assert "A secret was told." in text_of(model.requests[-2])
    assert "A secret was told." not in text_of(model.requests[-1])


def test_examples_go_before_anything_that_was_said(tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "planner_examples"
    folder.mkdir(parents=True)
    posts = [
        {"message": f"example {LONG * 4}", "send_from": "User", "send_to": "Planner"},
        {"message": "fine", "send_from": "Planner", "send_to": "User"},
    ]
    example = {"rounds": [{"user_query": "q", "state": "finished", "post_list": posts}]}
    (folder / "long.yaml").write_text(json.dumps(example))

    model, states = talk(tmp_path, [answer("hello")], ["a real question"])

    assert states == ["finished"]
    assert "a real question" in text_of(model.requests[0])
    assert "example" not in text_of(model.requests[0][1:])


def test_a_long_question_after_examples_loses_its_middle_too(tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "planner_examples"
    folder.mkdir(parents=True)
    posts = [
        {"message": "example", "send_from": "User", "send_to": "Planner"},
        {"message": "fine", "send_from": "Planner", "send_to": "User"},
    ]
    example = {"rounds": [{"user_query": "q", "state": "finished", "post_list": posts}]}
    (folder / "short.yaml").write_text(json.dumps(example))

    model, _ = talk(tmp_path, [answer("hello")], ["z" * 100_000])

    assert estimate_tokens(model.requests[0]) < CONTEXT_TOKENS
    assert "example" in text_of(model.requests[0][1:])
