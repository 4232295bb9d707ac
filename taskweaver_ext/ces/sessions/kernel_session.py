"""One session of an environment: its kernel, and what must outlive a kernel."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from taskweaver_ext.ces.artifacts import ArtifactStore
from taskweaver_ext.ces.events import StatusChanged
from taskweaver_ext.ces.kernels.execution import Execution, OnInput
from taskweaver_ext.ces.kernels.host import EnvMode, StartedKernel
from taskweaver_ext.ces.kernels.reader import GRACE_SECONDS, KernelReader
from taskweaver_ext.ces.kernels.tracing import reached, startup_stages
from taskweaver_ext.ces.late_output import LateOutputs, OnLateOutput
from taskweaver_ext.ces.output_sink import OutputSink
from taskweaver_ext.ces.programs.site import ProgramSite
from taskweaver_ext.ces.recorded_run import OnEvent, OnOutput
from taskweaver_ext.ces.results import ExecutionId, ExecutionResult, ExecutionStatus, Notice
from taskweaver_ext.ces.sessions.equipment import Equipment
from taskweaver_ext.ces.sessions.interrupts import Interrupts
from taskweaver_ext.ces.sessions.kernel_keeper import KernelKeeper
from taskweaver_ext.ces.sessions.session_folder import NAME, SessionFolder
from taskweaver_ext.ces.sessions.session_info import (
    SessionInfo,
    SessionRecord,
    SessionState,
    memory_of,
)
from taskweaver_ext.ces.sessions.startup_scripts import StartupScripts
from taskweaver_ext.errors import KernelDiedError, SessionError, TaskWeaverError

MAX_DEATHS_IN_A_ROW = 3

TURN_SECONDS = 15.0
"""How long stopping a session waits for the thread whose execution it has just ended."""


class KernelSession:
    """Executions of one session, one after another, on a kernel that is replaced when it dies.

    Threads:
        `_turn` is held by the thread whose execution runs, for as long as it
        runs, and by whoever replaces the kernel. `_lock` guards `_kernel`,
        `_reader` and `_record`, which `stop` uses from any thread, and
        `_program_count`.
    """

    def __init__(
        self,
        session_id: str,
        folder: SessionFolder,
        *,
        mode: EnvMode,
        start_kernel: Callable[[], StartedKernel],
        keeper: KernelKeeper,
        on_late_output: OnLateOutput | None,
        max_output_bytes: int,
        startup_scripts: StartupScripts,
        max_deaths_in_a_row: int,
    ) -> None:
        self._id = session_id
        self._folder = folder
        self._mode = mode
        self._start = start_kernel
        self._keeper = keeper
        self._max_output_bytes = max_output_bytes
        self._equipment = Equipment(
            session_id, startup_scripts, self._ask_runtime, lambda: self._is_dead
        )
        self._max_deaths_in_a_row = max_deaths_in_a_row
        self._late_outputs = LateOutputs(folder.outputs, on_late_output, max_output_bytes)
        self._artifacts = ArtifactStore(folder.artifacts, folder.cwd)
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._kernel: StartedKernel | None = None
        self._record: SessionRecord | None = None
        self._reader: KernelReader | None = None
        self._interrupts = Interrupts()
        self._program_count = 0
        self._starting: threading.Thread | None = None
        self._variables: dict[str, str] = {}
        self._deaths: list[str] = []
        self._is_stopped = False
        self._has_room = False
        self._has_had_kernel = False
        self._no_kernel_because = ""
        self._restarted = ""
        self._turn_holder = 0
        self._created_at = time.time()
        self._last_used_at = time.time()
        self._idle_since: float | None = None

    @property
    def idle_since(self) -> float | None:
        """Since when the kernel has nothing to do; None while it is busy, or there is none."""
        return None if self._program_count else self._idle_since

    @property
    def has_kernel(self) -> bool:
        """Whether there is a kernel, or room is kept for one."""
        return self._has_room

    def keep_room(self) -> None:
        """A kernel is about to start here."""
        self._has_room = True

    def describe(self) -> SessionInfo:
        """What somebody who looks can see of the session now."""
        with self._lock:
            kernel, reader = self._kernel, self._reader
        is_taken = self._turn.locked()
        state: SessionState
        if reader is not None and reader.death is not None:
            state = "dead"
        elif kernel is None:
            state = "starting" if is_taken and self._has_room else "put_away"
        else:
            state = "busy" if is_taken else "idle"
        pid = _pid_of(kernel) if state != "dead" else None
        return SessionInfo(
            session_id=self._id,
            mode=self._mode.value,
            state=state,
            owner_pid=os.getpid(),
            pid=pid,
            memory_bytes=memory_of(pid),
            created_at=self._created_at,
            last_used_at=self._last_used_at,
            cwd=str(self._folder.cwd),
        )

    def put_away(self, reason: str) -> bool:
        """Stop the kernel if it is idle; the next execution starts another."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._idle_since is None or self._is_stopped:
                return False
            if not self._stop_kernel(unless_programs_run=True):
                return False
            self._no_kernel_because = f"The kernel was put away ({reason})"
            return True
        finally:
            self._turn.release()

    def start(self) -> None:
        """Start the first kernel."""
        with self._using():
            self._start_kernel()

    def start_meanwhile(self) -> None:
        """Start the first kernel on a thread of ours; the first execution waits for it.

        Should that fail, the first execution tries again, and says why it cannot.
        """
        self._starting = threading.Thread(
            target=self._start_quietly, name=f"taskweaver-start-{self._id}", daemon=True
        )
        self._starting.start()

    def _start_quietly(self) -> None:
        with contextlib.suppress(TaskWeaverError), self._using():
            self._ensure_kernel()

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """It is this thread's turn; afterwards the kernel is idle again."""
        if self._turn_holder == threading.get_ident():
            raise SessionError(
                f"Session {self._id!r} was used from one of its own callbacks, while its code"
                " runs. Use another session there, or wait for the result."
            )
        with self._turn:
            self._turn_holder = threading.get_ident()
            self._idle_since = None
            if (record := self._record) is not None:  # which `stop` may take away meanwhile
                record.begin_use()
            try:
                yield
            finally:
                self._turn_holder = 0
                self._last_used_at = time.time()
                if (record := self._record) is not None:
                    record.end_use()
                if self._has_room:
                    self._idle_since = time.monotonic()
        self._keeper.became_idle()

    def execute(
        self,
        code: str,
        exec_id: str | None,
        *,
        on_output: OnOutput | None,
        on_event: OnEvent | None,
        on_input: OnInput | None,
        timeout: float | None,
    ) -> ExecutionResult:
        """Run code when it is its turn."""
        execution_id = ExecutionId(exec_id or f"exec-{uuid.uuid4().hex[:12]}")
        if not NAME.fullmatch(execution_id):
            raise SessionError(
                f"{execution_id!r} cannot name an execution: it is used as a file name."
            )
        with self._using():
            execution = Execution(
                execution_id,
                code,
                sink=self._sink(execution_id),
                artifacts=self._artifacts,
                metadata={"session_variables": dict(self._variables)},
                on_output=on_output,
                on_event=on_event,
                on_input=on_input,
                timeout=timeout,
            )
            with self._interrupts.expecting(execution):
                self._ensure_kernel()
                self._tell_what_happened(execution)
                return self._count_deaths(self._run(execution))

    def _tell_what_happened(self, execution: Execution) -> None:
        """What the execution's result has to say about its kernel."""
        restarted, self._restarted = self._restarted, ""
        if restarted:
            execution.add_notice(Notice(kind="restarted", message=restarted))
            execution.say(
                StatusChanged(execution_id=execution.id, status="restarted", detail=restarted)
            )
        for notice in self._equipment.take_notices():
            execution.add_notice(notice)

    def interrupt(self, kill_after: float | None) -> None:
        """Interrupt the execution that runs, or is about to, if there is one."""
        self._interrupts.interrupt(kill_after)

    def restart(self) -> None:
        """Replace the kernel; what runs on it is cancelled first."""
        self._no_kernel_because = "The session was restarted"
        self._stop_kernel()
        with self._using():
            self._stop_kernel()
            self._deaths.clear()
            self._start_kernel()

    def stop(self) -> None:
        """End the kernel for good, also under a caller whose callback does not return."""
        self._is_stopped = True
        self._stop_kernel()
        has_turn = self._turn.acquire(timeout=TURN_SECONDS)
        self._stop_kernel()  # one that was starting just now
        if has_turn:
            self._turn.release()
            if self._starting is not None:
                self._starting.join()
        self._late_outputs.close()

    @contextlib.contextmanager
    def programs(self) -> Iterator[ProgramSite]:
        """Where the session's programs run, also while the kernel is busy.

        A kernel whose host has such a place is not put away meanwhile; one that is
        gone is replaced first.
        """
        site = self._begin_programs()
        try:
            yield site
        finally:
            with self._lock:
                self._program_count -= 1
            self._last_used_at = time.time()
            if self._idle_since is not None:
                self._idle_since = time.monotonic()
            self._keeper.became_idle()

    def _begin_programs(self) -> ProgramSite:
        for _ in range(self._max_deaths_in_a_row + 1):
            with self._lock:
                site = _programs_of(self._kernel)
                if site is not None and self._reader is not None and self._reader.death is None:
                    self._program_count += 1
                    return site
            with self._using():
                self._ensure_kernel()
        raise KernelDiedError(
            f"The kernel of session {self._id!r} ends as soon as it has started, so programs"
            " cannot run beside it. Call restart_session to try again."
        )

    def load_plugin(self, name: str, source: str, config: dict[str, Any]) -> None:
        """Load a plugin and remember it for the kernels to come."""
        with self._using():
            self._ensure_kernel()
            self._equipment.load_plugin(name, source, config)

    def unload_plugin(self, name: str) -> None:
        """Take a plugin out of the kernel."""
        with self._using():
            self._ensure_kernel()
            self._equipment.unload_plugin(name)

    def test_plugin(self, name: str) -> None:
        """Run a plugin's tests."""
        with self._using():
            self._ensure_kernel()
            self._equipment.test_plugin(name)

    def update_variables(self, variables: Mapping[str, str]) -> None:
        """Set session variables; they travel with the next request."""
        self._variables.update(variables)

    def _sink(self, execution_id: str) -> OutputSink:
        return OutputSink(self._folder.outputs, execution_id, max_bytes=self._max_output_bytes)

    @property
    def _is_dead(self) -> bool:
        """Whether there was a kernel, and it has died."""
        with self._lock:
            return self._reader is not None and self._reader.death is not None

    def _start_kernel(self) -> None:
        """Start a kernel and put into it what every kernel of the session has."""
        with startup_stages(self._id):
            try:
                self._open_kernel()
                while not self._equipment.install():
                    self._stop_kernel()
                    self._open_kernel()
            except BaseException as error:
                self._stop_kernel()
                why = str(error) or type(error).__name__
                self._no_kernel_because = f"The last start of a kernel failed ({why})"
                raise
            reached("startup scripts and plugins are loaded")

    def _open_kernel(self) -> None:
        if self._is_stopped:
            raise SessionError(f"Session {self._id!r} has been stopped. Start it again to use it.")
        kernel, reader = self._keeper.start(self, self._start_with_reader)
        record = self._write_record(kernel)
        with self._lock:
            was_stopped = self._was_stopped()  # while the kernel started
            if not was_stopped:
                self._kernel, self._reader, self._record = kernel, reader, record
                self._has_had_kernel = True
        if not was_stopped:
            return
        record.remove()
        reader.stop()
        kernel.host.stop()
        raise SessionError(f"Session {self._id!r} was stopped while its kernel started.")

    def _start_with_reader(self) -> tuple[StartedKernel, KernelReader]:
        kernel = self._start()
        reader = KernelReader(kernel.host, kernel.connection, self._late_outputs.take, self._id)
        try:
            reader.start()
        except BaseException:  # the machine may have no thread left for it, or Ctrl-C came
            kernel.host.stop()
            raise
        return kernel, reader

    def _was_stopped(self) -> bool:
        return self._is_stopped

    def _write_record(self, kernel: StartedKernel) -> SessionRecord:
        return SessionRecord(
            self.describe(),
            pid=_pid_of(kernel),
            # Hosts that have a private folder on this machine keep the record there.
            folder=getattr(kernel.host, "folder", None),
        )

    def _stop_kernel(self, *, unless_programs_run: bool = False) -> bool:
        """Stop the kernel, if there is one; return whether there is none now."""
        with self._lock:
            if unless_programs_run and self._program_count:
                return False
            kernel, reader, record = self._kernel, self._reader, self._record
            self._kernel = self._reader = self._record = None
        if record is not None:
            record.remove()
        if reader is not None:
            reader.stop()
        if kernel is not None:
            kernel.host.stop()
        self._has_room = False
        self._idle_since = None
        return True

    def _ensure_kernel(self) -> None:
        """Start a fresh kernel if the last one is gone; the next execution says what that costs."""
        with self._lock:
            kernel, reader = self._kernel, self._reader
        death = reader.death if reader is not None else None
        if death is None and kernel is not None and _is_over(kernel):
            death = kernel.host.death()
        elif reader is not None and death is None:
            return
        if len(self._deaths) >= self._max_deaths_in_a_row:
            raise KernelDiedError(
                f"The kernel of session {self._id!r} died {len(self._deaths)} times in a row"
                f" ({'; '.join(self._deaths)}). Look at the code that was run, then call"
                " restart_session to go on."
            )
        if death is not None:
            self._no_kernel_because = f"The kernel was gone ({death.detail})"
        cause, was_there = self._no_kernel_because, self._has_had_kernel
        self._stop_kernel()
        self._start_kernel()
        if not was_there:
            return  # there was nothing to lose
        self._restarted = (
            f"{cause}; this ran on a fresh one: variables of earlier executions are lost,"
            " plugins are loaded again."
        )

    def _run(self, execution: Execution) -> ExecutionResult:
        with self._lock:
            kernel, reader = self._kernel, self._reader
        if kernel is None or reader is None:
            raise SessionError(f"Session {self._id!r} has been stopped. Start it again to use it.")
        _check_that_it_can_be_sent(execution.metadata)
        execution.metadata.update(kernel.metadata)
        execution.answer = lambda question, text: reader.answer(execution, question, text)
        try:
            self._interrupts.submit(execution, reader)
            return execution.deliver()
        except BaseException:
            # The caller's thread was interrupted: its code must not run on unseen.
            reader.interrupt(execution, GRACE_SECONDS)
            execution.wait_until_finished(2 * GRACE_SECONDS)
            execution.abandon()
            raise
        finally:
            self._interrupts.has_ended()

    def _count_deaths(self, result: ExecutionResult) -> ExecutionResult:
        if result.status is ExecutionStatus.DIED and result.death is not None:
            self._deaths.append(result.death.detail)
        else:
            self._deaths.clear()
        return result

    def _ask_runtime(
        self, command: str, arguments: dict[str, Any], timeout: float | None = None
    ) -> ExecutionResult:
        execution_id = ExecutionId(f"{command}-{uuid.uuid4().hex[:8]}")
        execution = Execution(
            execution_id,
            "",
            sink=self._sink(execution_id),
            artifacts=self._artifacts,
            metadata={
                "command": command,
                "arguments": arguments,
                "session_variables": dict(self._variables),
            },
            timeout=timeout,
        )
        return self._run(execution)


def _pid_of(kernel: StartedKernel | None) -> int | None:
    """The kernel's process, where it is one of this machine."""
    pid: int | None = getattr(kernel.host, "pid", None) if kernel is not None else None
    return pid


def _is_over(kernel: StartedKernel) -> bool:
    """Whether a kernel's host knows already that it has ended, though its reader may not."""
    return bool(getattr(kernel.host, "is_over", False))


def _programs_of(kernel: StartedKernel | None) -> ProgramSite | None:
    """Where programs run beside a kernel, if there is such a place and it has not ended."""
    if kernel is None or _is_over(kernel):
        return None
    site: ProgramSite | None = getattr(kernel.host, "programs", None)
    return site


def _check_that_it_can_be_sent(metadata: Mapping[str, Any]) -> None:
    try:
        json.dumps(metadata)
    except (TypeError, ValueError) as error:
        raise SessionError(
            f"Session variables and plugin settings travel as JSON, and these cannot: {error}."
            " Use texts, numbers, lists and mappings."
        ) from error
