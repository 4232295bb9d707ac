"""Questions to the person: asked by an event, answered once, from any frontend.

A frontend reads `session_question` events and calls `answer`; one that would rather be called
gives a function, which runs on a thread of its own. The first answer counts. Listeners hear of
each question before they hear what became of it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import (
    AnsweredExtra,
    QuestionExtra,
    QuestionId,
    QuestionKind,
    QuestionOutcome,
)
from taskweaver_ext.events.types import SessionEventType

_CHOICES: dict[QuestionKind, tuple[QuestionOutcome, ...]] = {
    "input": ("answered", "cancelled"),
    "password": ("answered", "cancelled"),
    "approval": ("approved", "edited", "refused"),
}
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a question."""

    outcome: QuestionOutcome
    text: str = ""
    """What was typed, the code that is to run instead, a pattern, or why not."""
    is_by_rules: bool = False
    """Whether nobody had to answer any more."""


AskPerson: TypeAlias = Callable[[], Answer]
"""Asks a person and may take its time; what it returns is ignored if another frontend was first."""

CANCELLED = Answer("cancelled")


def new_question(kind: QuestionKind, prompt: str, execution_id: ExecutionId) -> QuestionExtra:
    """Make a question with an id of its own."""
    return {
        "question_id": f"question-{secrets.token_hex(4)}",
        "kind": kind,
        "prompt": prompt,
        "execution_id": execution_id,
        "choices": list(_CHOICES[kind]),
    }


@dataclass(slots=True, eq=False)
class _OpenQuestion:
    details: QuestionExtra
    is_for_readers: bool
    """Whether only a frontend that reads events can answer it."""
    check: Callable[[Answer], str]
    answer: Answer | None = None
    is_told: bool = False
    """Whether listeners know of it: until then the thread that asks says what became of it."""
    is_closed: threading.Event = field(default_factory=threading.Event)


class Questions:
    """The open questions of one session.

    Threads:
        Everything is safe from any thread. `_lock` guards all fields and each question's, and
        is not held while an event is emitted. `ask` waits until `answer` or `cancel`.
    """

    def __init__(
        self, emitter: SessionEventEmitter, is_cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin without a question.

        Args:
            is_cancelled: Whether the round is to end, so that no answer is wanted; where that
                becomes true, `cancel` is called afterwards.
        """
        self._emitter = emitter
        self._is_cancelled = is_cancelled
        self._accepts_answers = False
        self._lock = threading.Lock()
        self._open: dict[QuestionId, _OpenQuestion] = {}

    @property
    def accepts_answers(self) -> bool:
        """Whether a frontend reads the events and answers, without a function to be called."""
        return self._accepts_answers

    @accepts_answers.setter
    def accepts_answers(self, value: bool) -> None:
        with self._lock:
            self._accepts_answers = value
            unanswerable = [] if value else [q for q in self._open.values() if q.is_for_readers]
        for question in unanswerable:
            self._close(question, CANCELLED)

    @property
    def open_questions(self) -> list[QuestionExtra]:
        """What a person is being asked now, oldest first."""
        with self._lock:
            return [question.details for question in self._open.values()]

    def ask(
        self,
        details: QuestionExtra,
        ask_person: AskPerson | None = None,
        *,
        check: Callable[[Answer], str] = lambda _answer: "",
        settled: Callable[[], Answer | None] = lambda: None,
    ) -> Answer:
        """Ask, and wait for the answer of any frontend; cancelled where none can come.

        Args:
            details: As `new_question` makes them.
            check: Says in a sentence what is wrong with an answer; nothing if it is welcome.
            settled: Returns the answer where none is needed any more; where that comes to be so,
                `settle` or `cancel` is called afterwards.
        """
        question = _OpenQuestion(details, is_for_readers=ask_person is None, check=check)
        with self._lock:
            if ask_person is None and not self._accepts_answers:
                return CANCELLED
            self._open[details["question_id"]] = question
        # Asked only now: `cancel` and `settle` see an open question.
        needless = CANCELLED if self._is_cancelled() else settled()
        if needless is not None:
            with self._lock:
                self._open.pop(details["question_id"], None)
            return needless
        self._tell(question)
        if ask_person is not None and question.answer is None:
            threading.Thread(
                target=self._call,
                args=(question, ask_person),
                name="taskweaver-question",
                daemon=True,  # it may wait for a person who never answers
            ).start()
        question.is_closed.wait()
        return question.answer or CANCELLED

    def _tell(self, question: _OpenQuestion) -> None:
        """Emit the question, and after it what became of it meanwhile, if anything did."""
        details = question.details
        try:
            self._emitter.emit_session_event(
                SessionEventType.session_question, details["prompt"], details
            )
        finally:  # after Ctrl-C in a handler, too, others are to say what became of it
            with self._lock:
                question.is_told = True
                answer = question.answer
        if answer is not None:
            self._tell_answer(question, answer)

    def answer(self, question_id: QuestionId, outcome: QuestionOutcome, text: str = "") -> None:
        """Answer a question; the first answer counts.

        Args:
            outcome: One of the question's `choices`.
            text: What was typed, the edited code, a pattern, or why it was refused.

        Raises:
            SessionError: It is not open any more, or ever was, or cannot end like that.
        """
        with self._lock:
            question = self._open.get(question_id)
        if question is None:
            raise SessionError(
                f"Question {question_id!r} is not open: it was answered or has become void."
            )
        choices = question.details.get("choices", ())
        if outcome not in choices:
            raise SessionError(
                f"{outcome!r} is no answer to this question. Use one of: {', '.join(choices)}."
            )
        answer = Answer(outcome, text)
        if problem := question.check(answer):
            raise SessionError(problem)
        if not self._close(question, answer):
            raise SessionError(f"Question {question_id!r} has just been answered.")

    def is_open(self, question_id: QuestionId) -> bool:
        """Whether a question waits for an answer."""
        with self._lock:
            return question_id in self._open

    def cancel(self, execution_id: ExecutionId | None = None) -> None:
        """Close the questions of an execution, or all of them: answers are not wanted any more."""
        self.settle(execution_id, CANCELLED)

    def settle(self, execution_id: ExecutionId | None, answer: Answer) -> None:
        """Close the questions of an execution, or all of them, with an answer."""
        with self._lock:
            void = [
                question
                for question in self._open.values()
                if execution_id in (None, question.details["execution_id"])
            ]
        for question in void:
            self._close(question, answer)

    def _call(self, question: _OpenQuestion, ask_person: AskPerson) -> None:
        try:
            answer = ask_person()
        except Exception:  # a frontend's own; the code that asks must not wait for ever
            _logger.exception("Asking a person failed; the question counts as cancelled.")
            answer = CANCELLED
        self._close(question, answer)

    def _close(self, question: _OpenQuestion, answer: Answer) -> bool:
        with self._lock:
            if self._open.pop(question.details["question_id"], None) is None:
                return False
            question.answer = answer
            is_told = question.is_told
        if is_told:
            self._tell_answer(question, answer)
        return True

    def _tell_answer(self, question: _OpenQuestion, answer: Answer) -> None:
        details = question.details
        extra: AnsweredExtra = {
            "question_id": details["question_id"],
            "outcome": answer.outcome,
        }
        is_wordless = answer.outcome in ("approved", "always", "cancelled")
        is_told = answer.text or answer.outcome == "answered"
        if details["kind"] != "password" and is_told and not is_wordless:
            extra["answer"] = answer.text
        if answer.is_by_rules:
            extra["by_rules"] = True
        try:
            self._emitter.emit_session_event(SessionEventType.session_answered, "", extra)
        finally:
            question.is_closed.set()
