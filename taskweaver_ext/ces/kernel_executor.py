"""KernelExecutor: the Python kernel of a session, used as shells and programs are."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import deque
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.recorded_run import OnEvent, OnOutput
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.client.execution import END_OF_INPUT, OnInput
from taskweaver_ext.ces.programs.exec_errors import exec_error
from taskweaver_ext.ces.sessions.kernel_session import INTERRUPTED_EARLY
from taskweaver_ext.errors import KernelDiedError, KernelStartError, SessionError

_NAME = "kernel:python"
"""What it is called in the audit log."""


class SessionUse:
    """A session that is started by its first use if it has not been before; then `close` stops it.

    Threads:
        Any thread may call any method; `_lock` is held while the session begins to start, so
        that there is one for whoever comes second.
    """

    def __init__(self, environment: Environment, session_id: str, cwd: str | Path | None) -> None:
        self.environment = environment
        self.session_id = session_id
        self._cwd = cwd
        self._lock = threading.Lock()
        self._is_checked = False
        self._has_started_session = False
        self._is_closed = False

    def ensure(self) -> None:
        """Begin to start the session if need be; its first execution waits for the kernel."""
        with self._lock:
            if self._is_closed:
                raise SessionError("This executor has been closed. Make another one.")
            if self._is_checked:
                return
            if not self.environment.has_session(self.session_id):
                # Not waiting here: an execution that waits can be interrupted.
                self.environment.start_session(self.session_id, cwd=self._cwd, wait=False)
                self._has_started_session = True
            self._is_checked = True

    def close(self) -> None:
        """Stop the session if it was started here."""
        with self._lock:
            self._is_closed = True
            has_started, self._has_started_session = self._has_started_session, False
        if has_started:
            with contextlib.suppress(SessionError):  # somebody stopped it already
                self.environment.stop_session(self.session_id)


class KernelExecutor:
    """The Python kernel of a session, as an executor."""

    def __init__(self, session: SessionUse, audit: AuditLog) -> None:
        self._session = session
        self._environment = session.environment
        self._session_id = session.session_id
        self._audit = audit
        self._is_interrupted = False
        """Whether somebody interrupted when there was no session yet."""
        self._is_closed = False

    def execute(
        self,
        code: str,
        *,
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        execution_id: str | None = None,
        on_input: OnInput | None = None,
    ) -> ExecutionResult:
        """Run code on the kernel; `on_input`, or else lines of `stdin`, answer `input()`."""
        self._is_interrupted = False
        run_id = execution_id or f"exec-{uuid.uuid4().hex[:12]}"
        result = ExecutionResult(execution_id=ExecutionId(run_id), code=code)
        failure = self._audit.write_start(
            run_id, executor=_NAME, code=code, has_stdin=stdin is not None
        )
        try:
            if self._is_closed:
                raise SessionError("This executor has been closed. Make another one.")
            self._session.ensure()
            if self._is_interrupted:
                result.status = ExecutionStatus.CANCELLED
                result.error = INTERRUPTED_EARLY
            else:
                result = self._environment.execute_code(
                    self._session_id,
                    code,
                    run_id,
                    on_output=on_output,
                    on_event=on_event,
                    on_input=on_input or _answer_from(stdin),
                    timeout=timeout,
                )
        except KernelStartError as error:
            result.status = ExecutionStatus.ERROR
            result.error = exec_error(str(error), "KERNEL_START")
        except KernelDiedError as error:
            result.status = ExecutionStatus.DIED
            result.error = exec_error(str(error), "KERNEL_DIED")
        finally:
            failure = self._audit.write_end(result, executor=_NAME) or failure
        if failure is not None:
            result.notices.append(failure)
        return result

    def interrupt(self, *, kill: bool = False) -> None:
        """Interrupt what runs; with `kill`, its variables are lost."""
        try:
            self._environment.interrupt(self._session_id, kill_after=0.0 if kill else None)
        except SessionError:  # it has not been started yet, or is stopped
            self._is_interrupted = True

    def close(self) -> None:
        """Run nothing more; the session is its owner's to stop."""
        self._is_closed = True


def _answer_from(stdin: str | bytes | None) -> OnInput | None:
    """A function that answers questions with lines that are known beforehand."""
    if stdin is None:
        return None
    text = stdin.decode("utf-8", "replace") if isinstance(stdin, bytes) else stdin
    lines = deque(text.splitlines())

    def answer(_prompt: str, _password: bool) -> str:
        return lines.popleft() if lines else END_OF_INPUT

    return answer
