"""One session of an environment: its kernel, and what must outlive a kernel."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from taskweaver_ext.ces.execution.artifacts import ArtifactStore
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.events import StatusChanged
from taskweaver_ext.ces.execution.executor import OnOutput, RunOptions, new_execution_id
from taskweaver_ext.ces.execution.late_output import LateOutputs, OnLateOutput
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES, OutputSink
from taskweaver_ext.ces.execution.results import (
    ExecutionResult,
    KernelContents,
    Notice,
)
from taskweaver_ext.ces.kernels.client.execution import Execution
from taskweaver_ext.ces.kernels.client.host import StartedKernel
from taskweaver_ext.ces.kernels.client.reader import GRACE_SECONDS
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.ces.programs.site import ProgramSite
from taskweaver_ext.ces.sessions.current_kernel import CurrentKernel
from taskweaver_ext.ces.sessions.kernel_looks import KernelLooks
from taskweaver_ext.ces.sessions.kernel_pool import KernelNotWantedError, KernelPool, KernelSlot
from taskweaver_ext.ces.sessions.kernel_setup import KernelSetup
from taskweaver_ext.ces.sessions.kernel_supervisor import KernelSupervisor
from taskweaver_ext.ces.sessions.session_folder import SessionFolder
from taskweaver_ext.ces.sessions.session_info import SessionInfo, SessionState, memory_of
from taskweaver_ext.ces.sessions.startup_scripts import StartupScripts
from taskweaver_ext.ces.sessions.turns import Place, Purpose, Turns
from taskweaver_ext.ces.sessions.variables import (
    RestoredVariables,
    SavedVariables,
    SnapshotOptions,
    VariableTransfer,
    wait_for_kernel_to_answer,
)
from taskweaver_ext.errors import KernelDiedError, SessionError, TaskWeaverError
from taskweaver_ext.text.redaction import Redactor

TURN_SECONDS = 15.0
"""How long stopping a session waits for the thread whose execution it has just ended."""

CONTENTS_SECONDS = 30.0
"""How long a kernel may take to say what is in it; one that is silent for longer is stuck."""


class KernelSession:
    """Executions of one session, one after another, on a kernel that is replaced when it dies.

    Threads:
        Any thread may call any method. What is not a field's own affair is
        done by the thread whose turn it is (`_turns`).
    """

    def __init__(
        self,
        session_id: str,
        folder: SessionFolder,
        *,
        mode: EnvMode,
        start_kernel: Callable[[], StartedKernel],
        pool: KernelPool,
        on_late_output: OnLateOutput | None,
        max_output_bytes: int,
        startup_scripts: StartupScripts,
        max_deaths_in_a_row: int,
        unresponsive_seconds: float | None,
        traces_start: bool = False,
        redactor: Redactor | None = None,
    ) -> None:
        self._id = session_id
        self._folder = folder
        self._mode = mode
        self._pool = pool
        self._slot = KernelSlot(self._put_away)
        self._max_output_bytes = max_output_bytes
        self._max_deaths_in_a_row = max_deaths_in_a_row
        self._redactor = redactor
        self._late_outputs = LateOutputs(folder.outputs, on_late_output, max_output_bytes, redactor)
        self._artifacts = ArtifactStore(folder.artifacts, folder.cwd)
        self._turns = Turns(on_free=pool.look_again)
        self._kernel = CurrentKernel(
            session_id,
            start_kernel,
            self.describe,
            self._late_outputs.receive,
            unresponsive_seconds,
        )
        self._setup = KernelSetup(
            session_id, startup_scripts, self._ask_runtime, lambda: self._kernel.is_dead
        )
        self._supervisor = KernelSupervisor(
            session_id,
            self._kernel,
            self._setup,
            pool,
            self._slot,
            max_deaths_in_a_row,
            traces_start=traces_start,
        )
        self.looks = KernelLooks(
            self._kernel, self.describe, self._start_if_need_be, redactor=redactor
        )
        self._starting: threading.Thread | None = None
        self._starting_lock = threading.Lock()
        self._variables: dict[str, str] = {}
        self._created_at = time.time()
        self._last_used_at = time.time()

    def describe(self) -> SessionInfo:
        """What can be seen of the session now."""
        is_taken = self._turns.is_taken
        state: SessionState
        if self._kernel.is_dead:
            state = "dead"
        elif not self._kernel.is_there:
            state = "starting" if is_taken and self._slot.is_taken else "put_away"
        else:
            state = "busy" if is_taken else "idle"
        pid = self._kernel.pid
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

    def _put_away(self, reason: str) -> bool:
        """Stop the kernel if it is idle; the next execution starts another."""
        with self._turns.place("upkeep") as place:
            if not self._turns.wait(place, seconds=0.0):
                return False
            if self._slot.idle_since is None:
                return False
            because = f"The kernel was put away ({reason})"
            return self._supervisor.stop(because, unless_programs_run=True)

    def start(self) -> None:
        """Start the first kernel."""
        self._pool.add(self._slot)
        with self._using("upkeep") as place:
            self._supervisor.start(place.token)

    def start_meanwhile(self) -> None:
        """Start the first kernel on a thread of ours; the first execution waits for it.

        Should that fail, so does the execution that waits; one that comes later tries again.
        """
        self._pool.add(self._slot)
        self._starting = threading.Thread(
            target=self._start_quietly, name=f"taskweaver-start-{self._id}", daemon=True
        )
        self._starting.start()

    def _start_quietly(self) -> None:
        with self._using("upkeep") as place:
            self._supervisor.start_for_later(place.token)

    def _start_if_need_be(self) -> None:
        """Begin to start a kernel if there is none and no thread is about to start one."""
        with self._starting_lock:
            is_starting = self._starting is not None and self._starting.is_alive()
            if self._kernel.is_closed or is_starting or self._turns.is_taken:
                return
            self._starting = threading.Thread(
                target=self._start_again, name=f"taskweaver-start-{self._id}", daemon=True
            )
            self._starting.start()

    def _start_again(self) -> None:
        # What fails is tried again, and told, when code needs the kernel.
        with contextlib.suppress(TaskWeaverError), self._using("upkeep") as place:
            self._supervisor.ensure(place)

    @contextlib.contextmanager
    def _using(self, purpose: Purpose, token: CancellationToken | None = None) -> Iterator[Place]:
        """Wait until it is this thread's turn."""
        self._refuse_callbacks()
        with self._turns.place(purpose, token) as place:
            if not self._turns.wait(place):
                raise KernelNotWantedError(
                    f"Interrupted while it waited for the kernel of session {self._id!r}."
                )
            with self._busy():
                yield place

    def _refuse_callbacks(self) -> None:
        if self._turns.is_mine:
            raise SessionError(
                f"Session {self._id!r} was used from one of its own callbacks, while its code"
                " runs. Use another session there, or wait for the result."
            )

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """It is this thread's turn; afterwards the kernel is idle again."""
        with self._slot.in_use(), self._kernel.in_use():
            try:
                yield
            finally:
                self._last_used_at = time.time()

    def execute(self, code: str, options: RunOptions) -> ExecutionResult:
        """Run code when it is its turn."""
        self._refuse_callbacks()
        with self._turns.place("execution", options.token) as place:
            has_turn = self._turns.wait(place)
            execution = self._execution(code, options)
            if not has_turn:
                return _cancelled(execution)
            with self._busy():
                try:
                    self._supervisor.ensure(place)
                except KernelNotWantedError:
                    if options.token.is_cancelled:
                        return _cancelled(execution)
                    raise
                self._tell_what_happened(execution)
                return self._supervisor.count_death(self._run(execution))

    def _execution(
        self, code: str, options: RunOptions, *, is_for_people: bool = True, **command: object
    ) -> Execution:
        return Execution(
            code,
            options,
            sink=OutputSink(
                self._folder.outputs,
                options.execution_id,
                max_bytes=self._max_output_bytes if is_for_people else MAX_OUTPUT_BYTES,
                is_on_disk=options.record_on_disk,
            ),
            artifacts=self._artifacts,
            metadata={"session_variables": dict(self._variables), **command},
            redactor=self._redactor if is_for_people else None,
        )

    def _tell_what_happened(self, execution: Execution) -> None:
        """What the execution's result has to say about its kernel."""
        if restarted := self._supervisor.pop_restarted():
            execution.add_notice(Notice(kind="restarted", message=restarted))
            execution.say(
                StatusChanged(execution_id=execution.id, status="restarted", detail=restarted)
            )
        for notice in self._setup.pop_notices():
            execution.add_notice(notice)

    def interrupt(self, kill_after: float | None) -> bool:
        """Interrupt the execution that runs, or is about to; return whether there was one."""
        return self._turns.interrupt(kill_after)

    def restart(self) -> None:
        """Replace the kernel; what runs on it is cancelled first."""
        self._refuse_callbacks()
        with self._turns.place("upkeep", is_first=True) as place:
            if not self._turns.cancel_what_has_not_begun(kill_after=GRACE_SECONDS):
                self._supervisor.stop("The session was restarted")
            self._turns.wait(place)
            with self._busy():
                self._supervisor.restart(place.token)

    def stop(self) -> None:
        """End the kernel for good, also under a caller whose callback does not return."""
        self._slot.is_closed = True
        try:
            self._kernel.close()
            self._pool.look_again()
            with self._turns.place("upkeep", is_first=True) as place:
                has_turn = not self._turns.is_mine and self._turns.wait(place, TURN_SECONDS)
                self._supervisor.stop()  # one that was starting just now
            if has_turn and self._starting is not None:
                self._starting.join()
            self._late_outputs.close()
        finally:
            self._pool.remove(self._slot)  # only now: its kernel counted until it was gone

    @contextlib.contextmanager
    def programs(self) -> Iterator[ProgramSite]:
        """Where the session's programs run, also while the kernel is busy.

        A kernel whose host has such a place is not put away meanwhile; one that is
        gone is replaced first.
        """
        try:
            with self._slot.in_use():
                site = self._begin_programs()
                try:
                    yield site
                finally:
                    self._kernel.end_programs()
                    self._last_used_at = time.time()
        finally:
            self._pool.look_again()

    def _begin_programs(self) -> ProgramSite:
        for _ in range(self._max_deaths_in_a_row + 1):
            if (site := self._kernel.begin_programs()) is not None:
                return site
            with self._using("upkeep") as place:
                self._supervisor.ensure(place)
        raise KernelDiedError(
            f"The kernel of session {self._id!r} ends as soon as it has started, so programs"
            " cannot run beside it. Call restart_session to try again."
        )

    def wait_for_kernel(self, token: CancellationToken | None) -> None:
        """Wait until there is a kernel that is ready; an interrupt ends the waiting."""
        with self._using_kernel(token):
            return

    def load_plugin(
        self, name: str, source: str, config: dict[str, Any], token: CancellationToken | None
    ) -> None:
        """Load a plugin and remember it for the kernels to come."""
        with self._using_kernel(token) as place:
            self._setup.load_plugin(name, source, config, place.token)

    def unload_plugin(self, name: str) -> None:
        """Take a plugin out of the kernel."""
        with self._using_kernel() as place:
            self._setup.unload_plugin(name, place.token)

    def test_plugin(self, name: str) -> None:
        """Run a plugin's tests."""
        with self._using_kernel() as place:
            self._setup.test_plugin(name, place.token)

    @contextlib.contextmanager
    def _using_kernel(self, token: CancellationToken | None = None) -> Iterator[Place]:
        with self._using("preparation", token) as place:
            self._supervisor.ensure(place)
            yield place

    def contents(self, token: CancellationToken | None) -> KernelContents | None:
        """What code would find in the kernel; None when there is none, or it does not say."""
        with self._using("preparation", token) as place:
            if not self._kernel.is_there or self._kernel.is_dead:
                return None
            result = self._ask_runtime("describe_contents", {}, place.token, CONTENTS_SECONDS)
        return KernelContents.from_json("".join(result.stdout))

    def save_variables(self, options: SnapshotOptions) -> SavedVariables:
        """Write the variables of the kernel to a file."""
        self._refuse_callbacks()

        def save(on_answer: Callable[[], object]) -> SavedVariables:
            with self._using("preparation", options.token):
                if not self._kernel.is_there or self._kernel.is_dead:
                    raise SessionError(
                        f"Session {self._id!r} has no kernel now, and so no variables to save."
                    )
                return self._variable_transfer(options).save(on_answer)

        return wait_for_kernel_to_answer(save, self._id, options)

    def restore_variables(self, options: SnapshotOptions) -> RestoredVariables:
        """Load the variables of a file into the kernel, starting one if there is none."""
        self._refuse_callbacks()

        def restore(_on_answer: object) -> RestoredVariables:
            with self._using_kernel(options.token):
                restored = self._variable_transfer(options).restore(self._folder.path / "ces")
                if restored.names:
                    self._supervisor.note_restored()
                return restored

        return wait_for_kernel_to_answer(restore, self._id, options)

    def _variable_transfer(self, options: SnapshotOptions) -> VariableTransfer:
        return VariableTransfer(
            session_id=self._id,
            mode=self._mode,
            ask_kernel=partial(self._ask_runtime, is_for_people=False),
            options=options,
            redactor=self._redactor,
        )

    def update_variables(self, variables: Mapping[str, str]) -> None:
        """Set session variables; they travel with the next request."""
        self._variables.update(variables)

    def _run(self, execution: Execution) -> ExecutionResult:
        kernel, reader = self._kernel.get()
        _check_that_it_can_be_sent(execution.metadata)
        execution.metadata.update(kernel.metadata)
        execution.answer = lambda question, text: reader.answer(execution, question, text)
        try:
            with self._turns.running(execution.token, lambda: reader.submit(execution)):
                return execution.deliver()
        except BaseException:
            # The caller's thread was interrupted: its code must not run on unseen.
            execution.token.cancel(GRACE_SECONDS)
            execution.wait_until_finished(2 * GRACE_SECONDS)
            execution.abandon()
            raise

    def _ask_runtime(
        self,
        command: str,
        arguments: dict[str, Any],
        token: CancellationToken,
        timeout: float | None = None,
        *,
        on_output: OnOutput | None = None,
        is_for_people: bool = True,
    ) -> ExecutionResult:
        """Have the kernel's runtime do a command.

        Args:
            is_for_people: Whether what it answers is text, which is masked, and bounded as such.
        """
        options = RunOptions(
            execution_id=new_execution_id(f"{command}-{uuid.uuid4().hex[:8]}"),
            on_output=on_output,
            timeout=timeout,
            token=token,
        )
        execution = self._execution(
            "", options, is_for_people=is_for_people, command=command, arguments=arguments
        )
        return self._run(execution)


def _cancelled(execution: Execution) -> ExecutionResult:
    """The result of an execution that was cancelled while it waited for its kernel."""
    execution.end_before_it_began()
    return execution.deliver()


def _check_that_it_can_be_sent(metadata: Mapping[str, Any]) -> None:
    try:
        json.dumps(metadata)
    except (TypeError, ValueError) as error:
        raise SessionError(
            f"Session variables and plugin settings travel as JSON, and these cannot: {error}."
            " Use texts, numbers, lists and mappings."
        ) from error
