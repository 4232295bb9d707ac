"""Follow a model's decision and its code, and tell the execution panel about them.

The widget listens to a decision (JSON: which tool, the program's name, the objective,
the contract) and to its code, without a fence around it, and says what
`streaming.exec_panel` describes; the name and the objective as soon as they are complete, the
contract when the decision is.

Nothing is said before the decision names our tool; what came earlier waits
and is said then. When it names another tool, the widget stays silent. Where the
code is a string inside the decision (`DecisionPaths.code`), that string is
streamed instead of a channel. The work is linear, and what waits is bounded.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Literal, TypeAlias

from taskweaver_ext.ces.execution.contract import (
    ContractProblem,
    ExecutionFailure,
    PromisedFile,
    parse_contract,
)
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.events.extras import CodeExecExtra
from taskweaver_ext.streaming.code_cleaning import FenceStripper
from taskweaver_ext.streaming.decision import CHANNEL_DECISION, DecisionPaths, DecisionReader
from taskweaver_ext.streaming.exec_panel import ExecPanel, Status

PYTHON_TOOL_ID = "exec_tools.execute_code_python"
MAX_WAITING_LENGTH = 1_000_000

_Value: TypeAlias = Literal["code_exec.objective", "code_exec.program.name"]


class ExecWidget:
    """Follow one execution from the first word of its decision to its end.

    Threads:
        One at a time: the one that reads the reply, then the one that runs the code.
    """

    def __init__(
        self,
        execution_id: ExecutionId,
        emit: Callable[[str, CodeExecExtra], None],
        clock: Callable[[], float],
        *,
        tool_id: str | None = PYTHON_TOOL_ID,
        paths: DecisionPaths = CHANNEL_DECISION,
        requires_contract: bool = True,
        language: str = "python",
        agent: str = "",
    ) -> None:
        """Prepare for one execution.

        Args:
            emit: Passes an event on: its text and what belongs to it.
            clock: Seconds, from any beginning, never going back.
            tool_id: The tool that the code must be for; None: any code is meant.
            requires_contract: Whether code without a contract fails.
            agent: The role that writes the code; it is named in every event.
        """
        self._panel = ExecPanel(execution_id, emit, clock, language=language, agent=agent)
        self._tool_id = tool_id
        self._requires_contract = requires_contract and bool(paths.contract)
        self._decision = DecisionReader(paths)
        self._fence = FenceStripper()
        self._is_ours: bool | None = None if tool_id else True
        self._waiting_values: list[tuple[_Value, str]] = []
        self._waiting_code = io.StringIO()
        self._waiting_length = 0
        self._has_code = False
        self._has_contract = False
        self._failure: ExecutionFailure | None = None

    @property
    def status(self) -> Status | None:
        """What was said last about the state; None as long as nothing was."""
        return self._panel.status

    @property
    def contract(self) -> tuple[PromisedFile, ...]:
        """The files that the decision promises."""
        return self._panel.contract

    def feed_decision(self, text: str) -> None:
        """Take the next piece of the decision; what stands before its `{` is skipped."""
        if self._panel.is_generation_over or self._is_ours is False:
            return
        was_over = self._decision.is_over
        for part, value in self._decision.feed(text):
            if part == "tool_id":
                self._identify(value)
            elif part == "code_exec.code":
                self._add_code(value)
            else:
                self._say(part, value)
        if self._decision.is_over and not was_over:
            self.decision_finished()

    def decision_finished(self) -> None:
        """Take note that the decision is complete."""
        self._decision.finish()
        if self._is_ours is None and self._decision.has_begun:
            self._is_ours = False
        if self._is_ours and not self._has_contract and self._failure is None:
            self._read_contract()

    def feed_code(self, text: str) -> None:
        """Take the next piece of the code channel."""
        if not self._panel.is_generation_over:
            self._add_code(self._fence.feed(text))

    def generation_finished(self) -> ExecutionFailure | None:
        """Complete the code, and return what stands against running it, if anything does."""
        if not self._panel.is_generation_over:
            self.decision_finished()
            self._add_code(self._fence.close())
            if self.status is not None and not self._has_code:
                self._fail("missing_code", "The reply contains no code.", "code_generation")
            self._end_generation(self._failure, completed=True)
        return self._failure

    def stream_broken(self, reason: str) -> None:
        """Take note that the reply broke off: its code is incomplete and will not run."""
        if not self._panel.is_generation_over:
            self._add_code(self._fence.close())
            failure = ExecutionFailure(
                code="stream_broken", message=reason, where="code_generation"
            )
            self._end_generation(failure, completed=False)

    def execution_started(self) -> None:
        """Take note that the code runs now."""
        self.generation_finished()
        self._panel.start_execution()

    def execution_finished(self, failure: ExecutionFailure | None = None) -> None:
        """Take note that the code ran to its end, or failed, or was not allowed to run."""
        self.generation_finished()
        self._panel.finish_execution(failure)

    def _identify(self, tool_id: str) -> None:
        if self._is_ours is None:
            self._is_ours = tool_id == self._tool_id
            if self._is_ours:
                self._panel.begin()
                for part, text in self._waiting_values:
                    self._say(part, text)
                self._add_code(self._waiting_code.getvalue())
            self._waiting_values.clear()
            self._waiting_code = io.StringIO()

    def _say(self, part: _Value, text: str) -> None:
        """Say a value, or keep it until it is known which tool it is for."""
        if self._is_ours:
            self._panel.say(part, text)
        elif self._has_room_for(text):
            self._waiting_values.append((part, text))

    def _add_code(self, text: str) -> None:
        """Show code, or keep it until it is known which tool it is for."""
        if self._is_ours:
            self._has_code = self._has_code or not (not text or text.isspace())
            self._panel.add_code(text)
        elif self._has_room_for(text):
            self._waiting_code.write(text)

    def _has_room_for(self, text: str) -> bool:
        """Whether a text can wait; nothing waits once the tool is another one."""
        if self._is_ours is False:
            return False
        self._waiting_length += len(text)
        if self._waiting_length > MAX_WAITING_LENGTH:
            self._fail("decision_too_late", "Too much code came before its tool.", "decision")
        return self._waiting_length <= MAX_WAITING_LENGTH

    def _read_contract(self) -> None:
        contract = self._decision.problem or parse_contract(self._decision.contract())
        if isinstance(contract, ExecutionFailure):
            self._failure = contract
        elif not isinstance(contract, ContractProblem):
            self._has_contract = True
            self._panel.promise(contract)
        elif contract.code != "missing_artifacts" or self._requires_contract:
            self._fail(contract.code, contract.message, "contract")

    def _fail(self, code: str, message: str, where: str) -> None:
        """Keep the first thing that stands against running the code."""
        if self._failure is None:
            self._failure = ExecutionFailure(code=code, message=message, where=where)

    def _end_generation(self, failure: ExecutionFailure | None, *, completed: bool) -> None:
        is_silent = self.status is None  # not ours: nothing was said, nothing stands against it
        self._failure = None if is_silent else failure
        self._panel.finish_generation(failure, completed=completed)
