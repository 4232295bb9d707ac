"""Environment: the door to kernels.

An environment holds sessions; a session has one kernel at a time, a folder,
and a working directory. What a session is made of is in `ces/kernel_session.py`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import zmq

from taskweaver_ext.ces.child_environment import child_environment, granted_by_name
from taskweaver_ext.ces.interpreters import environment_of, find_python
from taskweaver_ext.ces.kernel_keeper import KernelKeeper
from taskweaver_ext.ces.kernel_session import MAX_DEATHS_IN_A_ROW, KernelSession
from taskweaver_ext.ces.kernels.execution import OnInput
from taskweaver_ext.ces.kernels.host import EnvMode, KernelHost, StartedKernel, start_kernel
from taskweaver_ext.ces.kernels.local import LocalKernelHost, LocalKernelSettings
from taskweaver_ext.ces.kernels.spare import SpareKernels
from taskweaver_ext.ces.kernels.tracing import traced_if_wanted
from taskweaver_ext.ces.kernels.zygote import Zygotes, can_fork
from taskweaver_ext.ces.late_output import OnLateOutput
from taskweaver_ext.ces.output_sink import MAX_OUTPUT_BYTES
from taskweaver_ext.ces.program_site import ProgramSite
from taskweaver_ext.ces.recorded_run import OnEvent, OnOutput
from taskweaver_ext.ces.results import ExecutionResult
from taskweaver_ext.ces.session_folder import SessionFolder
from taskweaver_ext.ces.session_info import SessionInfo
from taskweaver_ext.ces.startup_scripts import StartupScripts
from taskweaver_ext.errors import SessionError

if TYPE_CHECKING:
    from taskweaver_ext.ces.kernels.container_description import ContainerSettings
    from taskweaver_ext.ces.kernels.gateway_api import GatewaySettings


class Environment:
    """Run code on persistent kernels and hear what it does while it runs.

    Sessions are independent and may be used from different threads;
    executions on one session wait for each other. Use it as a context
    manager: leaving it stops every session.
    """

    def __init__(
        self,
        env_dir: str | Path = "env",
        env_mode: EnvMode = EnvMode.Local,
        *,
        env_id: str | None = None,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        memory_limit: int | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        warm_start: bool = True,
        preload: Sequence[str] = (),
        spare_kernels: int = 0,
        max_kernels: int | None = None,
        idle_seconds: float | None = None,
        max_deaths_in_a_row: int = MAX_DEATHS_IN_A_ROW,
        prelude: str | None = None,
        modules: Sequence[str | Path] = (),
        container: ContainerSettings | None = None,
        gateway: GatewaySettings | None = None,
    ) -> None:
        """Settings of all sessions.

        Args:
            env_dir: Where session folders are made.
            python: The interpreter of the kernels; found by itself when None.
            env: Variables for the kernels, besides the harmless ones of ours.
            memory_limit: Bytes a local kernel may allocate; beyond is a MemoryError.
            max_output_bytes: What one execution may write before it is stopped.
            warm_start: Fork kernels from a process that has imported what they need.
            preload: Modules that process imports besides.
            spare_kernels: How many local kernels are started before they are asked for.
            max_kernels: How many kernels may live at once; the one that has been idle longest is
                put away for the next. None: no bound.
            idle_seconds: After how long an idle kernel is put away. None: never.
            max_deaths_in_a_row: After how many a session's kernel is not started by itself again.
            prelude: Code that runs in every kernel when it starts.
            modules: Folders whose `*.py` files run in every kernel when it starts, their public
                names becoming the user's; a later folder's file replaces one of the same name.
            container: How containers are made, with `EnvMode.Container`.
            gateway: Which gateway is used, with `EnvMode.Gateway`. None: the one that
                TASKWEAVER_GATEWAY_URL names, else one that processes of this user share.
        """
        self.env_id = env_id or f"env-{uuid.uuid4().hex[:8]}"
        self.env_dir = Path(env_dir).absolute()
        self.env_mode = env_mode
        self._container = container
        self._gateway = gateway
        self._python = python
        self._variables = dict(env or {})
        self._memory_limit = memory_limit
        self._max_output_bytes = max_output_bytes
        self._max_deaths_in_a_row = max_deaths_in_a_row
        self._startup_scripts = StartupScripts(prelude, modules)
        is_warm = env_mode is EnvMode.Local and warm_start and can_fork()
        self._zygotes = Zygotes(preload) if is_warm else None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._keeper = KernelKeeper(max_kernels, idle_seconds)
        self._sessions: dict[str, KernelSession] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._warm_up()
        can_spare = env_mode is EnvMode.Local and spare_kernels > 0
        self._spares = SpareKernels(spare_kernels, self._start_spare) if can_spare else None

    def _warm_up(self) -> None:
        """Let the zygote import while the caller does other things."""
        if self._zygotes is not None:
            self._zygotes.get(*self._interpreter(self.env_dir))

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
            cwd: Where its code runs, which must exist; by default a new folder in its own.
            on_late_output: Told what executions write after their end, on a thread of ours.
            wait: Until the kernel is ready. Otherwise it starts while the caller does something
                else, the first execution waits for it, and a failure to start is that one's.

        Raises:
            SessionError: The session exists, or a folder cannot be used.
            KernelStartError: The kernel did not become ready.
        """
        if self._is_closed:
            raise SessionError("The environment has been closed. Open another to start sessions.")
        folder = SessionFolder.prepare(self.env_dir, session_id, session_dir, cwd)
        session = KernelSession(
            session_id,
            folder,
            mode=self.env_mode,
            start_kernel=lambda: traced_if_wanted(
                self._start_kernel(session_id, folder.cwd), session_id
            ),
            keeper=self._keeper,
            on_late_output=on_late_output,
            max_output_bytes=self._max_output_bytes,
            startup_scripts=self._startup_scripts,
            max_deaths_in_a_row=self._max_deaths_in_a_row,
        )
        with self._lock:
            if session_id in self._sessions:
                raise SessionError(
                    f"Session {session_id!r} is running already. Use it, or stop it first."
                )
            self._sessions[session_id] = session
        self._keeper.add(session)
        if not wait:
            session.start_meanwhile()
            return
        try:
            session.start()
        except BaseException:
            with self._lock:
                del self._sessions[session_id]
            self._keeper.remove(session)
            session.stop()
            raise

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
        """
        return self._session(session_id).execute(
            code,
            exec_id,
            on_output=on_output,
            on_event=on_event,
            on_input=on_input,
            timeout=timeout,
        )

    def programs(self, session_id: str) -> AbstractContextManager[ProgramSite]:
        """Where shells and programs of a session run that has a container: inside of it.

        The container stays for as long as this is used, also while the kernel is busy; one
        that is gone is replaced first.

        Raises:
            SessionError: There is no such session.
            KernelError: Its container is gone, and another does not start.
        """
        return self._session(session_id).programs()

    def has_session(self, session_id: str) -> bool:
        """Whether a session was started and not stopped."""
        with self._lock:
            return session_id in self._sessions

    def interrupt(self, session_id: str, kill_after: float | None = None) -> None:
        """Interrupt what runs in a session, if anything does; from any thread.

        With `kill_after`, the kernel is killed if the code has not ended so many seconds later.
        """
        self._session(session_id).interrupt(kill_after)

    def restart_session(self, session_id: str) -> None:
        """Give a session a fresh kernel with its plugins; what runs is cancelled."""
        self._session(session_id).restart()

    def stop_session(self, session_id: str) -> None:
        """Stop a session and everything it started; its folder stays."""
        session = self._session(session_id)
        with self._lock:
            self._sessions.pop(session_id, None)
        try:
            session.stop()
        finally:
            self._keeper.remove(session)  # only now: its kernel counted until it was gone

    def sessions(self) -> list[SessionInfo]:
        """What can be seen of all sessions now, in the order they were started."""
        with self._lock:
            sessions = list(self._sessions.values())
        return [session.describe() for session in sessions]

    def load_plugin(
        self, session_id: str, name: str, source: str, config: Mapping[str, Any] | None = None
    ) -> None:
        """Load a plugin into a session's kernel, and into those that follow it.

        Raises:
            PluginError: Its source raised, or registers no plugin.
        """
        self._session(session_id).load_plugin(name, source, dict(config or {}))

    def unload_plugin(self, session_id: str, name: str) -> None:
        """Take a plugin out of a session."""
        self._session(session_id).unload_plugin(name)

    def test_plugin(self, session_id: str, name: str) -> None:
        """Run a loaded plugin's own tests; raises PluginError when one fails."""
        self._session(session_id).test_plugin(name)

    def update_session_var(self, session_id: str, variables: Mapping[str, str]) -> None:
        """Set variables that plugins read with `ctx.get_session_var`."""
        self._session(session_id).update_variables(variables)

    def close(self) -> None:
        """Stop every session and let go of everything."""
        with self._lock:
            self._is_closed = True
            sessions, self._sessions = list(self._sessions.values()), {}
        self._keeper.close()
        for session in sessions:
            session.stop()
        if self._spares is not None:
            self._spares.close()
        if self._zygotes is not None:
            self._zygotes.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _session(self, session_id: str) -> KernelSession:
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None:
            raise SessionError(
                f"There is no session {session_id!r}: it was never started, or has been stopped."
                " Call start_session first."
            )
        return session

    def _start_kernel(self, session_id: str, cwd: Path) -> StartedKernel:
        if self.env_mode is EnvMode.Container:
            return start_kernel(self._make_container_host(session_id, cwd))
        if self.env_mode is EnvMode.Gateway:
            return start_kernel(self._make_gateway_host(session_id, cwd))
        python, environment = self._interpreter(cwd)
        is_common = python == self._interpreter(self.env_dir)[0]
        if self._spares and is_common and (spare := self._spares.take()) is not None:
            belongs_to = {"session_id": session_id, "cwd": str(cwd)}
            return StartedKernel(spare.host, spare.connection, belongs_to)
        return start_kernel(self._make_local_host(session_id, cwd, python, environment))

    def _start_spare(self) -> StartedKernel:
        python, environment = self._interpreter(self.env_dir)
        return start_kernel(self._make_local_host("", Path("/"), python, environment))

    def _interpreter(self, cwd: Path) -> tuple[str, dict[str, str]]:
        environment = child_environment(self._variables)
        python = find_python(self._python, cwd, environment)
        return python, environment_of(python, environment)

    def _make_local_host(
        self, session_id: str, cwd: Path, python: str, environment: dict[str, str]
    ) -> KernelHost:
        settings = LocalKernelSettings(
            python=python,
            cwd=cwd,
            environment=environment,
            env_id=self.env_id,
            session_id=session_id,
            memory_limit_bytes=self._memory_limit,
        )
        zygote = self._zygotes.get(python, environment) if self._zygotes else None
        return LocalKernelHost(settings, self._context, zygote)

    def _make_container_host(self, session_id: str, cwd: Path) -> KernelHost:
        # Only who runs containers pays for their machinery.
        from taskweaver_ext.ces.kernels.container import (
            ContainerKernelHost,
            ContainerKernelSettings,
        )
        from taskweaver_ext.ces.kernels.container_description import ContainerSettings

        settings = ContainerKernelSettings(
            container=self._container or ContainerSettings(),
            cwd=cwd,
            env_id=self.env_id,
            session_id=session_id,
            environment={**granted_by_name(), **self._variables},
        )
        return ContainerKernelHost(settings, self._context)

    def _make_gateway_host(self, session_id: str, cwd: Path) -> KernelHost:
        # Only who uses gateways pays for their machinery.
        from taskweaver_ext.ces.kernels.gateway import GatewayKernelHost, GatewayKernelSettings
        from taskweaver_ext.ces.kernels.shared_gateway import find_gateway

        settings = GatewayKernelSettings(
            gateway=self._gateway or find_gateway(),
            cwd=cwd,
            env_id=self.env_id,
            session_id=session_id,
            environment=self._variables,
        )
        return GatewayKernelHost(settings)
