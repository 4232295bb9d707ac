"""What the agent may run is decided once, by whatever frontend, and every other one hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import ApprovalAnswer
from taskweaver_ext.conversation import AttachmentType, Post, Round
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.extras import QuestionExtra, SettingsExtra
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.blocks import Cell, read_blocks
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.submitted import Submitted
from tests.session.test_questions import answers_in, events_of, next_question
from tests.support.conversations import answer, attached, code, plan
from tests.support.executions import LIMIT_SECONDS


@contextmanager
def session_with(tmp_path: Path, *replies: str, **settings: object) -> Iterator[Session]:
    """A session whose questions are answered by a reader of its events."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    model = ScriptedModel([plan("go"), *replies, answer("done")])
    with TaskWeaverApp(tmp_path, named, model=model) as app:
        session = app.get_session("s1")
        session.questions.accepts_answers = True
        yield session


def asked_for(session: Session, message: str = "go") -> tuple[Submitted[Round], QuestionExtra]:
    before = session.emitter.last_seq
    return session.submit(message), next_question(session, after=before)


def code_post(chat_round: Round) -> Post:
    return next(p for p in chat_round.post_list if p.send_from == "CodeInterpreter")


def settings_told(session: Session) -> list[SettingsExtra]:
    told = events_of(session, SessionEventType.session_settings)
    return [cast(SettingsExtra, event.extra) for event in told]


def test_a_question_says_what_it_is_about_and_what_can_be_answered(tmp_path: Path) -> None:
    with session_with(tmp_path, code("git status -s", "bash")) as session:
        submitted, question = asked_for(session)
        session.answer(question["question_id"], "refused")
        submitted.wait(LIMIT_SECONDS)

    assert question["block"] == 1
    assert question["choices"] == ["approved", "edited", "refused", "always", "pattern"]
    assert question["pattern"] == "git status*"
    assert "all shell code of the agent runs without asking" in question["always"]
    assert all(reason.endswith(".") for reason in question["reasons"])


def test_refused_code_is_told_as_refused_and_not_as_wrong(tmp_path: Path) -> None:
    model = ScriptedModel([plan("go"), code("echo x", "bash"), answer("as you wish")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        submitted, question = asked_for(session)
        session.answer(question["question_id"], "refused", "use Python")
        post = code_post(submitted.wait(LIMIT_SECONDS))
        [cell] = [one for one in read_blocks(session.emitter.events) if isinstance(one, Cell)]

    assert attached(post, AttachmentType.execution_status) == "REFUSED"
    assert attached(post, AttachmentType.verification) != "INCORRECT"
    assert not post.get_attachment(AttachmentType.code_error)
    said = "The user refused to run this code. The user said: use Python"
    assert said in model.requests[-1][-1].content
    assert (cell.status, cell.error) == ("refused", said)
    assert answers_in(session)[0]["answer"] == "use Python"


def test_always_allows_the_kind_and_no_other(tmp_path: Path) -> None:
    replies = [code("echo 1", "bash"), plan("b"), code("echo 2", "bash"), plan("c")]
    with session_with(tmp_path, *replies, code("!echo 3"), answer("x")) as session:
        submitted, question = asked_for(session)
        before = session.emitter.last_seq
        session.answer(question["question_id"], "always")
        second = next_question(session, after=before)
        session.answer(second["question_id"], "refused")
        submitted.wait(LIMIT_SECONDS)

        assert second["code"] == "!echo 3", "the second shell command was not asked about"
        assert "Python code that starts programs" in second["always"]
        assert settings_told(session)[-1]["allowed_kinds"] == ["bash"]
        session.settings.forget_allowed("bash")
        assert settings_told(session)[-1]["allowed_kinds"] == []


def test_a_pattern_has_to_allow_the_command_and_then_is_kept(tmp_path: Path) -> None:
    replies = [code("echo one", "bash"), plan("b"), code("echo one two", "bash")]
    with session_with(tmp_path, *replies) as session:
        submitted, question = asked_for(session)
        with pytest.raises(SessionError, match="does not allow this command"):
            session.answer(question["question_id"], "pattern", "ls*")
        session.answer(question["question_id"], "pattern", "echo *")
        chat_round = submitted.wait(LIMIT_SECONDS)

        assert chat_round.state == "finished"
        assert len(answers_in(session)) == 1
        assert settings_told(session)[-1]["allowed_patterns"] == ["echo *"]
        with pytest.raises(SessionError, match="not among what is allowed"):
            session.settings.forget_allowed("ls")
        session.settings.forget_allowed()
        assert session.approval.rules.patterns == ()


def test_deny_runs_nothing_and_the_model_is_told(tmp_path: Path) -> None:
    with session_with(tmp_path, code("print('ran')")) as session:
        session.settings.set_approval("deny")
        chat_round = session.send_message("go")

    post = code_post(chat_round)
    assert attached(post, AttachmentType.execution_status) == "REFUSED"
    assert "has forbidden all code" in post.message
    assert events_of(session, SessionEventType.session_question) == []


def test_auto_asks_nothing(tmp_path: Path) -> None:
    with session_with(tmp_path, code("echo ran", "bash")) as session:
        session.settings.set_approval("auto")
        chat_round = session.send_message("go")

    assert attached(code_post(chat_round), AttachmentType.execution_status) == "SUCCESS"
    assert events_of(session, SessionEventType.session_question) == []


@pytest.mark.parametrize(
    ("language", "mode", "scope", "status"),
    [
        ("bash", "auto", "shell", "SUCCESS"),
        ("bash", "deny", "shell", "REFUSED"),
        ("python", "ask", "shell", "SUCCESS"),
    ],
)
def test_a_level_that_leaves_nothing_to_ask_settles_the_open_question(
    tmp_path: Path, language: str, mode: str, scope: str, status: str
) -> None:
    with session_with(
        tmp_path, code("echo = 1", language), code_interpreter__approval_scope="all"
    ) as session:
        session.approval.allow_pattern("true")
        if language == "bash":
            session.settings.set_approval("ask", "all")
        submitted, question = asked_for(session)
        session.settings.set_approval(mode, scope)  # type: ignore[arg-type]
        chat_round = submitted.wait(LIMIT_SECONDS)
        with pytest.raises(SessionError, match="not open"):
            session.answer(question["question_id"], "approved")

    posts = [p for p in chat_round.post_list if p.send_from == "CodeInterpreter"]
    told = attached(posts[0], AttachmentType.execution_status)
    assert (told == "REFUSED") == (status == "REFUSED")
    assert answers_in(session)[0]["by_rules"]


def test_a_level_that_still_asks_leaves_the_question_open(tmp_path: Path) -> None:
    with session_with(tmp_path, code("echo ran", "bash")) as session:
        submitted, question = asked_for(session)
        session.settings.set_approval("ask", "all")
        session.settings.allow("ls*")
        assert session.questions.is_open(question["question_id"])
        session.settings.allow("echo *")
        chat_round = submitted.wait(LIMIT_SECONDS)

    assert attached(code_post(chat_round), AttachmentType.execution_status) == "SUCCESS"


def test_an_edit_that_cannot_run_is_asked_about_again_and_the_model_hears_of_none(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([plan("go"), code("print('written')"), answer("done")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        session.settings.set_approval("ask", "all")
        submitted, first = asked_for(session)
        before = session.emitter.last_seq
        session.answer(first["question_id"], "edited", "print(")
        second = next_question(session, after=before)
        with pytest.raises(SessionError, match="no answer to this question"):
            session.answer(second["question_id"], "approved")
        session.settings.set_approval("auto")
        assert session.questions.is_open(second["question_id"]), "auto cannot mend code"
        session.answer(second["question_id"], "edited", "print('ed' + 'ited')")
        post = code_post(submitted.wait(LIMIT_SECONDS))
        [cell] = [one for one in read_blocks(session.emitter.events) if isinstance(one, Cell)]

    assert second["code"] == "print("
    assert "The edited code cannot run." in second["reasons"][0]
    assert attached(post, AttachmentType.reply_content) == "print('ed' + 'ited')"
    assert (cell.code, cell.is_edited, cell.status) == ("print('ed' + 'ited')", True, "success")
    assert len(model.requests) == 3, "the model was not asked to mend what it did not write"


def test_settings_survive_but_what_was_let_loose_does_not(tmp_path: Path) -> None:
    with session_with(tmp_path) as session:
        session.settings.set_auto_send("next")
        session.settings.allow("git status*")
        session.approval.allow_kind("bash")
        session.settings.set_approval("auto")
    with session_with(tmp_path) as session:
        rules = session.approval.rules
        [notice] = events_of(session, SessionEventType.session_notice)
        assert (rules.level, rules.patterns, rules.kinds) == ("ask shell", ("git status*",), ())
        assert session.settings.auto_send == "next"
        assert "/approve ask shell again" in notice.msg
        session.settings.set_approval("deny")
    with session_with(tmp_path) as session:
        assert session.approval.rules.level == "deny", "a stricter level stays"
    with session_with(tmp_path, code_interpreter__approval="auto") as session:
        assert session.approval.rules.level == "deny"
        session.settings.set_approval("auto")
    with session_with(tmp_path, code_interpreter__approval="auto") as session:
        assert session.approval.rules.level == "auto", "the project's settings say so"


def test_a_function_that_is_asked_can_allow_for_good(tmp_path: Path) -> None:
    with session_with(tmp_path, code("echo ran", "bash")) as session:
        session.approval.ask = lambda request: ApprovalAnswer(True, pattern=request.pattern)
        session.send_message("go")

    assert session.approval.rules.patterns == ("echo ran*",)


def test_a_session_that_was_stopped_takes_no_settings(tmp_path: Path) -> None:
    with session_with(tmp_path) as session:
        session.stop()
        with pytest.raises(SessionError, match="stopped"):
            session.settings.set_approval("auto")
        with pytest.raises(SessionError, match="stopped"):
            session.settings.set_auto_send("on")
        with pytest.raises(SessionError, match="stopped"):
            session.settings.allow("ls")
