"""When a session's kernel is started, replaced and given up, and what that costs its user."""

from __future__ import annotations

import contextlib
import time

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.client.tracing import reached, startup_stages
from taskweaver_ext.ces.sessions.current_kernel import CurrentKernel
from taskweaver_ext.ces.sessions.kernel_pool import KernelNotWantedError, KernelPool, KernelSlot
from taskweaver_ext.ces.sessions.kernel_setup import KernelSetup
from taskweaver_ext.ces.sessions.turns import Place
from taskweaver_ext.errors import KernelDiedError, TaskWeaverError

MAX_DEATHS_IN_A_ROW = 3


_LOST = "variables of earlier executions are lost"
_RESTORED = "of earlier variables, those that were restored are there"


class KernelSupervisor:
    """Start kernels within the pool, each after the last is gone, until they die too often.

    Threads:
        For the thread whose turn it is, except `stop`, which any may call.
    """

    def __init__(
        self,
        session_id: str,
        kernel: CurrentKernel,
        setup: KernelSetup,
        pool: KernelPool,
        slot: KernelSlot,
        max_deaths_in_a_row: int,
        *,
        traces_start: bool,
    ) -> None:
        self._session_id = session_id
        self._kernel = kernel
        self._setup = setup
        self._pool = pool
        self._slot = slot
        self._max_deaths_in_a_row = max_deaths_in_a_row
        self._traces_start = traces_start
        self._failed_start: tuple[float, TaskWeaverError] | None = None
        """When a start that no caller waited for has failed, and why."""
        self._deaths: list[str] = []
        self._no_kernel_because = ""
        self._restarted = ""

    def start(self, token: CancellationToken) -> None:
        """Start a kernel and put into it what every kernel of the session has."""
        is_traced = self._traces_start
        with startup_stages(self._session_id) if is_traced else contextlib.nullcontext():
            try:
                self._pool.start(self._slot, self._kernel.open, token)
                while not self._setup.install():
                    self.stop()
                    self._pool.start(self._slot, self._kernel.open, token)
            except KernelNotWantedError:
                raise  # nothing was tried
            except BaseException as error:
                self.stop()
                why = str(error) or type(error).__name__
                self._no_kernel_because = f"The last start of a kernel failed ({why})"
                raise
            reached("startup scripts and plugins are loaded")

    def start_for_later(self, token: CancellationToken) -> None:
        """Start the first kernel, if there is none; a failure is told to the next that waits."""
        try:
            if not self._kernel.is_there:
                self.start(token)
        except TaskWeaverError as error:
            self._failed_start = (time.monotonic(), error)

    def restart(self, token: CancellationToken) -> None:
        """Replace the kernel, however often it has died."""
        self.stop()
        self._deaths.clear()
        self.start(token)

    def stop(self, because: str = "", *, unless_programs_run: bool = False) -> bool:
        """Stop the kernel, if there is one; return whether there is none now."""
        if not self._kernel.stop(unless_programs_run=unless_programs_run):
            return False
        self._slot.is_taken = False
        if because:
            self._no_kernel_because = because
        return True

    def ensure(self, place: Place) -> None:
        """Start a fresh kernel if the last one is gone; the next execution says what that costs."""
        if self._kernel.works(place.token):
            return
        if len(self._deaths) >= self._max_deaths_in_a_row:
            raise KernelDiedError(
                f"The kernel of session {self._session_id!r} died {len(self._deaths)} times in a"
                f" row ({'; '.join(self._deaths)}). Look at the code that was run, then call"
                " restart_session to go on."
            )
        failed_start, self._failed_start = self._failed_start, None
        if failed_start is not None and failed_start[0] > place.asked_at:
            raise failed_start[1]
        if (death := self._kernel.death) is not None:
            self._no_kernel_because = f"The kernel was gone ({death.detail})"
        cause, was_there = self._no_kernel_because, self._kernel.was_there
        self.stop()
        self.start(place.token)
        if not was_there:
            return  # there was nothing to lose
        self._restarted = f"{cause}; this ran on a fresh one: {_LOST}, plugins are loaded again."

    def note_restored(self) -> None:
        """Hear that variables were loaded into the kernel: only others were lost with the last."""
        self._restarted = self._restarted.replace(_LOST, _RESTORED)

    def pop_restarted(self) -> str:
        """What the last replacement has cost, once; empty when there was none."""
        restarted, self._restarted = self._restarted, ""
        return restarted

    def count_death(self, result: ExecutionResult) -> ExecutionResult:
        """Note whether the kernel survived an execution, whose result is given back."""
        if result.status is ExecutionStatus.DIED and result.death is not None:
            self._deaths.append(result.death.detail)
        else:
            self._deaths.clear()
        return result
