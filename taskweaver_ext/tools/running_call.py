"""One call of the Python tool while it runs: its cells, one after another, until one fails."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.executor import RunOptions, new_execution_id
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.client.execution import END_OF_INPUT
from taskweaver_ext.tools.cell_record import CellRecord
from taskweaver_ext.tools.python_call import (
    STDIN_REFUSED,
    Cell,
    CellResult,
    PythonCall,
    exit_code_of,
    never_run,
    outcome_of,
)

OnCellEvent: TypeAlias = Callable[[int, ExecutionEvent], None]
"""Told the number of the cell, from 1, and what happened."""

MAX_TEXT_BYTES = 51_200
"""How much a model is told of one call, shared by its cells."""
_MIN_TEXT_BYTES = 2048
_LEAST_SECONDS = 0.05


class RunningCall:
    """A call that may be stopped at any moment, also before its kernel is there.

    Threads:
        `stop` may be called from any thread, the rest by the caller's.
    """

    def __init__(
        self,
        call: PythonCall,
        environment: Environment,
        *,
        outputs: Path,
        timeout: float | None,
        on_event: OnCellEvent | None,
        on_begin: Callable[[ExecutionId, Cell], None],
    ) -> None:
        """Prepare a call.

        Args:
            on_begin: Called with each cell before it runs.
        """
        self._call = call
        self._environment = environment
        self._outputs = outputs
        self._timeout = timeout
        self._on_event = on_event
        self._on_begin = on_begin
        self._token = CancellationToken()
        """Of the cell that runs, and then of the next."""

    def stop(self, kill_after: float | None) -> None:
        """Interrupt the cell that runs, and begin none after it."""
        self._token.cancel(kill_after)

    def run_cells(self, kernel_session: str) -> list[CellResult]:
        """Run the cells in order, until one fails or the call is stopped."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        call_id = f"cell-{uuid.uuid4().hex[:12]}"
        results: list[CellResult] = []
        for number, cell in enumerate(self._call.cells, start=1):
            if self._token.is_cancelled:
                results.append(never_run(number, cell))
            else:
                execution_id = new_execution_id(f"{call_id}-{number}")
                self._on_begin(execution_id, cell)
                results.append(self._run_cell(kernel_session, number, cell, execution_id, deadline))
            if not results[-1].is_success:
                break
        return results

    def _run_cell(
        self,
        kernel_session: str,
        number: int,
        cell: Cell,
        execution_id: ExecutionId,
        deadline: float | None,
    ) -> CellResult:
        max_text_bytes = max(_MIN_TEXT_BYTES, MAX_TEXT_BYTES // len(self._call.cells))
        record = CellRecord(self._outputs, execution_id, max_text_bytes)
        run = _CellRun(number, cell, record, self._on_event)
        try:
            options = RunOptions(
                execution_id=execution_id,
                on_event=run.receive,
                on_input=run.refuse_input,
                timeout=_seconds_left(deadline),
                token=self._token,
            )
            result = self._environment.run(kernel_session, cell.code, options)
            return run.finish(result, self._timeout)
        finally:
            record.close()


class _CellRun:
    """One cell while it runs."""

    def __init__(
        self, number: int, cell: Cell, record: CellRecord, on_event: OnCellEvent | None
    ) -> None:
        self._number = number
        self._cell = cell
        self._record = record
        self._on_event = on_event
        self._stdin_requested = False

    def receive(self, event: ExecutionEvent) -> None:
        """Record an event, then pass it on."""
        self._record.receive(event)
        if self._on_event is not None:
            self._on_event(self._number, event)

    def refuse_input(self, _prompt: str, _password: bool) -> str:
        """Answer a question with the end of the input, and remember that there was one."""
        self._stdin_requested = True
        return END_OF_INPUT

    def finish(self, result: ExecutionResult, timeout: float | None) -> CellResult:
        """What became of it."""
        if any(notice.kind == "display_skipped" for notice in result.notices):
            self._record.rewrite_from(result)
        if result.status is ExecutionStatus.ERROR:
            self._record.add_line(result.error or "")
        if self._stdin_requested:
            self._record.add_line(STDIN_REFUSED)
        output, outputs, artifact = self._record.finish()
        exit_code = exit_code_of(result, stdin_requested=self._stdin_requested)
        return CellResult(
            number=self._number,
            title=self._cell.title,
            status=result.status,
            exit_code=exit_code,
            output=output,
            outcome=outcome_of(result, exit_code, timeout),
            outputs=outputs,
            artifact=artifact,
            files=tuple(artifact.file_name for artifact in result.artifact if artifact.file_name),
            stdin_requested=self._stdin_requested,
            duration_seconds=result.duration_seconds,
            usage=result.usage,
            notices=tuple(result.notices),
        )


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(_LEAST_SECONDS, deadline - time.monotonic())
