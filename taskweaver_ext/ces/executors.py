"""ExecutorRegistry: language -> executor, started when it is first used."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.late_output import OnLateOutput
from taskweaver_ext.ces.execution.recorded_run import OnEvent, OnOutput
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernel_executor import KernelExecutor, SessionUse
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES, EnvMode
from taskweaver_ext.ces.process import DEFAULT_TIMEOUT_SECONDS, ProcessExecutor
from taskweaver_ext.ces.programs.exec_errors import exec_error
from taskweaver_ext.ces.programs.languages import (
    BUILT_IN,
    Language,
    by_canonical_name,
    canonical_name,
)
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.program import ProgramLimits
from taskweaver_ext.ces.programs.site import ProgramSite, ProgramSites
from taskweaver_ext.ces.sessions.session_folder import refuse_to_share
from taskweaver_ext.ces.shell import ShellExecutor
from taskweaver_ext.closing import ClosedByWith
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.child_environment import variables_for_programs
from taskweaver_ext.machine.owned_folders import GivenFolder


class Executor(Protocol):
    """Runs code of one language, and says while it runs what it does."""

    def execute(
        self,
        code: str,
        *,
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Run code to its end and call back, on this thread, for what it does."""

    def interrupt(self, *, kill: bool = False) -> None:
        """Stop what runs, if anything does; from any thread. With `kill`, at any price."""

    def close(self) -> None:
        """End everything and let go of it."""


class ContainerSites:
    """The session's container, whichever that is at the time."""

    def __init__(self, session: SessionUse) -> None:
        self._session = session

    def working_directory(self, path: str | Path | None) -> Path:
        """A path of the session's folder on this machine, or of the container."""
        return Path(path) if path is not None else Path()

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """These, besides what the container has; nothing of our environment."""
        return variables_for_programs(variables)

    @contextlib.contextmanager
    def use(self) -> Iterator[ProgramSite]:
        """The container of now; one that is gone is replaced first."""
        self._session.ensure()
        with self._session.environment.programs(self._session.session_id) as site:
            yield site


class RefusingExecutor:
    """Stands where code would run on this machine although its session runs elsewhere."""

    def __init__(self, name: str, mode: EnvMode) -> None:
        self._error = exec_error(
            f"{name} would run on this machine, outside the session's {mode.value};"
            " use python there, or a session that is local or in a container",
            "NOT_ISOLATED",
        )

    def execute(
        self,
        code: str,
        *,
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Give a result that says why nothing was run."""
        return ExecutionResult(
            execution_id=ExecutionId(execution_id or f"exec-{uuid.uuid4().hex[:12]}"),
            code=code,
            status=ExecutionStatus.ERROR,
            error=self._error,
        )

    def interrupt(self, *, kill: bool = False) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is open."""


class ExecutorRegistry(ClosedByWith):
    """The executors of one session: its kernel, its shell, and fresh processes.

    Use it as a context manager, or call `close`.

    Threads:
        Any thread may call any method; `_lock` guards the tables.
    """

    def __init__(
        self,
        environment: Environment | None = None,
        session_id: str = "default",
        *,
        folder: str | Path | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        init_script: str | None = None,
        languages: Mapping[str, Language] | None = None,
        limits: ProgramLimits | None = None,
        default_timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        audit: AuditLog | None = None,
        on_late_output: OnLateOutput | None = None,
    ) -> None:
        """Settings of all executors.

        Args:
            environment: Has the kernel that `python` runs on; without one it is a fresh process.
            session_id: The kernel's session, started by the first code that needs it.
            folder: Where long outputs are kept; by default in one that `close` removes.
            cwd: Where the shell starts and programs run. A session in a container that is started
                here has it as its working directory.
            env: Variables for them, besides the harmless ones of ours.
            init_script: Run in the shell before its first command.
            languages: Languages added to the built-in ones.
            limits: What a fresh process may use.
            default_timeout: Seconds a fresh process may take if nothing else is said.
            audit: Where executions are written down; by default in the folder.
            on_late_output: Told what the shell's background processes write.

        Raises:
            SessionError: The folder is in `cwd`, within reach of a container's code.
        """
        mode = EnvMode.Local if environment is None else environment.env_mode
        is_confined = KERNEL_MODES[mode].is_confined
        if is_confined and folder is not None and cwd is not None:
            refuse_to_share(Path(folder), Path(cwd))
        self._given_folder = GivenFolder(folder)
        self._folder = self._given_folder.path
        self._owns_audit = audit is None
        self._audit = audit or AuditLog(self._folder / "audit.jsonl", who=session_id)
        self._environment = environment
        self._session: SessionUse | None = None
        if environment is not None:
            mounted = cwd if is_confined else None
            self._session = SessionUse(environment, session_id, mounted)
        self._cwd = cwd
        self._env = env
        self._init_script = init_script
        self._languages = by_canonical_name(languages or {})
        self._limits = limits
        self._default_timeout = default_timeout
        self._on_late_output = on_late_output
        self._lock = threading.Lock()
        self._executors: dict[tuple[str, bool], Executor] = {}
        self._is_closed = False

    @property
    def languages(self) -> tuple[str, ...]:
        """The names of all languages that can be run."""
        return tuple(sorted({*BUILT_IN, *self._languages}))

    def get(self, language: str, fresh: bool = False) -> Executor:
        """The executor of a language; one that is unknown gives results that say so.

        Args:
            fresh: A process of its own for each run, also for `python` and `bash`.

        Raises:
            SessionError: The registry has been closed.
        """
        name = canonical_name(language)
        with self._lock:
            if self._is_closed:
                raise SessionError("This registry has been closed. Make another one.")
            key = (name, fresh)
            if key not in self._executors:
                self._executors[key] = self._make(name, fresh)
            return self._executors[key]

    def interrupt(self, *, kill: bool = False) -> None:
        """Stop whatever runs on any executor."""
        with self._lock:
            executors = list(self._executors.values())
        for executor in executors:
            executor.interrupt(kill=kill)

    def close(self) -> None:
        """Close every executor and remove what is ours."""
        with self._lock:
            self._is_closed = True
            executors, self._executors = list(self._executors.values()), {}
        for executor in executors:
            executor.close()
        if self._session is not None:
            self._session.close()
        if self._owns_audit:
            self._audit.close()
        self._given_folder.close()

    def _make(self, name: str, fresh: bool) -> Executor:
        is_configured = name in self._languages
        if name == "python" and not fresh and not is_configured and self._session is not None:
            return KernelExecutor(self._session, self._audit)
        mode = EnvMode.Local if self._environment is None else self._environment.env_mode
        place = KERNEL_MODES[mode].programs
        if place == "refused":
            return RefusingExecutor(name, mode)
        sites: ProgramSites = LocalSites()
        if place == "beside the kernel" and self._session is not None:
            sites = ContainerSites(self._session)
        if name == "bash" and not fresh and not is_configured:
            return ShellExecutor(
                self._cwd,
                self._env,
                self._init_script,
                folder=self._folder,
                audit=self._audit,
                on_late_output=self._on_late_output,
                sites=sites,
            )
        return ProcessExecutor(
            name,
            cwd=self._cwd,
            env=self._env,
            languages=self._languages,
            limits=self._limits,
            default_timeout=self._default_timeout,
            folder=self._folder,
            audit=self._audit,
            sites=sites,
        )
