"""A person is asked by events and answers once, from whatever frontend; rounds can be handles."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import ApprovalAnswer, ApprovalRequest
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.conversation import AttachmentType
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.types import (
    AnsweredExtra,
    QuestionExtra,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.session import Session
from tests.support.conversations import answer, attached, code, plan
from tests.support.executions import LIMIT_SECONDS, wait_until


def events_of(session: Session, kind: SessionEventType) -> list[TaskWeaverEvent]:
    return [event for event in read_all(session) if event.t is kind]


def read_all(session: Session) -> list[TaskWeaverEvent]:
    events: list[TaskWeaverEvent] = []
    while piece := session.emitter.read(events[-1].seq if events else 0):
        events += piece
    return events


def next_question(session: Session, after: int = 0) -> QuestionExtra:
    """Wait, as a frontend of one's own does, until the person is asked."""
    while session.emitter.wait(after, LIMIT_SECONDS):
        for event in session.emitter.read(after):
            after = event.seq
            if event.t is SessionEventType.session_question:
                return cast(QuestionExtra, event.extra)
    pytest.fail("nobody was asked")


def answers_in(session: Session) -> list[AnsweredExtra]:
    answered = events_of(session, SessionEventType.session_answered)
    return [cast(AnsweredExtra, event.extra) for event in answered]


def test_a_reader_of_events_answers_the_code(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        submitted = session.submit_code("python", "print('hello', input('name? '))")
        question = next_question(session)
        session.answer(question["question_id"], "answered", "Ada")
        result = submitted.wait(LIMIT_SECONDS)

    assert (question["kind"], question["prompt"]) == ("input", "name? ")
    assert question["execution_id"] == result.execution_id
    assert result.stdout == ["hello Ada\n"]
    expected = {"question_id": question["question_id"], "outcome": "answered", "answer": "Ada"}
    assert answers_in(session) == [expected]


def test_a_password_is_never_told(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        code = "import getpass; print(len(getpass.getpass()))"
        submitted = session.submit_code("python", code)
        question = next_question(session)
        session.answer(question["question_id"], "answered", "swordfish")
        result = submitted.wait(LIMIT_SECONDS)

    assert question["kind"] == "password"
    assert result.stdout == ["9\n"]
    assert "swordfish" not in str(read_all(session))


def test_the_first_answer_counts_and_the_second_is_refused(tmp_path: Path) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def slow_person(prompt: str, password: bool) -> str:
        has_begun.set()
        may_end.wait(LIMIT_SECONDS)
        return "too late"

    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        submitted = session.submit_code("python", "print(input())", on_input=slow_person)
        question = next_question(session)
        assert has_begun.wait(LIMIT_SECONDS)
        session.answer(question["question_id"], "answered", "first")
        result = submitted.wait(LIMIT_SECONDS)
        may_end.set()
        with pytest.raises(SessionError, match="not open"):
            session.answer(question["question_id"], "answered", "second")

    assert result.stdout == ["first\n"]
    assert [one["outcome"] for one in answers_in(session)] == ["answered"]


def test_a_question_that_became_void_is_closed(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        submitted = session.submit_code("python", "input()")
        question = next_question(session)
        assert session.questions.open_questions == [question]
        assert submitted.cancel()
        result = submitted.wait(LIMIT_SECONDS)
        again = session.run_code("python", "print('still here')")

        assert result.status is ExecutionStatus.CANCELLED
        assert again.is_success
        assert session.questions.open_questions == []
        assert [one["outcome"] for one in answers_in(session)] == ["cancelled"]


def test_where_nobody_can_be_asked_code_is_told_at_once(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        result = session.run_code("python", "input()")

    assert result.status is ExecutionStatus.ERROR
    assert events_of(session, SessionEventType.session_question) == []


def test_shell_of_a_model_is_decided_by_a_reader_of_events(tmp_path: Path) -> None:
    model = ScriptedModel([plan("list"), code("echo ran", "bash"), answer("done")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        submitted = session.submit("list files")
        question = next_question(session)
        with pytest.raises(SessionError, match="no answer to this question"):
            session.answer(question["question_id"], "answered", "yes")
        session.answer(question["question_id"], "approved")
        chat_round = submitted.wait(LIMIT_SECONDS)

    assert submitted.id == chat_round.id
    assert question["kind"] == "approval"
    assert question.get("code") == "echo ran"
    assert question.get("choices") == ["approved", "edited", "refused"]
    interpreter = next(p for p in chat_round.post_list if p.send_from == "CodeInterpreter")
    assert attached(interpreter, AttachmentType.execution_status) == "SUCCESS"


def test_a_function_that_decides_is_one_frontend_among_others(tmp_path: Path) -> None:
    def decide(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(False, reason="not today")

    model = ScriptedModel([plan("list"), code("echo ran", "bash"), answer("refused")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.approval.ask = decide
        session.send_message("list files")

    assert [one["outcome"] for one in answers_in(session)] == ["refused"]


def test_a_submitted_round_keeps_others_out_and_can_be_cancelled(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        endless = session.submit_code("python", "print('on')\nwhile True: pass")
        wait_until(lambda: any(event.msg == "on\n" for event in read_all(session)))
        with pytest.raises(SessionError, match="is busy"):
            session.submit("hello")
        with pytest.raises(TimeoutError):
            endless.wait(0)
        assert endless.cancel()
        stopped: ExecutionResult = endless.wait(LIMIT_SECONDS)
        after = session.submit_code("python", "print('next')")
        result = after.wait(LIMIT_SECONDS)
        assert not endless.cancel()

    assert stopped.status is ExecutionStatus.CANCELLED
    assert result.is_success


def test_a_round_that_is_cancelled_before_its_thread_began_never_runs(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        for _ in range(20):
            submitted = session.submit_code("python", "import time; time.sleep(300)")
            submitted.cancel()
            try:
                assert submitted.wait(LIMIT_SECONDS).status is ExecutionStatus.CANCELLED
            except SessionError as error:
                assert "Cancelled" in str(error)  # noqa: PT017 - both ends are right
