"""Look into a session's kernel past its turns: what it knows and does, also while it is busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from taskweaver_ext.ces.execution.looks import Completions, Inspection, KernelPeek
from taskweaver_ext.ces.kernels.client.looks import (
    Answer,
    LookFailedError,
    read_completions,
    read_inspection,
    read_peek,
)
from taskweaver_ext.ces.sessions.current_kernel import CurrentKernel
from taskweaver_ext.ces.sessions.session_info import SessionInfo
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.redaction import Redactor

LOOK_SECONDS = 2.0
"""How long a kernel may take to answer; one that runs Python code needs a hundredth of it."""

MAX_CODE_CHARACTERS = 1_000_000


class KernelLooks:
    """Ask whatever kernel a session has now.

    Threads:
        Any thread may call any method; nothing is kept.
    """

    def __init__(
        self,
        kernel: CurrentKernel,
        describe: Callable[[], SessionInfo],
        start_kernel: Callable[[], None],
        *,
        redactor: Redactor | None,
    ) -> None:
        """Look into a session's kernels.

        Args:
            start_kernel: Begins to start a kernel if there is none, without waiting for it.
            redactor: Masks secrets in what is seen.
        """
        self._kernel = kernel
        self._describe = describe
        self._start_kernel = start_kernel
        self._redactor = redactor

    def complete(self, code: str, cursor: int, seconds: float) -> Completions:
        """What fits at a place in code."""
        try:
            arguments = {"code": code, "cursor": cursor, "cwd": self._kernel.cwd_to_enter}
            answer = self._ask("complete", arguments, seconds)
            return read_completions(answer, code)
        except LookFailedError as failure:
            status, detail = failure.status, failure.detail
        except ProtocolError as error:
            status, detail = "failed", str(error)
        return Completions(start=cursor, end=cursor, status=status, detail=detail)

    def inspect(self, code: str, cursor: int, detail: int, seconds: float) -> Inspection:
        """What the name at a place in code is."""
        arguments = {"code": code, "cursor": cursor, "detail": detail}
        try:
            return read_inspection(self._ask("inspect", arguments, seconds))
        except LookFailedError as failure:
            return Inspection(status=failure.status, detail=failure.detail)
        except ProtocolError as error:
            return Inspection(status="failed", detail=str(error))

    def peek(self, seconds: float) -> KernelPeek:
        """What is there and runs; of a kernel that does not answer, what is known outside."""
        session = self._describe()
        try:
            answer = self._ask("peek", {"seconds": seconds / 2}, seconds, starts_kernel=False)
            return read_peek(answer, session.state)
        except LookFailedError as failure:
            status, detail = failure.status, failure.detail
        except ProtocolError as error:
            status, detail = "failed", str(error)
        return KernelPeek(
            state=session.state,
            running=self._kernel.running,
            memory_bytes=session.memory_bytes,
            status=status,
            detail=detail,
        )

    def _ask(
        self, what: str, arguments: dict[str, Any], seconds: float, *, starts_kernel: bool = True
    ) -> Answer:
        """Return what the kernel answers, masked; raises LookFailedError."""
        deadline = time.monotonic() + seconds
        reader = self._kernel.wait_until_alive(0.0)
        if reader is None and starts_kernel:
            self._start_kernel()
            reader = self._kernel.wait_until_alive(seconds)
        if reader is None:
            raise self._nobody(starts_kernel=starts_kernel)
        answer = reader.look(what, arguments, max(0.0, deadline - time.monotonic()))
        return answer if self._redactor is None else self._redactor.redact_json(answer)

    def _nobody(self, *, starts_kernel: bool) -> LookFailedError:
        if self._kernel.is_closed:
            return LookFailedError("no_kernel", "The session has been stopped.")
        if starts_kernel or self._describe().state == "starting":
            return LookFailedError("starting", "The kernel is not ready yet; ask again.")
        return LookFailedError("no_kernel", "There is no kernel; the next execution starts one.")


def cursor_in(code: object, cursor: int | None) -> int:
    """Return the place in code that is meant, by default its end; raises TypeError, ValueError."""
    if not isinstance(code, str):
        raise TypeError(f"Code is a text, not {type(code).__name__}.")
    if len(code) > MAX_CODE_CHARACTERS:
        raise ValueError(f"Code of more than {MAX_CODE_CHARACTERS:,} characters is not looked at.")
    if cursor is None:
        return len(code)
    if not 0 <= cursor <= len(code):
        raise ValueError(f"The cursor is a place in the code, 0 to {len(code)}, not {cursor!r}.")
    return cursor
