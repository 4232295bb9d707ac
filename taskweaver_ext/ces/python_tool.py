"""PythonTool: Python cells for agents, on kernels that stay."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from taskweaver_ext.ces.cell_record import CellRecord
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.events import ExecutionEvent
from taskweaver_ext.ces.kernels.execution import END_OF_INPUT
from taskweaver_ext.ces.owned_folders import GivenFolder
from taskweaver_ext.ces.python_call import (
    SCHEMA,
    STDIN_REFUSED,
    Cell,
    CellResult,
    PythonCall,
    PythonCallResult,
    clamp_timeout,
    exit_code_of,
    outcome_of,
    parse_call,
    text_of,
)
from taskweaver_ext.ces.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.startup_scripts import module_folders
from taskweaver_ext.errors import KernelDiedError, KernelError, SessionError
from taskweaver_ext.text.truncation import DEFAULT_MAX_BYTES

KernelLifetime: TypeAlias = Literal["session", "call"]
OnCellEvent: TypeAlias = Callable[[int, ExecutionEvent], None]
"""Told the number of the cell, from 1, and what happened."""

MAX_KERNELS = 4
IDLE_SECONDS = 300.0
MAX_DEATHS_IN_A_ROW = 2
"""A kernel that died is started again by itself once; a second death is for somebody to look at."""

_MIN_TEXT_BYTES = 2048
_LEAST_SECONDS = 0.05
_ARTIFACT = re.compile(r"(?:artifact://)?([A-Za-z0-9-]{1,64})")


class PythonTool:
    """Run cells as an agent asks for them.

    A session has a kernel for each folder it works in. Calls of one session
    wait for each other, in the order they came; sessions are independent.
    Use it as a context manager, or call `close`.

    Threads:
        Any thread may call any method; `_lock` guards the tables.
    """

    schema: Mapping[str, Any] = SCHEMA
    """The tool as models are told of it: name, description and parameters."""

    def __init__(
        self,
        environment: Environment | None = None,
        *,
        folder: str | Path | None = None,
        cwd: str | Path | None = None,
        kernel_lifetime: KernelLifetime = "session",
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        prelude: str | None = None,
        modules: Sequence[str | Path] | None = None,
        max_kernels: int | None = MAX_KERNELS,
        idle_seconds: float | None = IDLE_SECONDS,
        max_timeout: float = 0.0,
    ) -> None:
        """Settings of all calls.

        Args:
            environment: Has the kernels; by default one of the tool's own, made with `python`,
                `env`, `prelude`, `modules`, `max_kernels` and `idle_seconds`.
            folder: Where long outputs and session folders are kept; by default in one that
                `close` removes.
            cwd: Where code runs if a call says nothing else; by default the current folder.
            modules: As for `Environment`; by default `~/.taskweaver/modules`, then `modules` in the
                project that `cwd` is in.
            kernel_lifetime: "session", or "call" for a fresh kernel each time.
            max_timeout: Seconds that no call may exceed, whatever it asks for; 0: no such limit.
        """
        self._given_folder = GivenFolder(folder)
        self._folder = self._given_folder.path
        self._cwd = Path(cwd).absolute() if cwd is not None else Path.cwd()
        self._lifetime = kernel_lifetime
        self._max_timeout = max_timeout
        self._owns_environment = environment is None
        self._environment = environment or Environment(
            self._folder,
            python=python,
            env=env,
            prelude=prelude,
            modules=module_folders(self._cwd) if modules is None else modules,
            max_kernels=max_kernels,
            idle_seconds=idle_seconds,
            max_deaths_in_a_row=MAX_DEATHS_IN_A_ROW,
        )
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._started: dict[str, set[str]] = {}
        """By session: the kernel sessions that were started for it."""
        self._running: dict[str, str] = {}
        """By session: the kernel session that is running now."""

    def call(
        self,
        arguments: Mapping[str, Any],
        *,
        session_id: str = "default",
        on_event: OnCellEvent | None = None,
    ) -> PythonCallResult:
        """Run a call as a model wrote it; one that makes no sense is an error the model reads."""
        try:
            call = parse_call(arguments)
        except ValueError as error:
            return PythonCallResult(text=str(error), is_error=True)
        return self._run_call(call, session_id, on_event)

    def run(
        self,
        cells: Sequence[Cell | str],
        *,
        session_id: str = "default",
        timeout: float | None = None,
        cwd: str | Path | None = None,
        reset: bool = False,
        on_event: OnCellEvent | None = None,
    ) -> PythonCallResult:
        """Run cells in order in one kernel, until one fails.

        Args:
            timeout: Seconds for all of them, clamped to 1..600; None: 30, 0: no limit.
            cwd: Where they run, which must exist.
            reset: Start with a fresh kernel.
            on_event: Called on this thread for what each cell does, while it does it.
        """
        call = PythonCall(
            cells=tuple(Cell(code=cell) if isinstance(cell, str) else cell for cell in cells),
            timeout=timeout,
            cwd=None if cwd is None else str(cwd),
            reset=reset,
        )
        return self._run_call(call, session_id, on_event)

    def interrupt(self, session_id: str = "default", kill_after: float | None = None) -> None:
        """Stop what runs in a session, if anything does; from any thread."""
        with self._lock:
            kernel_session = self._running.get(session_id)
        if kernel_session is not None:
            with contextlib.suppress(SessionError):  # it has just ended
                self._environment.interrupt(kernel_session, kill_after)

    def end_session(self, session_id: str) -> None:
        """Stop the kernels of a session."""
        with self._lock:
            kernel_sessions = self._started.pop(session_id, set())
            if session_id not in self._running:
                self._queues.pop(session_id, None)
        for kernel_session in kernel_sessions:
            with contextlib.suppress(SessionError):  # stopped already
                self._environment.stop_session(kernel_session)

    def read_artifact(self, address: str, *, offset: int = 0, max_bytes: int | None = None) -> str:
        """The whole output that a result names as `artifact://<id>`, or a part of it.

        Raises:
            FileNotFoundError: There is no such output.
        """
        found = _ARTIFACT.fullmatch(address)
        path = self._outputs / f"{found[1]}.stdout" if found else None
        if path is None or not path.is_file():
            raise FileNotFoundError(f"There is no output {address!r}.")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if max_bytes is None else max_bytes).decode("utf-8", "replace")

    def close(self) -> None:
        """Stop all kernels of ours and remove what is ours."""
        with self._lock:
            sessions = list(self._started)
        if self._owns_environment:
            self._environment.close()
        else:
            for session_id in sessions:
                self.end_session(session_id)
        self._given_folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _outputs(self) -> Path:
        return self._folder / "outputs"

    def _run_call(
        self, call: PythonCall, session_id: str, on_event: OnCellEvent | None
    ) -> PythonCallResult:
        with self._lock:
            queue = self._queues.setdefault(session_id, _Queue())
        try:
            with queue.turn(), self._kernel_session(session_id, call) as kernel_session:
                cells = self._run_cells(call, kernel_session, on_event)
        except KernelDiedError as error:
            text = f"{error} In a call, reset=true does that."
            return PythonCallResult(text=text, is_error=True)
        except (KernelError, SessionError) as error:
            return PythonCallResult(text=str(error), is_error=True)
        return PythonCallResult(
            text=text_of(cells, len(call.cells)),
            is_error=any(not cell.is_success for cell in cells),
            cells=tuple(cells),
        )

    @contextlib.contextmanager
    def _kernel_session(self, session_id: str, call: PythonCall) -> Iterator[str]:
        """The kernel session for a call: the one of its folder, or a fresh one."""
        # One folder, one kernel, however the path to it was written.
        cwd = Path(os.path.normpath(self._cwd / Path(call.cwd or "").expanduser()))
        key = f"{session_id}-{hashlib.sha256(str(cwd).encode()).hexdigest()[:8]}"
        is_fresh = self._lifetime == "call"
        if is_fresh:
            key += f"-{uuid.uuid4().hex[:8]}"
        with self._lock:
            is_started = key in self._started.setdefault(session_id, set())
        if not is_started:
            self._environment.start_session(key, cwd=cwd)
        elif call.reset:
            self._environment.restart_session(key)
        with self._lock:
            self._started.setdefault(session_id, set()).add(key)
            self._running[session_id] = key
        try:
            yield key
        finally:
            with self._lock:
                self._running.pop(session_id, None)
                if is_fresh:
                    self._started.get(session_id, set()).discard(key)
            if is_fresh:
                with contextlib.suppress(SessionError):  # the session was ended meanwhile
                    self._environment.stop_session(key)

    def _run_cells(
        self, call: PythonCall, kernel_session: str, on_event: OnCellEvent | None
    ) -> list[CellResult]:
        timeout = clamp_timeout(call.timeout, self._max_timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        call_id = f"cell-{uuid.uuid4().hex[:12]}"
        max_text_bytes = max(_MIN_TEXT_BYTES, DEFAULT_MAX_BYTES // max(1, len(call.cells)))
        results: list[CellResult] = []
        for number, cell in enumerate(call.cells, start=1):
            record = CellRecord(self._outputs, f"{call_id}-{number}", max_text_bytes)
            run = _CellRun(number, cell, record, on_event)
            try:
                result = self._environment.execute_code(
                    kernel_session,
                    cell.code,
                    f"{call_id}-{number}",
                    on_event=run.take,
                    on_input=run.refuse_input,
                    timeout=_seconds_left(deadline),
                )
                results.append(run.finish(result, timeout))
            finally:
                record.close()
            if not results[-1].is_success:
                break
        return results


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

    def take(self, event: ExecutionEvent) -> None:
        """Record an event, then pass it on."""
        self._record.take(event)
        if self._on_event is not None:
            self._on_event(self._number, event)

    def refuse_input(self, _prompt: str, _password: bool) -> str:
        """Answer a question with the end of the input, and remember that there was one."""
        self._stdin_requested = True
        return END_OF_INPUT

    def finish(self, result: ExecutionResult, timeout: float | None) -> CellResult:
        """What became of it."""
        if any(notice.kind == "display_skipped" for notice in result.notices):
            self._record.start_again_with(result)
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


class _Queue:
    """Let one thread at a time through, in the order they came."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._holder: int | None = None
        """The thread whose turn it is."""

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for this thread's turn, and have it for as long as the block lasts."""
        if self._holder == threading.get_ident():
            raise SessionError(
                "A call was made from a callback of another call of the same session, which would"
                " wait for itself. Make it afterwards, or in another session."
            )
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting[0] is ticket)
                self._holder = threading.get_ident()
            yield
        finally:
            with self._changed:
                if self._waiting[0] is ticket:
                    self._holder = None
                self._waiting.remove(ticket)
                self._changed.notify_all()


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(_LEAST_SECONDS, deadline - time.monotonic())
