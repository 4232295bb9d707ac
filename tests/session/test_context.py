"""What a person runs goes to the agent as the person wants, and can be taken out again."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.extras import ContextExtra
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.sharing import REACT
from tests.session.test_questions import events_of
from tests.support.conversations import answer, code, make_app, plan
from tests.support.executions import LIMIT_SECONDS, wait_until
from tests.support.model_server import ModelServer, ScriptedAnswer


def told(model: ScriptedModel, request: int = -1) -> str:
    """All that the model was sent."""
    return "\n".join(message.content for message in model.requests[request])


def known(session: Session) -> list[tuple[str, str, bool]]:
    return [(item.kind, item.text, item.is_waiting) for item in session.known_items]


def drop(session: Session, number: int) -> None:
    session.drop(session.code_blocks.get(number).post_id)


def test_with_auto_on_the_agent_reacts_to_what_a_person_ran(tmp_path: Path) -> None:
    model = ScriptedModel([answer("Forty-two.")])
    with TaskWeaverApp(tmp_path, {"session.auto_send": "on"}, model=model) as app:
        session = app.get_session()
        result = session.run_code("python", "print(40 + 2)")

    assert result.stdout == ["42\n"]
    run, reaction = session.rounds
    assert (run.state, reaction.state, reaction.user_query) == ("finished", "finished", REACT)
    assert reaction.post_list[-1].message == "Forty-two."
    assert "print(40 + 2)" in told(model)
    assert "42" in told(model)


def test_a_model_that_fails_does_not_lose_the_run(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, {"session.auto_send": "on"}, model=ScriptedModel([])) as app:
        session = app.get_session()
        result = session.run_code("python", "x = 6 * 7; x")

        assert result.output == "42"
        assert [one.state for one in session.rounds] == ["finished", "failed"]
        assert session.run_code("python", "x").output == "42", "the session goes on"


def test_a_run_that_was_stopped_is_told_later_and_not_reacted_to(tmp_path: Path) -> None:
    model = ScriptedModel([])
    with TaskWeaverApp(tmp_path, {"session.auto_send": "on"}, model=model) as app:
        session = app.get_session()
        run = session.submit_code("python", "print('on', flush=True)\nwhile True: pass")
        wait_until(lambda: any(event.msg == "on\n" for event in session.emitter.events()))
        run.cancel()
        run.wait(LIMIT_SECONDS)

        assert not model.requests
        assert [item.is_waiting for item in session.known_items] == [True]


def test_a_reaction_can_be_stopped_and_the_result_stays(tmp_path: Path) -> None:
    stalled = ScriptedAnswer(answer("never")[:30], ending="stall")
    with ModelServer([stalled]) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        session.settings.set_auto_send("on")
        run = session.submit_code("python", "print('kept')")
        server.wait_for_request()
        assert run.cancel()
        result = run.wait(LIMIT_SECONDS)

    assert result.stdout == ["kept\n"]
    assert [one.state for one in session.rounds] == ["finished", "cancelled"]


def test_a_block_that_waits_can_be_dropped(tmp_path: Path) -> None:
    model = ScriptedModel([answer("ok")])
    with TaskWeaverApp(tmp_path, {"session.auto_send": "next"}, model=model) as app:
        session = app.get_session()
        session.run_code("python", "print('first' * 2)")
        session.run_code("bash", "echo second")
        assert known(session) == [
            ("code", "print('first' * 2)", True),
            ("code", "echo second", True),
        ]
        drop(session, 1)
        session.send_message("go on")

    assert "firstfirst" not in told(model)
    assert "echo second" in told(model)
    updates = events_of(session, SessionEventType.session_context_update)
    contexts = [cast(ContextExtra, event.extra) for event in updates]
    assert [len(one.get("runs", ())) for one in contexts] == [1, 2, 1, 0]
    assert contexts[2]["dropped"] == contexts[0]["runs"]


def test_what_was_said_before_is_sent_without_what_was_dropped(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            *(plan("a"), code("print('alpha', 1 + 1)"), answer("one")),
            *(answer("two"), plan("b"), code("print('gamma')"), answer("three")),
        ]
    )
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.settings.set_auto_send("next")
        session.run_code("python", "print('shared', 40 + 2)")
        session.send_message("first request")
        assert "shared 42" in told(model, 1) or "shared 42" in told(model, 0)
        drop(session, 1)
        drop(session, 2)
        with pytest.raises(SessionError, match="does not know"):
            drop(session, 1)
        session.send_message("second request")
        session.send_message("third request")
        kept = session.rounds

    for request in (3, 4, 5, 6):
        assert "shared" not in told(model, request)
        assert "alpha" not in told(model, request)
        assert "first request" in told(model, request) or request == 5
    assert "taken this code and what came of it out" in told(model, 5)
    assert "shared 42" in kept[1].post_list[0].message, "the transcript keeps what was said"


def test_what_was_dropped_stays_out_when_the_session_is_continued(tmp_path: Path) -> None:
    first = ScriptedModel([plan("a"), code("print('alpha')"), answer("one"), answer("two")])
    with TaskWeaverApp(tmp_path, {"session.auto_send": "next"}, model=first) as app:
        session = app.get_session("s1")
        session.run_code("python", "print('shared')")
        session.send_message("first request")
        session.run_code("python", "print('waiting')")
        session.run_code("python", "print('kept')")
        for number in (1, 2, 3):
            drop(session, number)
        session.send_message("second request")
        session.drop_round(session.rounds[-1].id)
        before = known(session)
    second = ScriptedModel([answer("three")])
    with TaskWeaverApp(tmp_path, model=second) as app:
        session = app.get_session("s1")
        assert known(session)[:-1] == before
        session.send_message("third request")

    assert before == [("request", "first request", False)]
    for word in ("shared", "alpha", "waiting", "kept", "second request"):
        assert word not in told(second)
    assert "first request" in told(second)


def test_a_summary_does_not_keep_what_was_dropped(tmp_path: Path) -> None:
    settings = {
        "round_compressor.rounds_to_compress": 1,
        "round_compressor.rounds_to_retain": 1,
        "planner.prompt_compression": True,
        "session.auto_send": "next",
    }
    script = [answer("one"), "summary with alpha", answer("two"), answer("three")]
    model = ScriptedModel([*script, "summary without", answer("four")])
    with TaskWeaverApp(tmp_path, settings, model=model) as app:
        session = app.get_session("s1")
        session.run_code("python", "print('al' + 'pha')")
        session.send_message("first")
        session.send_message("second")
        assert "summary with alpha" in told(model)
        drop(session, 1)
        session.emitter.wait(session.emitter.last_seq, 0)
    with TaskWeaverApp(
        tmp_path, {**settings, "planner.prompt_compression": False}, model=model
    ) as app:
        session = app.get_session("s1")
        session.send_message("third")

    assert "alpha" not in told(model)
    assert "'al' + 'pha'" not in told(model)
    assert "first" in told(model)


def test_what_the_agent_is_at_work_with_cannot_be_taken_from_it(tmp_path: Path) -> None:
    stalled = ScriptedAnswer(answer("never")[:30], ending="stall")
    with ModelServer([stalled]) as server, make_app(tmp_path / "p", server.openai_url) as app:
        session = app.get_session()
        session.settings.set_auto_send("next")
        session.run_code("python", "print('shared')")
        submitted = session.submit("go")
        server.wait_for_request()
        with pytest.raises(SessionError, match="at work"):
            drop(session, 1)
        submitted.cancel()
        submitted.wait(LIMIT_SECONDS)
        drop(session, 1)

    assert known(session) == [("request", "go", False)]


def test_clearing_takes_all_out(tmp_path: Path) -> None:
    model = ScriptedModel([plan("a"), code("print('alpha')"), answer("one"), answer("two")])
    with TaskWeaverApp(tmp_path, {"session.auto_send": "next"}, model=model) as app:
        session = app.get_session()
        session.send_message("first request")
        session.run_code("python", "print('mine')")
        session.forget()
        assert known(session) == []
        session.send_message("second request")

    for word in ("alpha", "mine", "first request"):
        assert word not in told(model)
