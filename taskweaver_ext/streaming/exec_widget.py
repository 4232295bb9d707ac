"""Tell the execution panel of every frontend what is being written and run.

The widget listens to a model's decision (JSON: which tool, the program's
name, the objective, the contract) and to its code, and says `code_exec.*`:

- `status`: `gen`, then `exec`, then `done` or `error`; each once, in this order,
  with timings. What fails before it runs goes from `gen` to `error`.
- `program.name` and `objective`: once, as soon as they are complete.
- `code`: in pieces as they arrive, without a fence around them; a last, empty
  piece is `completed`.
- `contract`: once, when the decision is complete and promises files.

Nothing is said before the decision names our tool; what came earlier waits
and is said then. When it names another tool, the widget stays silent. Where the
code is a string inside the decision (`DecisionPaths.code`), that string is
streamed instead of a channel. Memory is bounded and the work linear.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.execution.contract import (
    ContractProblem,
    ExecutionFailure,
    PromisedFile,
    parse_contract,
)
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.events.types import CodeExecExtra
from taskweaver_ext.streaming.code_cleaning import FenceStripper
from taskweaver_ext.streaming.decision import CHANNEL_DECISION, DecisionPaths, DecisionReader

PYTHON_TOOL_ID = "exec_tools.execute_code_python"
MAX_WAITING_LENGTH = 1_000_000

Status: TypeAlias = Literal["gen", "exec", "done", "error"]
_SubType: TypeAlias = Literal[
    "code_exec.objective",
    "code_exec.program.name",
    "code_exec.code",
    "code_exec.contract",
    "code_exec.status",
]

_TITLES: dict[_SubType, str] = {
    "code_exec.objective": "Objective",
    "code_exec.program.name": "Program Name",
    "code_exec.code": "Generated Code",
    "code_exec.contract": "Execution Contract",
    "code_exec.status": "Execution Status",
}


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
        self._execution_id = execution_id
        self._emit = emit
        self._clock = clock
        self._tool_id = tool_id
        self._requires_contract = requires_contract and bool(paths.contract)
        self._language = language
        self._agent = agent
        self._decision = DecisionReader(paths)
        self._fence = FenceStripper()
        self._is_ours: bool | None = None if tool_id else True
        self._waiting_values: list[tuple[_SubType, str]] = []
        self._waiting_code = io.StringIO()
        self._waiting_length = 0
        self._status: Status | None = None
        self._timings: dict[str, int | None] = {"codegen": None, "exec": None}
        self._stage_began = 0.0
        self._is_generation_over = False
        self._said: Counter[_SubType] = Counter()
        self._has_code = False
        self._contract: tuple[PromisedFile, ...] | None = None
        self._failure: ExecutionFailure | None = None

    @property
    def status(self) -> Status | None:
        """What was said last about the state; None as long as nothing was."""
        return self._status

    @property
    def contract(self) -> tuple[PromisedFile, ...]:
        """The files that the decision promises."""
        return self._contract or ()

    def feed_decision(self, text: str) -> None:
        """Take the next piece of the decision; what stands before its `{` is skipped."""
        if self._is_generation_over or self._is_ours is False:
            return
        was_over = self._decision.is_over
        for part, value in self._decision.feed(text):
            if part == "tool_id":
                self._identify(value)
            else:
                self._say(part, value)
        if self._decision.is_over and not was_over:
            self.decision_finished()

    def decision_finished(self) -> None:
        """Take note that the decision is complete."""
        self._decision.finish()
        if self._is_ours is None and self._decision.has_begun:
            self._is_ours = False
        if self._is_ours and self._contract is None and self._failure is None:
            self._read_contract()

    def feed_code(self, text: str) -> None:
        """Take the next piece of the code channel."""
        if not self._is_generation_over:
            self._say("code_exec.code", self._fence.feed(text))

    def generation_finished(self) -> ExecutionFailure | None:
        """Complete the code, and return what stands against running it, if anything does."""
        if not self._is_generation_over:
            self.decision_finished()
            self._say("code_exec.code", self._fence.close())
            if self._status is not None and not self._has_code:
                self._fail("missing_code", "The reply contains no code.", "code_generation")
            self._end_generation(self._failure, completed=True)
        return self._failure

    def stream_broken(self, reason: str) -> None:
        """Take note that the reply broke off: its code is incomplete and will not run."""
        if not self._is_generation_over:
            self._say("code_exec.code", self._fence.close())
            failure = ExecutionFailure(
                code="stream_broken", message=reason, where="code_generation"
            )
            self._end_generation(failure, completed=False)

    def execution_started(self) -> None:
        """Take note that the code runs now."""
        self.generation_finished()
        if self._status == "gen":
            self._enter("exec")

    def execution_finished(self, failure: ExecutionFailure | None = None) -> None:
        """Take note that the code ran to its end, or failed, or was not allowed to run."""
        if failure is None:
            self.execution_started()
        else:
            self.generation_finished()
        if self._status == "exec":
            self._timings["exec"] = self._milliseconds_in_stage()
        if self._status in ("gen", "exec"):
            self._enter("done" if failure is None else "error", failure)

    def _identify(self, tool_id: str) -> None:
        if self._is_ours is None:
            self._is_ours = tool_id == self._tool_id
            if self._is_ours:
                self._begin()
                for part, text in self._waiting_values:
                    self._say(part, text)
                self._say("code_exec.code", self._waiting_code.getvalue())
            self._waiting_values.clear()
            self._waiting_code = io.StringIO()

    def _say(self, part: _SubType, text: str) -> None:
        """Send a piece of text, or keep it until it is known which tool it is for."""
        is_code = part == "code_exec.code"
        if not text or self._is_ours is False or (self._said[part] and not is_code):
            return
        if self._is_ours:
            self._begin()
            self._has_code = self._has_code or (is_code and not text.isspace())
            self._send(part, text)
            return
        self._waiting_length += len(text)
        if self._waiting_length > MAX_WAITING_LENGTH:
            self._fail("decision_too_late", "Too much code came before its tool.", "decision")
        elif is_code:
            self._waiting_code.write(text)
        else:
            self._waiting_values.append((part, text))

    def _begin(self) -> None:
        """Say `gen`, unless it was said."""
        if self._status is None:
            self._enter("gen")

    def _read_contract(self) -> None:
        contract = self._decision.problem or parse_contract(self._decision.contract())
        if isinstance(contract, ExecutionFailure):
            self._failure = contract
        elif not isinstance(contract, ContractProblem):
            self._contract = contract
            if contract:
                self._begin()
                payload = _contract_payload(self._execution_id, contract)
                self._send("code_exec.contract", payload=payload)
        elif contract.code != "missing_artifacts" or self._requires_contract:
            self._fail(contract.code, contract.message, "contract")

    def _fail(self, code: str, message: str, where: str) -> None:
        """Keep the first thing that stands against running the code."""
        if self._failure is None:
            self._failure = ExecutionFailure(code=code, message=message, where=where)

    def _end_generation(self, failure: ExecutionFailure | None, *, completed: bool) -> None:
        self._is_generation_over = True
        self._failure = failure
        if self._status is None:
            self._failure = None  # not ours: nothing was said, and nothing stands against it
            return
        if completed:
            self._send("code_exec.code", completed=True)
        self._timings["codegen"] = self._milliseconds_in_stage()
        if failure is not None:
            self._enter("error", failure)

    def _enter(self, status: Status, failure: ExecutionFailure | None = None) -> None:
        self._status = status
        self._stage_began = self._clock()
        payload: dict[str, Any] = {"status": status, "timings": dict(self._timings)}
        if failure is not None:
            payload["error"] = asdict(failure)
        self._send("code_exec.status", payload=payload)

    def _milliseconds_in_stage(self) -> int:
        return round((self._clock() - self._stage_began) * 1000)

    def _send(
        self,
        part: _SubType,
        text: str = "",
        *,
        completed: bool = False,
        payload: dict[str, Any] | None = None,
    ) -> None:
        extra = CodeExecExtra(
            marker="subsystem",
            sub_type=part,
            format="text" if payload is None else "json",
            title=_TITLES[part],
            index=self._said[part] if part == "code_exec.code" else 0,
            completed=completed,
            execution_id=self._execution_id,
        )
        if payload is not None:
            text = json.dumps(payload)
            extra["payload"] = payload
            extra["language"] = "json"
        elif part == "code_exec.code":
            extra["language"] = self._language
        if self._agent:
            extra["agent"] = self._agent
            extra["artifact_name"] = f"{self._agent}.{part.replace('.', '_')}"
        self._said[part] += 1
        self._emit(text, extra)


def _contract_payload(
    execution_id: ExecutionId, contract: tuple[PromisedFile, ...]
) -> dict[str, Any]:
    rows = [
        {
            "artifact_name": file.name,
            "description": file.description,
            "mime": file.mime_type,
            "filename": file.path,
            "visibility": file.visibility,
        }
        for file in contract
    ]
    return {"execution_id": execution_id, "contract": rows}
