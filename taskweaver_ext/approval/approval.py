"""Decide about a model's code: by the rules of the session, or by asking a person."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from taskweaver_ext.approval.rules import (
    ApprovalRules,
    CodeKind,
    CodeToRun,
    ShellPolicy,
    covers,
    propose_pattern,
    sentence_of_always,
)
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.config.settings import ApprovalMode, ApprovalScope
from taskweaver_ext.errors import SessionError, TaskWeaverError
from taskweaver_ext.events.extras import QuestionExtra, QuestionId, QuestionOutcome
from taskweaver_ext.events.questions import CANCELLED, Answer, Questions, new_question

_CHOICES: tuple[QuestionOutcome, ...] = ("approved", "edited", "refused", "always")
_CHOICES_FOR_A_FAULTY_EDIT: tuple[QuestionOutcome, ...] = ("edited", "refused")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """Code that wants to run."""

    question_id: QuestionId
    language: str
    code: str
    reasons: tuple[str, ...] = ()
    """Why a person has to decide, a sentence each."""
    choices: tuple[QuestionOutcome, ...] = _CHOICES
    """What can be decided: code that cannot run as it is can be edited or refused."""
    always: str = ""
    """What is allowed from now on where the answer is `always`, in a sentence."""
    pattern: str = ""
    """What `pattern` allows from now on, unless another pattern is given; empty: not a choice."""
    block: int | None = None
    """The number of the code block."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """What was decided."""

    is_approved: bool
    code: str | None = None
    """What is to run instead, where the code was edited."""
    reason: str = ""
    """Why not; the model is told."""
    is_final: bool = True
    """Whether it is settled; where nobody could be asked, another way is worth a try."""
    allows_kind: bool = False
    """Whether all such code is allowed from now on."""
    pattern: str = ""
    """Which commands are allowed from now on."""


Ask: TypeAlias = Callable[[ApprovalRequest], ApprovalAnswer]
"""Given by a frontend that wants to be called, on a thread of its own; may take its time."""

_DENIED = ApprovalAnswer(
    False, reason="The user has forbidden all code of the agent in this session."
)
_NOBODY = ApprovalAnswer(
    False, reason="It needs a person's approval, and nobody can be asked here.", is_final=False
)


class Approval:
    """What of a model's code may run in one session; changed at any time, from any thread.

    A change settles the question that is open, where the new rules leave nothing to be asked.

    Threads:
        Everything is safe from any thread. `_lock` guards the rules and `_asked`, and is not held
        while a person is asked or told.
    """

    def __init__(
        self,
        mode: ApprovalMode = "ask",
        *,
        scope: ApprovalScope = "shell",
        always_allowed: Iterable[str] = (),
        ask: Ask | None = None,
    ) -> None:
        """Rules of one session.

        Args:
            mode: Ask, run everything, or run nothing.
            scope: What asks: what cannot be verified and is not contained, or all code.
            always_allowed: Shell commands that run without asking; `*` stands for any text, but a
                command with a pipe, a redirection or a second command in it always asks.
            ask: Asks a person; None where there is none.
        """
        self.ask = ask
        self.questions: Questions | None = None
        """Puts requests to whatever frontend answers first; set by the session."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of the rules; set by the session."""
        self._lock = threading.Lock()
        self._rules = ApprovalRules(mode=mode, scope=scope, patterns=tuple(always_allowed))
        self._first_rules = self._rules
        self._asked: tuple[ExecutionId, CodeToRun, bool] | None = None
        """What a person is asked about, and whether it can run as it is."""

    @property
    def rules(self) -> ApprovalRules:
        """What holds now."""
        return self._rules

    @property
    def first_rules(self) -> ApprovalRules:
        """What the project's settings say."""
        return self._first_rules

    def set_level(self, mode: ApprovalMode, scope: ApprovalScope = "shell") -> None:
        """Have code asked for, run or refused from now on."""
        self._change(lambda rules: replace(rules, mode=mode, scope=scope))

    def allow_pattern(self, pattern: str) -> None:
        """Let shell commands of a pattern run without asking from now on.

        Raises:
            SessionError: The pattern is empty.
        """
        pattern = pattern.strip()
        if not pattern:
            raise SessionError("A pattern needs some text, such as 'git status*'.")
        self._change(lambda rules: replace(rules, patterns=_with(rules.patterns, pattern)))

    def allow_kind(self, kind: CodeKind) -> None:
        """Let all code of a kind run without asking from now on."""
        self._change(lambda rules: replace(rules, kinds=_with(rules.kinds, kind)))

    def forget(self, allowed: str | None = None) -> None:
        """Take back a pattern or a kind that was allowed, or all that the project does not allow.

        Raises:
            SessionError: Nothing like that is allowed.
        """
        if allowed is not None and allowed not in (*self.rules.patterns, *self.rules.kinds):
            raise SessionError(f"{allowed!r} is not among what is allowed.")

        def without(rules: ApprovalRules) -> ApprovalRules:
            if allowed is None:
                return replace(rules, patterns=self._first_rules.patterns, kinds=())
            return replace(
                rules,
                patterns=tuple(one for one in rules.patterns if one != allowed),
                kinds=tuple(one for one in rules.kinds if one != allowed),
            )

        self._change(without)

    def restore(self, rules: ApprovalRules) -> None:
        """Go on with rules of an earlier process."""
        self._change(lambda _rules: rules)

    def outlook(self, *, is_contained: bool) -> ShellPolicy:
        """Return what becomes of shell code, so that a model need not find out by trying."""
        shell = CodeToRun(language="bash", code="", is_verified=False, is_contained=is_contained)
        policy = self.rules.policy_on(shell)
        return "refused" if policy == "asks" and not self._can_ask else policy

    @property
    def _can_ask(self) -> bool:
        is_read = self.questions is not None and self.questions.accepts_answers
        return self.ask is not None or is_read

    def decide(
        self,
        language: str,
        code: str,
        *,
        is_verified: bool,
        is_contained: bool = False,
        reasons: Sequence[str] = (),
        execution_id: ExecutionId | None = None,
        block: int | None = None,
        can_run: bool = True,
    ) -> ApprovalAnswer:
        """Say whether code that a model wrote may run, after asking where that is needed.

        Args:
            is_verified: Whether the code is of the kind that verification can judge.
            is_contained: Whether it runs inside a container or a sandbox.
            reasons: Why a person has to decide, a sentence each.
            execution_id: What the execution will be called.
            block: The number of the code block.
            can_run: Whether it could run as it is; else a person can only edit or refuse it.
        """
        wanted = CodeToRun(
            language=language, code=code, is_verified=is_verified, is_contained=is_contained
        )
        case = (execution_id or ExecutionId(""), wanted, can_run)
        with self._lock:
            settled = _settled_by(self._rules, wanted, can_run=can_run)
            self._asked = case if settled is None else None
        if settled is not None:
            return settled
        try:
            return self._ask_person(case, reasons, block) if self._can_ask else _NOBODY
        finally:
            with self._lock:
                self._asked = None

    def _ask_person(
        self,
        case: tuple[ExecutionId, CodeToRun, bool],
        reasons: Sequence[str],
        block: int | None,
    ) -> ApprovalAnswer:
        execution_id, wanted, can_run = case
        question = _question_about(wanted, execution_id, reasons, block, can_run=can_run)
        failures: list[TaskWeaverError] = []
        ask = self.ask

        def call() -> Answer:
            assert ask is not None
            return _call(ask, _request_of(question), failures)

        if self.questions is None:
            answer = call()
        else:
            answer = self.questions.ask(
                question,
                None if ask is None else call,
                check=lambda answer: _problem_with(answer, wanted),
                settled=lambda: self._settled_answer(wanted, can_run=can_run),
            )
        if failures:
            raise failures[0]
        return self._carry_out(answer, wanted)

    def _carry_out(self, answer: Answer, wanted: CodeToRun) -> ApprovalAnswer:
        """Return what an answer decides; one that was never given decides against."""
        match answer.outcome:
            case "approved":
                return ApprovalAnswer(True)
            case "always":
                self.allow_kind(wanted.kind)
                return ApprovalAnswer(True, allows_kind=True)
            case "pattern":
                pattern = answer.text.strip() or propose_pattern(wanted)
                self.allow_pattern(pattern)
                return ApprovalAnswer(True, pattern=pattern)
            case "edited":
                return ApprovalAnswer(True, code=answer.text)
            case "refused" if answer.is_by_rules:
                return _DENIED
            case "refused":
                words = f" The user said: {answer.text.strip()}" if answer.text.strip() else ""
                return ApprovalAnswer(False, reason=f"The user refused to run this code.{words}")
            case _:
                reason = answer.text or "Nobody has decided about this code."
                return ApprovalAnswer(False, reason=reason)

    def _change(self, change: Callable[[ApprovalRules], ApprovalRules]) -> None:
        with self._lock:
            before, self._rules = self._rules, change(self._rules)
            has_changed = self._rules != before
            asked = self._asked
        if not has_changed:
            return
        self.on_change()
        if asked is not None and self.questions is not None:
            execution_id, wanted, can_run = asked
            if answer := self._settled_answer(wanted, can_run=can_run):
                self.questions.settle(execution_id, answer)

    def _settled_answer(self, wanted: CodeToRun, *, can_run: bool) -> Answer | None:
        """Return what the rules of this moment say, where they leave nothing to be asked."""
        settled = _settled_by(self.rules, wanted, can_run=can_run)
        if settled is None:
            return None
        return Answer("approved" if settled.is_approved else "refused", is_by_rules=True)


def _settled_by(rules: ApprovalRules, wanted: CodeToRun, *, can_run: bool) -> ApprovalAnswer | None:
    """Return what rules alone decide; None where a person has to."""
    policy = rules.policy_on(wanted)
    if policy == "refused":
        return _DENIED
    return ApprovalAnswer(True) if policy == "runs" and can_run else None


def _question_about(
    wanted: CodeToRun,
    execution_id: ExecutionId,
    reasons: Sequence[str],
    block: int | None,
    *,
    can_run: bool,
) -> QuestionExtra:
    """Return what a person is asked about code."""
    what = "this code" if block is None else f"block {block}"
    question = new_question("approval", f"Run {what} ({wanted.language})?", execution_id)
    question["language"], question["code"] = wanted.language, wanted.code
    question["reasons"] = list(reasons)
    question["choices"] = list(_CHOICES if can_run else _CHOICES_FOR_A_FAULTY_EDIT)
    if block is not None:
        question["block"] = block
    if can_run:
        question["always"] = sentence_of_always(wanted.kind)
        if pattern := propose_pattern(wanted):
            question["pattern"] = pattern
            question["choices"] = [*_CHOICES, "pattern"]
    return question


def _request_of(question: QuestionExtra) -> ApprovalRequest:
    return ApprovalRequest(
        question_id=question["question_id"],
        language=question.get("language", ""),
        code=question.get("code", ""),
        reasons=tuple(question.get("reasons", ())),
        choices=tuple(question.get("choices", ())),
        always=question.get("always", ""),
        pattern=question.get("pattern", ""),
        block=question.get("block"),
    )


def _problem_with(answer: Answer, wanted: CodeToRun) -> str:
    """Say why an answer makes no sense; nothing if it does."""
    if answer.outcome == "edited" and not answer.text.strip():
        return "An edit needs the code that is to run instead. To run nothing, answer 'refused'."
    pattern = answer.text.strip()
    if answer.outcome == "pattern" and pattern and not covers(pattern, wanted.code):
        return f"The pattern {pattern!r} does not allow this command, so it would not help here."
    return ""


def _with(known: tuple[str, ...], one: str) -> tuple[str, ...]:
    return known if one in known else (*known, one)


def _call(ask: Ask, request: ApprovalRequest, failures: list[TaskWeaverError]) -> Answer:
    """Ask the frontend, and say what it decided in the words of questions.

    Args:
        failures: Where an error of ours goes that ends the round.
    """
    try:
        decided = ask(request)
    except TaskWeaverError as error:
        failures.append(error)
        return CANCELLED
    except Exception:  # a frontend that fails must not run the code
        _logger.exception("Asking for approval failed; the code is not run.")
        return Answer("cancelled", "Asking for approval failed.")
    if not decided.is_approved:
        return Answer("refused", decided.reason)
    if decided.code is not None and decided.code != request.code:
        if not decided.code.strip():
            return Answer("refused")
        return Answer("edited", decided.code)
    if decided.pattern:
        return Answer("pattern", decided.pattern)
    return Answer("always" if decided.allows_kind else "approved")
