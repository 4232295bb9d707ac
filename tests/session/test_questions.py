"""A person is asked by events and answers once, from whatever frontend; rounds can be handles."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.approval import Approval, ApprovalAnswer, ApprovalRequest
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, ExecutionStatus
from taskweaver_ext.conversation import AttachmentType, Round
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import (
    AnsweredExtra,
    QuestionExtra,
    QuestionOutcome,
    RoundEndExtra,
)
from taskweaver_ext.events.questions import CANCELLED, Questions, new_question
from taskweaver_ext.events.types import (
    RoundEventType,
    SessionEventHandler,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.submitted import Submitted
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
    assert question.get("choices") == [*("approved", "edited", "refused", "always", "pattern")]
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
        wait_until(lambda: any(event.msg.startswith("on") for event in read_all(session)))
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


def answer_from_four_threads(session: Session, question_id: str) -> set[str]:
    """Answer 0 to 3 at the same time; return what was refused."""
    together = threading.Barrier(4)
    refused: set[str] = set()

    def answer(text: str) -> None:
        together.wait(LIMIT_SECONDS)
        try:
            session.answer(question_id, "answered", text)
        except SessionError:
            refused.add(text)

    threads = [threading.Thread(target=answer, args=(text,)) for text in "0123"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    return refused


def test_of_threads_that_answer_at_once_one_is_first(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        for _ in range(10):
            before = session.emitter.last_seq
            submitted = session.submit_code("python", "print(input())")
            question = next_question(session, after=before)
            refused = answer_from_four_threads(session, question["question_id"])
            result = submitted.wait(LIMIT_SECONDS)

            [accepted] = set("0123") - refused
            assert result.stdout == [f"{accepted}\n"]
        assert len(answers_in(session)) == 10


class AnswersAtOnce(SessionEventHandler):
    """Answers, or ends, while the question is still being told."""

    def __init__(self, react: Callable[[QuestionExtra], None]) -> None:
        self._react = react

    def handle(self, event: TaskWeaverEvent) -> None:
        if event.t is SessionEventType.session_question:
            self._react(cast(QuestionExtra, event.extra))


def test_a_question_is_told_before_what_became_of_it(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        answers = AnswersAtOnce(lambda q: session.answer(q["question_id"], "answered", "inline"))
        result = session.run_code("python", "print(input())", answers)
        cancels = AnswersAtOnce(lambda _q: session.questions.cancel())
        session.run_code("python", "input()", cancels)

        kinds = (SessionEventType.session_question, SessionEventType.session_answered)
        told = [event.t for event in read_all(session) if event.t in kinds]
        assert result.stdout == ["inline\n"]
        assert told == [*kinds, *kinds]
        assert [one["outcome"] for one in answers_in(session)] == ["answered", "cancelled"]


def test_nobody_is_asked_in_a_round_that_is_to_end() -> None:
    is_cancelled = False
    emitter = SessionEventEmitter()
    questions = Questions(emitter, lambda: is_cancelled)
    questions.accepts_answers = True
    is_cancelled = True
    questions.cancel()  # before anything is asked

    assert (
        questions.ask(new_question("approval", "Run it?", ExecutionId("e"))).outcome == "cancelled"
    )
    assert questions.open_questions == []
    assert emitter.last_seq == 0


def test_a_question_of_code_that_has_ended_is_not_asked() -> None:
    emitter = SessionEventEmitter()
    questions = Questions(emitter)
    questions.accepts_answers = True
    questions.cancel(ExecutionId("e"))

    answer = questions.ask(new_question("input", "?", ExecutionId("e")), settled=lambda: CANCELLED)

    assert answer.outcome == "cancelled"
    assert emitter.last_seq == 0


def test_a_frontend_that_leaves_closes_what_only_it_could_answer(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        submitted = session.submit_code("python", "input()")
        next_question(session)
        session.questions.accepts_answers = False

        assert submitted.wait(LIMIT_SECONDS).status is ExecutionStatus.ERROR
        assert [one["outcome"] for one in answers_in(session)] == ["cancelled"]


def test_an_edit_without_code_runs_nothing(tmp_path: Path) -> None:
    model = ScriptedModel([plan("go"), code("echo ran", "bash"), answer("refused")])
    with TaskWeaverApp(tmp_path, model=model) as app:
        session = app.get_session()
        session.questions.accepts_answers = True
        submitted = session.submit("go")
        question = next_question(session)
        with pytest.raises(SessionError, match="needs the code"):
            session.answer(question["question_id"], "edited", " \n")
        session.answer(question["question_id"], "refused", "no")
        submitted.wait(LIMIT_SECONDS)

    deleted = Approval(ask=lambda _request: ApprovalAnswer(True, code=""))
    assert not deleted.decide("bash", "rm -r x", is_verified=False).is_approved


def test_a_session_that_was_stopped_says_nothing_more_and_takes_nothing(tmp_path: Path) -> None:
    late = (
        "import threading, time\n"
        "def write():\n    while True: print('late', flush=True); time.sleep(0.001)\n"
        "threading.Thread(target=write, daemon=True).start()"
    )
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", late)
        wait_until(lambda: events_of(session, SessionEventType.session_late_output))
        session.stop()
        for call in (
            lambda: session.submit("hello"),
            lambda: session.submit_code("python", "1"),
            lambda: session.share(["block"]),
            lambda: session.answer("question", "answered"),
            lambda: session.update_session_var({"name": "value"}),
        ):
            with pytest.raises(SessionError):
                call()

    assert read_all(session)[-1].t is SessionEventType.session_end


def test_a_round_cancelled_at_any_moment_ends_once_and_its_questions_are_closed(
    tmp_path: Path,
) -> None:
    """Cancels at each event of a round in turn, as a frontend that reads it would."""
    asking = "print('a')\nprint(input('? '))"
    moments = 0
    for number in itertools.count(1):
        model = ScriptedModel([plan("go"), code(asking), code("echo b", "bash"), answer("done")])
        with TaskWeaverApp(tmp_path, model=model) as app:
            session = app.get_session()
            session.questions.accepts_answers = True
            first = session.emitter.last_seq
            submitted = session.submit("go")
            state = _follow(session, submitted, cancel_at=first + number)
            events = read_all(session)

        ends = [event for event in events if event.t is RoundEventType.round_end]
        assert len(ends) == 1
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        asked = events_of(session, SessionEventType.session_question)
        closed = [one["question_id"] for one in answers_in(session)]
        assert [cast(QuestionExtra, event.extra)["question_id"] for event in asked] == closed
        if state == "finished":  # the wish came too late
            break
        assert state == "cancelled"
        assert cast(RoundEndExtra, ends[0].extra)["state"] == "cancelled"
        moments += 1
    assert moments > 20


def _follow(session: Session, submitted: Submitted[Round], cancel_at: int) -> str:
    """Answer what is asked, cancel with the event of a number, and say how the round ended."""
    seen = 0
    while not submitted.is_done:
        session.emitter.wait(seen, 0.05)
        for event in session.emitter.read(seen):
            seen = event.seq
            if seen == cancel_at:
                submitted.cancel()
            elif event.t is SessionEventType.session_question:
                question = cast(QuestionExtra, event.extra)
                outcome: QuestionOutcome = "answered" if question["kind"] == "input" else "approved"
                with contextlib.suppress(SessionError):
                    session.answer(question["question_id"], outcome, "y")
    return submitted.wait(LIMIT_SECONDS).state
