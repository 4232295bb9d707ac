"""What a model's code may do without asking.

Shell commands and programs in other languages cannot be verified, so a person is
asked before they run. Where no person can be asked they do not run. Inside a
container they cannot do harm outside of it, and run.
"""

from __future__ import annotations

import fnmatch
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.config.settings import ApprovalMode
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.events.questions import CANCELLED, Answer, Questions

ApprovalScope: TypeAlias = Literal["shell", "all"]
ShellPolicy: TypeAlias = Literal["runs", "asks", "refused"]
"""What becomes of shell code that a model writes."""

_UNSAFE_IN_PATTERNS = frozenset(";&|`$<>\n()\\")
"""What lets a command that begins like an allowed one do something else as well."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """Code that wants to run."""

    number: int
    """Counts the requests of a session, from 1."""
    language: str
    code: str
    reason: str
    """Why a person has to decide, in one sentence."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """What was decided."""

    is_approved: bool
    code: str | None = None
    """What is to run instead, where the code was edited."""
    reason: str = ""
    """Why not; the model is told."""
    is_final: bool = True
    """Whether a person decided; where none could, another way is worth a try."""


Ask: TypeAlias = Callable[[ApprovalRequest], ApprovalAnswer]
"""Given by a frontend that wants to be called, on a thread of its own; may take its time."""


class Approval:
    """Decide what may run; a frontend changes `mode`, `scope` and `ask` at any time."""

    def __init__(
        self,
        mode: ApprovalMode = "ask",
        *,
        scope: ApprovalScope = "shell",
        always_allowed: Iterable[str] = (),
        ask: Ask | None = None,
    ) -> None:
        """Settings of one session.

        Args:
            mode: Ask, run everything, or run nothing of what is in the scope.
            scope: What has to be approved: what cannot be verified, or all code.
            always_allowed: Commands that run without asking; `*` stands for any text, but a
                command with a pipe, a redirection or a second command in it always asks.
            ask: Asks a person; None where there is none.
        """
        self.mode: ApprovalMode = mode
        self.scope: ApprovalScope = scope
        self.always_allowed = list(always_allowed)
        self.ask = ask
        self.questions: Questions | None = None
        """Puts requests to whatever frontend answers first; set by the session."""
        self._numbers = itertools.count(1)

    def outlook(self, *, is_contained: bool) -> ShellPolicy:
        """Return what becomes of shell code, so that a model need not find out by trying."""
        if self.mode == "auto" or (is_contained and self.scope == "shell" and self.mode != "deny"):
            return "runs"
        return "asks" if self.mode == "ask" and self._can_ask else "refused"

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
        reason: str = "",
        execution_id: ExecutionId | None = None,
    ) -> ApprovalAnswer:
        """Say whether code that a model wrote may run, after asking where that is needed.

        Args:
            is_verified: Whether the code is of the kind that verification can judge.
            is_contained: Whether it runs inside a container.
            reason: Why a person has to decide.
            execution_id: What the execution will be called.
        """
        if is_contained and self.scope == "shell" and self.mode != "deny":
            return ApprovalAnswer(True)
        if not self._needs_approval(language, code, is_verified=is_verified):
            return ApprovalAnswer(True)
        if self.mode == "deny":
            denial = "Such code is denied in this session."
            return ApprovalAnswer(False, reason=denial, is_final=False)
        if not self._can_ask:
            denial = "It needs a person's approval, and nobody can be asked here."
            return ApprovalAnswer(False, reason=denial, is_final=False)
        request = ApprovalRequest(
            number=next(self._numbers), language=language, code=code, reason=reason
        )
        return self._ask_person(request, execution_id or ExecutionId(""))

    def _ask_person(self, request: ApprovalRequest, execution_id: ExecutionId) -> ApprovalAnswer:
        ask = self.ask
        failures: list[TaskWeaverError] = []
        if self.questions is None:
            assert ask is not None
            answer = _call(ask, request, failures)
        else:
            answer = self.questions.ask(
                "approval",
                f"Run this {request.language} code?",
                execution_id,
                None if ask is None else lambda: _call(ask, request, failures),
                language=request.language,
                code=request.code,
                reasons=[request.reason] if request.reason else [],
            )
        if failures:
            raise failures[0]
        return _read(answer)

    def _needs_approval(self, language: str, code: str, *, is_verified: bool) -> bool:
        if self.mode == "auto":
            return False
        if is_verified:
            return self.scope == "all" and not self._is_always_allowed(code)
        return language != "bash" or not self._is_always_allowed(code)

    def _is_always_allowed(self, code: str) -> bool:
        command = code.strip()
        if not command or _UNSAFE_IN_PATTERNS & set(command):
            return command in self.always_allowed
        return any(fnmatch.fnmatchcase(command, pattern) for pattern in self.always_allowed)


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
        return Answer("refused", "Asking for approval failed.")
    if not decided.is_approved:
        return Answer("refused", decided.reason)
    if decided.code is None or decided.code == request.code:
        return Answer("approved")
    if not decided.code.strip():
        return Answer("refused", "All of the code was deleted before it could run.")
    return Answer("edited", decided.code)


def _read(answer: Answer) -> ApprovalAnswer:
    """Return what an answer decides; one that was never given decides against."""
    match answer.outcome:
        case "approved":
            return ApprovalAnswer(True)
        case "edited":
            return ApprovalAnswer(True, code=answer.text)
        case "refused":
            return ApprovalAnswer(False, reason=answer.text)
        case _:
            return ApprovalAnswer(False, reason="Nobody has decided about it.")
