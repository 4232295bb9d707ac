"""What a session's Python kernel knows and does, for frontends that never touch a kernel."""

from __future__ import annotations

from collections.abc import Callable

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.looks import Completions, Inspection, KernelPeek
from taskweaver_ext.ces.sessions.kernel_looks import LOOK_SECONDS
from taskweaver_ext.errors import SessionError

_NOT_STARTED = "The kernel is not ready yet; ask again."


class SessionKernel:
    """Looks into the kernel of a session, also while it runs code.

    Threads:
        Any thread may call any method; none waits for code that runs.
    """

    def __init__(
        self, environment: Environment, session_id: str, start_meanwhile: Callable[[], None]
    ) -> None:
        """Belong to a session.

        Args:
            start_meanwhile: Begins to start the kernel, unless it runs, and returns at once.
        """
        self._environment = environment
        self._session_id = session_id
        self._start_meanwhile = start_meanwhile

    def complete(
        self, code: str, cursor: int | None = None, *, timeout: float = LOOK_SECONDS
    ) -> Completions:
        """What fits at a place in code, by default its end; a kernel that is not there is started.

        Raises:
            TypeError, ValueError: The code is no text, or the cursor no place in it.
        """
        self._start_meanwhile()
        try:
            return self._environment.complete(self._session_id, code, cursor, timeout=timeout)
        except SessionError:  # it is about to be started, or has been stopped
            return Completions(status="starting", detail=_NOT_STARTED)

    def inspect(
        self,
        code: str,
        cursor: int | None = None,
        detail: int = 0,
        *,
        timeout: float = LOOK_SECONDS,
    ) -> Inspection:
        """What the name at a place in code is; with `detail=1`, its source as well.

        Raises:
            TypeError, ValueError: The code is no text, or the cursor no place in it.
        """
        self._start_meanwhile()
        try:
            return self._environment.inspect(
                self._session_id, code, cursor, detail, timeout=timeout
            )
        except SessionError:
            return Inspection(status="starting", detail=_NOT_STARTED)

    def peek(self, *, timeout: float = LOOK_SECONDS) -> KernelPeek:
        """The variables, the line that runs and the memory of the kernel at this moment."""
        try:
            return self._environment.peek(self._session_id, timeout=timeout)
        except SessionError:
            detail = "No Python code has run in this session yet."
            return KernelPeek(state="put_away", status="no_kernel", detail=detail)
