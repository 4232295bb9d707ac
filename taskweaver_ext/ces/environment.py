"""Environment: the door to kernels.

An environment holds sessions; a session has one kernel at a time, a folder,
and a working directory. What a session is made of is in `ces/sessions/kernel_session.py`.
"""

from __future__ import annotations

import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.executor import (
    OnEvent,
    OnInput,
    OnOutput,
    RunOptions,
    check_seconds,
    new_execution_id,
)
from taskweaver_ext.ces.execution.late_output import OnLateOutput
from taskweaver_ext.ces.execution.looks import Completions, Inspection, KernelPeek
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES
from taskweaver_ext.ces.execution.results import ExecutionResult, KernelContents
from taskweaver_ext.ces.kernels.client.host import StartedKernel
from taskweaver_ext.ces.kernels.client.liveness import UNRESPONSIVE_SECONDS
from taskweaver_ext.ces.kernels.client.tracing import traced
from taskweaver_ext.ces.kernels.modes import (
    KERNEL_MODES,
    EnvMode,
    KernelSourceSettings,
)
from taskweaver_ext.ces.programs.site import ProgramSite
from taskweaver_ext.ces.sandbox.sandbox import can_guard
from taskweaver_ext.ces.sessions.kernel_looks import LOOK_SECONDS, cursor_in
from taskweaver_ext.ces.sessions.kernel_pool import KernelPool
from taskweaver_ext.ces.sessions.kernel_session import KernelSession
from taskweaver_ext.ces.sessions.kernel_supervisor import MAX_DEATHS_IN_A_ROW
from taskweaver_ext.ces.sessions.open_sessions import OpenSessions
from taskweaver_ext.ces.sessions.session_folder import SessionFolder, refuse_to_share
from taskweaver_ext.ces.sessions.session_info import SessionInfo
from taskweaver_ext.ces.sessions.startup_scripts import StartupScripts
from taskweaver_ext.ces.sessions.variables import (
    MAX_SNAPSHOT_BYTES,
    SNAPSHOT_SECONDS,
    RestoredVariables,
    SavedVariables,
    SnapshotOptions,
)
from taskweaver_ext.closing import Closeable
from taskweaver_ext.config import variables
from taskweaver_ext.config.loading import load_execution_service, load_sandbox
from taskweaver_ext.config.sandbox import SandboxSettings
from taskweaver_ext.config.settings import ExecutionServiceConfig
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.machine.child_environment import EnvironmentRules, rules_of
from taskweaver_ext.machine.forks import not_in_forks
from taskweaver_ext.text.redaction import Redactor

if TYPE_CHECKING:
    from taskweaver_ext.ces.kernels.container.description import ContainerSettings
    from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings


class Environment(Closeable):
    """Run code on persistent kernels and hear what it does while it runs.

    Sessions are independent and may be used from different threads;
    executions on one session wait for each other. Use it as a context
    manager: leaving it stops every session. One that is forgotten without
    that is closed when it is collected, with a ResourceWarning. It belongs to
    the process that opened it: forks of that process open their own.
    """

    def __init__(
        self,
        env_dir: str | Path = "env",
        env_mode: EnvMode = EnvMode.Local,
        *,
        env_id: str | None = None,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        env_rules: EnvironmentRules | None = None,
        memory_limit: int | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        warm_start: bool = True,
        preload: Sequence[str] = (),
        spare_kernels: int = 0,
        max_kernels: int | None = None,
        idle_seconds: float | None = None,
        max_deaths_in_a_row: int = MAX_DEATHS_IN_A_ROW,
        unresponsive_seconds: float | None = UNRESPONSIVE_SECONDS,
        prelude: str | None = None,
        modules: Sequence[str | Path] = (),
        container: ContainerSettings | None = None,
        gateway: GatewaySettings | None = None,
        sandbox: SandboxSettings | None = None,
        guard: bool = False,
        service: ExecutionServiceConfig | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Settings of all sessions.

        Args:
            env_dir: Where session folders are made.
            python: The interpreter of the kernels; found by itself when None.
            env: Variables for the kernels, besides those of ours that they may see.
            env_rules: Which these are; None: as `service` says for code of agents.
            memory_limit: Bytes a kernel may allocate; beyond is a MemoryError.
            max_output_bytes: What one execution may write before it is stopped.
            warm_start: Fork kernels from a process that has imported what they need.
            preload: Modules that process imports besides.
            spare_kernels: How many local kernels are started before they are asked for.
            max_kernels: How many kernels may live at once; the one that has been idle longest is
                put away for the next. None: no bound.
            idle_seconds: After how long an idle kernel is put away. None: never.
            max_deaths_in_a_row: After how many a session's kernel is not started by itself again.
            unresponsive_seconds: How long a kernel that lives may take to begin with code, or to
                answer when it is idle, before it is replaced. None: for ever.
            prelude: Code that runs in every kernel when it starts.
            modules: Folders whose `*.py` files run in every kernel when it starts, their public
                names becoming the user's; a later folder's file replaces one of the same name.
            container: How containers are made, with `EnvMode.Container`.
            gateway: Which gateway is used, with `EnvMode.Gateway`.
            sandbox: What code may reach and use, with `EnvMode.Sandbox`. None: as environment
                variables say (SANDBOX_REQUIRE, SANDBOX_READABLE, ...).
            guard: Whether local kernels, and shells and programs of their sessions, are kept from
                reading, tracing and signalling this process and others outside; `sudo` and
                debuggers do not work in them then. Linux only.
            service: The engine, image and gateway that a project has set, used where `container`
                or `gateway` is None. None: those that environment variables name (DOCKER_HOST,
                TASKWEAVER_GATEWAY_URL, ...). Where no gateway is named, it is one that processes
                of this user share.
            redactor: Masks secrets in all that executions say, recorded or told.

        Raises:
            ConfigError: A number or a variable makes no sense.
        """
        self.env_id = env_id or f"env-{uuid.uuid4().hex[:8]}"
        self.env_dir = Path(env_dir).absolute()
        self.env_mode = _mode_of(env_mode)
        self.redactor = redactor or None
        self.guard = guard and can_guard()
        self._tracing = variables.tracing()
        pool = KernelPool(max_kernels, idle_seconds)
        self._make_session = partial(
            KernelSession,
            mode=self.env_mode,
            pool=pool,
            max_output_bytes=max_output_bytes,
            startup_scripts=StartupScripts(prelude, modules),
            max_deaths_in_a_row=max_deaths_in_a_row,
            unresponsive_seconds=unresponsive_seconds,
            traces_start=self._tracing.stages,
            redactor=self.redactor,
        )
        service = service or load_execution_service()
        self.env_rules = env_rules or rules_of(service)
        """Which of our variables local kernels, and programs of their sessions, see."""
        settings = KernelSourceSettings(
            env_id=self.env_id,
            env_dir=self.env_dir,
            python=python,
            variables=dict(env or {}),
            env_rules=self.env_rules,
            memory_limit=memory_limit,
            warm_start=warm_start,
            preload=preload,
            spare_kernels=spare_kernels,
            service=service,
            container=container,
            gateway=gateway,
            sandbox=sandbox or load_sandbox(),
            guard=self.guard,
        )
        self._mode = KERNEL_MODES[self.env_mode]
        self._prepare_own_cwd = partial(self._mode.prepare_own_cwd, settings)
        self._check_owner = partial(self._mode.check_owner, settings)
        self._source = self._mode.open_source(settings)
        self._sessions = OpenSessions(pool, self._source)
        # Nothing that lives on refers to the environment itself, or it would never be collected.
        self._let_go = not_in_forks(self._sessions.close)
        self._forgotten = weakref.finalize(
            self, not_in_forks(_close_forgotten), self.env_dir, self._let_go
        )
        self._forgotten.atexit = False  # kernels end with the program by themselves

    def start_session(
        self,
        session_id: str,
        session_dir: str | Path | None = None,
        cwd: str | Path | None = None,
        *,
        on_late_output: OnLateOutput | None = None,
        wait: bool = True,
    ) -> None:
        """Start a session with its kernel.

        Args:
            session_dir: Its folder; by default one in the environment's folder.
            cwd: Where its code runs, which must exist; by default a new folder in its own. A
                container's or sandbox's may not hold the session's folder, and a sandbox's
                neither the user's home nor parts of the system.
            on_late_output: Told what executions write after their end, on a thread of ours.
            wait: Until the kernel is ready. Otherwise it starts while the caller does something
                else, the first execution waits for it, and a failure to start is that one's.

        Raises:
            SessionError: The session exists, or a folder cannot be used.
            ConfigError: The working directory cannot be a sandbox's, or a container's.
            KernelStartError: The kernel did not become ready.
        """
        self._sessions.require_open()
        folder = SessionFolder.prepare(
            self.env_dir, session_id, session_dir, cwd, prepare_own_cwd=self._prepare_own_cwd
        )
        self.check_folder(folder.cwd, folder.path)
        source, traces_messages = self._source, self._tracing.messages

        def start_kernel() -> StartedKernel:
            kernel = source.start(session_id, folder.cwd)
            return traced(kernel, session_id) if traces_messages else kernel

        session = self._make_session(
            session_id, folder, start_kernel=start_kernel, on_late_output=on_late_output
        )
        self._sessions.add(session_id, session)
        if not wait:
            session.start_meanwhile()
            return
        try:
            session.start()
        except BaseException:
            self._sessions.discard(session_id, session)
            session.stop()
            raise

    def check_folder(self, cwd: Path, session_dir: Path) -> None:
        """Find out, before a session is started, whether its code may be given a folder.

        Raises:
            ConfigError: It holds what code is to be kept from, or belongs to a user that code
                may not be.
            SessionError: It holds the session's records.
        """
        self._mode.check_folder(cwd)
        self._check_owner(cwd)
        if self._mode.is_confined:
            refuse_to_share(session_dir, cwd)

    def execute_code(
        self,
        session_id: str,
        code: str,
        exec_id: str | None = None,
        *,
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        on_input: OnInput | None = None,
        timeout: float | None = None,
    ) -> ExecutionResult:
        """Run code and call back, on this thread, for what it does while it runs.

        Args:
            on_output: Called with "stdout" or "stderr" and the text.
            on_event: Called with every event of `ces.events`.
            on_input: Answers `input()` and `getpass()`, on a thread of ours; without it such
                code fails at once.
            timeout: Seconds after which the code is interrupted, and killed if need be.

        Raises:
            SessionError: There is no such session.
            KernelDiedError: Its kernel died three times in a row.
            TypeError: The code is no text, or the timeout no number.
        """
        options = RunOptions(
            execution_id=new_execution_id(exec_id),
            on_output=on_output,
            on_event=on_event,
            on_input=on_input,
            timeout=timeout,
        )
        return self.run(session_id, code, options)

    def run(self, session_id: str, code: str, options: RunOptions) -> ExecutionResult:
        """The same, as the layers above ask for it."""
        if not isinstance(code, str):
            raise TypeError(f"Code is a text, not {type(code).__name__}.")
        check_seconds("timeout", options.timeout)
        return self._sessions.get(session_id).execute(code, options)

    def wait_for_kernel(self, session_id: str, *, token: CancellationToken | None = None) -> None:
        """Wait until a session's kernel is ready; one that is gone is replaced first.

        Raises:
            SessionError: There is no such session, or `interrupt` or the token ended the waiting.
            KernelStartError: The kernel did not become ready.
            KernelDiedError: It died three times in a row.
        """
        self._sessions.get(session_id).wait_for_kernel(token)

    def programs(self, session_id: str) -> AbstractContextManager[ProgramSite]:
        """Where shells and programs of a session run that has a container: inside of it.

        The container stays for as long as this is used, also while the kernel is busy; one
        that is gone is replaced first.

        Raises:
            SessionError: There is no such session.
            KernelError: Its container is gone, and another does not start.
        """
        return self._sessions.get(session_id).programs()

    def has_session(self, session_id: str) -> bool:
        """Whether a session was started and not stopped."""
        return session_id in self._sessions

    def interrupt(self, session_id: str, kill_after: float | None = None) -> bool:
        """Interrupt what runs in a session, or is about to, if anything is; from any thread.

        With `kill_after`, the kernel is killed if the code has not ended so many seconds later.

        Returns:
            Whether there was anything; if not, nothing that comes later is interrupted for it.
        """
        check_seconds("kill_after", kill_after)
        return self._sessions.get(session_id).interrupt(kill_after)

    def restart_session(self, session_id: str) -> None:
        """Give a session a fresh kernel with its plugins; what runs is cancelled."""
        self._sessions.get(session_id).restart()

    def stop_session(self, session_id: str) -> None:
        """Stop a session and everything it started; its folder stays."""
        session = self._sessions.get(session_id)
        self._sessions.discard(session_id, session)
        session.stop()

    def sessions(self) -> list[SessionInfo]:
        """What can be seen of all sessions now, in the order they were started."""
        return self._sessions.describe()

    def kernel_contents(
        self, session_id: str, *, token: CancellationToken | None = None
    ) -> KernelContents | None:
        """What code would find in a session's kernel: packages, and variables of earlier code.

        None when there is no kernel now, or it does not say. It waits for code that runs.
        """
        return self._sessions.get(session_id).contents(token)

    def complete(
        self,
        session_id: str,
        code: str,
        cursor: int | None = None,
        *,
        timeout: float = LOOK_SECONDS,
    ) -> Completions:
        """What fits at a place in code, by what the session's kernel knows; also while it is busy.

        No code of the user runs for it: properties, `__getattr__` and `__dir__` are not asked. A
        kernel that is not there is started, and answers if it is ready in time.

        Args:
            cursor: The place, in characters; by default the end.
            timeout: Seconds after which the result says that the kernel did not answer.

        Raises:
            SessionError: There is no such session.
            TypeError, ValueError: The code is no text, or the cursor no place in it.
        """
        check_seconds("timeout", timeout)
        place = cursor_in(code, cursor)
        return self._sessions.get(session_id).looks.complete(code, place, timeout)

    def inspect(
        self,
        session_id: str,
        code: str,
        cursor: int | None = None,
        detail: int = 0,
        *,
        timeout: float = LOOK_SECONDS,
    ) -> Inspection:
        """What the name at a place in code is, as a reader wants to know it; also while it is busy.

        Args:
            cursor: The place, in characters; by default the end.
            detail: 1 for the source as well.

        Raises:
            SessionError: There is no such session.
            TypeError, ValueError: The code is no text, or the cursor no place in it.
        """
        check_seconds("timeout", timeout)
        place = cursor_in(code, cursor)
        return self._sessions.get(session_id).looks.inspect(code, place, detail, timeout)

    def peek(self, session_id: str, *, timeout: float = LOOK_SECONDS) -> KernelPeek:
        """The variables of a session's kernel, the line that runs and its memory, at this moment.

        It neither waits for code that runs, nor runs any, nor starts a kernel.

        Raises:
            SessionError: There is no such session.
        """
        check_seconds("timeout", timeout)
        return self._sessions.get(session_id).looks.peek(timeout)

    def snapshot(
        self,
        session_id: str,
        path: str | Path,
        *,
        max_bytes: int = MAX_SNAPSHOT_BYTES,
        timeout: float = SNAPSHOT_SECONDS,
        token: CancellationToken | None = None,
    ) -> SavedVariables:
        """Save the variables of a session's kernel to a file, for `restore`.

        Functions and classes of the session are among them, and variables that share an object
        will share it again. What cannot be saved, such as open files, or what is over the limits
        of size and time, is left out and named. The kernel is not changed; it waits for code that
        runs. The file is for its owner alone.

        Raises:
            SessionError: There is no such session or no kernel, it does not answer, or the file
                cannot be written.
        """
        options = _snapshot_options(path, max_bytes, timeout, token)
        return self._sessions.get(session_id).save_variables(options)

    def restore(
        self,
        session_id: str,
        path: str | Path,
        *,
        trust: bool = False,
        max_bytes: int = MAX_SNAPSHOT_BYTES,
        timeout: float = SNAPSHOT_SECONDS,
        token: CancellationToken | None = None,
    ) -> RestoredVariables:
        """Load the variables of a file that `snapshot` wrote into a session's kernel.

        Modules are imported again by name. What does not come back is left out and named.

        Args:
            trust: Load it also if this user has not written it on this machine, or if it comes
                from a kernel with fewer rights than this one. What is in it can run any code.

        Raises:
            SessionError: There is no such session, or the file is not there, makes no sense or
                cannot be trusted.
        """
        options = _snapshot_options(path, max_bytes, timeout, token, trust=trust)
        return self._sessions.get(session_id).restore_variables(options)

    def load_plugin(
        self,
        session_id: str,
        name: str,
        source: str,
        config: Mapping[str, Any] | None = None,
        *,
        token: CancellationToken | None = None,
    ) -> None:
        """Load a plugin into a session's kernel, and into those that follow it.

        Raises:
            PluginError: Its source raised, or registers no plugin.
            SessionError: There is no such session, or `interrupt` or the token ended the waiting.
        """
        self._sessions.get(session_id).load_plugin(name, source, dict(config or {}), token)

    def unload_plugin(self, session_id: str, name: str) -> None:
        """Take a plugin out of a session."""
        self._sessions.get(session_id).unload_plugin(name)

    def test_plugin(self, session_id: str, name: str) -> None:
        """Run a loaded plugin's own tests; raises PluginError when one fails."""
        self._sessions.get(session_id).test_plugin(name)

    def update_session_var(self, session_id: str, variables: Mapping[str, str]) -> None:
        """Set variables that plugins read with `ctx.get_session_var`."""
        self._sessions.get(session_id).update_variables(variables)

    def close(self) -> None:
        """Stop every session and let go of everything; in a fork of our process, do nothing."""
        self._forgotten.detach()
        self._let_go()


def _snapshot_options(
    path: str | Path,
    max_bytes: int,
    timeout: float,
    token: CancellationToken | None,
    *,
    trust: bool = False,
) -> SnapshotOptions:
    check_seconds("timeout", timeout)
    return SnapshotOptions(
        path=Path(path).absolute(),
        key_folder=variables.key_folder(),
        max_bytes=max_bytes,
        seconds=timeout,
        trust=trust,
        token=token or CancellationToken(),
    )


def _close_forgotten(env_dir: Path, let_go: Callable[[], None]) -> None:
    """Called by the garbage collector, on any thread, which may hold any lock: do not wait."""
    threading.Thread(target=let_go, name="taskweaver-environment-end", daemon=True).start()
    warnings.warn(
        f"An Environment in {env_dir} was not closed: use it in a with block, or call close.",
        ResourceWarning,
        stacklevel=1,
    )


def _mode_of(mode: EnvMode) -> EnvMode:
    try:
        return EnvMode(mode)
    except ValueError:
        known = ", ".join(str(one) for one in EnvMode)
        raise ConfigError(f"{mode!r} is no kernel mode; env_mode is one of: {known}.") from None
