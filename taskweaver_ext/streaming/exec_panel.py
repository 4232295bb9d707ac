"""Tell the execution panel of every frontend what is being written and run, as `code_exec.*`.

- `status`: `gen`, then `exec`, then `done` or `error`; each once, in this order,
  with timings. What fails before it runs goes from `gen` to `error`.
- `program.name` and `objective`: once.
- `code`: in pieces as they arrive; a last, empty piece is `completed`. A piece with the
  index 0 begins the code: what was shown before it counts no more, because the model
  gave other code instead, or a person has edited it.
- `contract`: once, when files are promised.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.execution.contract import ExecutionFailure, PromisedFile
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.events.extras import CodeExecExtra

Status: TypeAlias = Literal["gen", "exec", "done", "error"]
PanelPart: TypeAlias = Literal[
    "code_exec.objective",
    "code_exec.program.name",
    "code_exec.code",
    "code_exec.contract",
    "code_exec.status",
]

_TITLES: dict[PanelPart, str] = {
    "code_exec.objective": "Objective",
    "code_exec.program.name": "Program Name",
    "code_exec.code": "Generated Code",
    "code_exec.contract": "Execution Contract",
    "code_exec.status": "Execution Status",
}


class ExecPanel:
    """Follow one execution from its first word to its end; silent until something is said.

    Threads:
        One at a time: the one that reads the reply, then the one that runs the code.
    """

    def __init__(
        self,
        execution_id: ExecutionId,
        emit: Callable[[str, CodeExecExtra], None],
        clock: Callable[[], float],
        *,
        language: str = "python",
        agent: str = "",
    ) -> None:
        """Prepare for one execution.

        Args:
            emit: Passes an event on: its text and what belongs to it.
            clock: Seconds, from any beginning, never going back.
            agent: The role that writes the code; it is named in every event.
        """
        self.language = language
        """Of the code that is shown from now on."""
        self.contract: tuple[PromisedFile, ...] = ()
        """The files that are promised."""
        self._execution_id = execution_id
        self._emit = emit
        self._clock = clock
        self._agent = agent
        self._status: Status | None = None
        self._timings: dict[str, int | None] = {"codegen": None, "exec": None}
        self._stage_began = 0.0
        self._is_generation_over = False
        self._said: Counter[PanelPart] = Counter()
        self._code: list[str] = []

    @property
    def status(self) -> Status | None:
        """What was said last about the state; None as long as nothing was."""
        return self._status

    @property
    def code(self) -> str:
        """The code that is shown: this, and nothing else, is what may run."""
        return "".join(self._code)

    @property
    def is_generation_over(self) -> bool:
        """Whether the code is complete, or will never be."""
        return self._is_generation_over

    def begin(self) -> None:
        """Say `gen`, unless it was said."""
        if self._status is None:
            self._enter("gen")

    def say(
        self, part: Literal["code_exec.objective", "code_exec.program.name"], text: str
    ) -> None:
        """Say what the program is for, or how it is called; only the first time counts."""
        if text and not self._said[part]:
            self.begin()
            self._send(part, text)

    def add_code(self, text: str) -> None:
        """Show the next piece of the code."""
        if text:
            self.begin()
            self._code.append(text)
            self._send("code_exec.code", text)

    def restart_code(self) -> None:
        """Take back the code that was shown; other code follows, or none."""
        if self._code:
            self._code.clear()
            self._said["code_exec.code"] = 0
            self._send("code_exec.code")

    def replace_code(self, code: str) -> None:
        """Show other code, which is complete, in the place of what is shown."""
        self._code.clear()
        self._said["code_exec.code"] = 0
        self.add_code(code)
        self._send("code_exec.code", completed=True)

    def promise(self, contract: tuple[PromisedFile, ...]) -> None:
        """Say which files the code will make."""
        self.contract = contract
        if contract and not self._said["code_exec.contract"]:
            self.begin()
            payload = _contract_payload(self._execution_id, contract)
            self._send("code_exec.contract", payload=payload)

    def finish_generation(
        self, failure: ExecutionFailure | None = None, *, completed: bool = True
    ) -> None:
        """Say that no more code comes.

        Args:
            failure: Why it will not run, if something stands against it.
            completed: Whether it is all there.
        """
        if self._is_generation_over:
            return
        self._is_generation_over = True
        if self._status is None:
            return
        if completed:
            self._send("code_exec.code", completed=True)
        self._timings["codegen"] = self._milliseconds_in_stage()
        if failure is not None:
            self._enter("error", failure)

    def start_execution(self) -> None:
        """Say that the code runs now."""
        self.finish_generation()
        if self._status == "gen":
            self._enter("exec")

    def finish_execution(self, failure: ExecutionFailure | None = None) -> None:
        """Say that the code ran to its end, or failed, or was not allowed to run."""
        if failure is None:
            self.start_execution()
        else:
            self.finish_generation()
        if self._status == "exec":
            self._timings["exec"] = self._milliseconds_in_stage()
        if self._status in ("gen", "exec"):
            self._enter("done" if failure is None else "error", failure)

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
        part: PanelPart,
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
            extra["language"] = self.language
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
