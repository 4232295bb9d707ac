"""ExecutorRegistry: language -> executor, started when it is first used."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.executor import Executor, OnInput, RunOptions
from taskweaver_ext.ces.execution.late_output import OnLateOutput
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.client.execution import END_OF_INPUT
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES, EnvMode, ProgramPlace
from taskweaver_ext.ces.process import DEFAULT_TIMEOUT_SECONDS, ProcessExecutor
from taskweaver_ext.ces.programs.exec_errors import exec_error
from taskweaver_ext.ces.programs.languages import (
    BUILT_IN,
    EVERYWHERE,
    Language,
    by_canonical_name,
    canonical_name,
    find_language,
)
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.program import ProgramLimits
from taskweaver_ext.ces.programs.shell_completion import ShellCompletion, ShellKnowledge
from taskweaver_ext.ces.programs.site import ProgramSite, ProgramSites
from taskweaver_ext.ces.programs.tools import can_run
from taskweaver_ext.ces.sessions.session_folder import refuse_to_share
from taskweaver_ext.ces.shell import ShellExecutor
from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import KernelDiedError, KernelStartError, SessionError
from taskweaver_ext.machine.child_environment import variables_for_programs
from taskweaver_ext.machine.owned_folders import GivenFolder
from taskweaver_ext.text.redaction import Redactor

_NAME = "kernel:python"
"""What the kernel is called in the audit log."""


class KernelExecutor(Executor):
    """The Python kernel of a session, which is started by its first use if it is not there.

    Threads:
        Any thread may call any method. `_lock` guards `_accepted`; `_starting` is held
        while the session begins to start, so that all callers get the same one.
    """

    def __init__(
        self,
        environment: Environment,
        session_id: str,
        *,
        cwd: str | Path | None,
        audit: AuditLog,
    ) -> None:
        """`cwd` is the working directory of a session that is started here."""
        self.environment = environment
        self.session_id = session_id
        self._cwd = cwd
        self._audit = audit
        self._lock = threading.Lock()
        self._accepted: list[CancellationToken] = []
        self._starting = threading.Lock()
        self._is_checked = False
        self._has_started_session = False
        self._is_stopped = False
        self._is_closed = False

    def run(self, code: str, options: RunOptions) -> ExecutionResult:
        """Run code on the kernel; `on_input`, or else lines of `stdin`, answer `input()`."""
        result = ExecutionResult(execution_id=options.execution_id, code=code)
        failure = self._audit.write_start(
            result.execution_id, executor=_NAME, code=code, has_stdin=options.stdin is not None
        )
        try:
            if self._is_closed:
                raise SessionError("This executor has been closed. Make another one.")
            on_input = options.on_input or _answer_from(options.stdin)
            with self._accepting(options.token):
                self.ensure_session()
                result = self.environment.run(
                    self.session_id, code, replace(options, on_input=on_input)
                )
        except KernelStartError as error:
            result.status = ExecutionStatus.ERROR
            result.error = exec_error(self._masked(error), "KERNEL_START")
        except KernelDiedError as error:
            result.status = ExecutionStatus.DIED
            result.error = exec_error(self._masked(error), "KERNEL_DIED")
        finally:
            failure = self._audit.write_end(result, executor=_NAME) or failure
        if failure is not None:
            result.notices.append(failure)
        return result

    def _masked(self, error: Exception) -> str:
        redactor = self.environment.redactor
        return str(error) if redactor is None else redactor.redact(str(error))

    @contextlib.contextmanager
    def _accepting(self, token: CancellationToken) -> Iterator[None]:
        with self._lock:
            self._accepted.append(token)
        try:
            yield
        finally:
            with self._lock:
                self._accepted.remove(token)

    def ensure_session(self) -> None:
        """Begin to start the session if need be; its first execution waits for the kernel."""
        with self._starting:
            if self._is_stopped:
                raise SessionError("This executor has been closed. Make another one.")
            if self._is_checked:
                return
            if not self.environment.has_session(self.session_id):
                # Not waiting here: an execution that waits can be interrupted.
                self.environment.start_session(self.session_id, cwd=self._cwd, wait=False)
                self._has_started_session = True
            self._is_checked = True

    def interrupt(self, *, kill: bool = False) -> bool:
        """Interrupt what runs in the session, or is about to; with `kill`, variables are lost."""
        kill_after = 0.0 if kill else None
        with self._lock:
            first = self._accepted[0] if self._accepted else None
        with contextlib.suppress(SessionError):  # there is no session yet, or no more
            if self.environment.interrupt(self.session_id, kill_after):
                return True
        if first is not None:  # it is on its way to the session
            first.cancel(kill_after)
        return first is not None

    def close(self) -> None:
        """Run nothing more; programs may still use the session."""
        self._is_closed = True

    def stop_session(self) -> None:
        """Stop the session if it was started here."""
        with self._starting:
            self._is_stopped = True
            has_started, self._has_started_session = self._has_started_session, False
        if has_started:
            with contextlib.suppress(SessionError):  # it was stopped already
                self.environment.stop_session(self.session_id)


def _answer_from(stdin: str | bytes | None) -> OnInput | None:
    """A function that answers questions with lines that are known beforehand."""
    if stdin is None:
        return None
    text = stdin.decode("utf-8", "replace") if isinstance(stdin, bytes) else stdin
    lines = deque(text.splitlines())

    def answer(_prompt: str, _password: bool) -> str:
        return lines.popleft() if lines else END_OF_INPUT

    return answer


class SessionSites:
    """The session's container or sandbox, whichever that is at the time."""

    def __init__(self, kernel: KernelExecutor) -> None:
        self._kernel = kernel

    def working_directory(self, path: str | Path | None) -> Path:
        """A path of the session's folder on this machine, or of the container."""
        return Path(path) if path is not None else Path()

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """These, besides what the container has; nothing of our environment."""
        return variables_for_programs(variables)

    @contextlib.contextmanager
    def use(self) -> Iterator[ProgramSite]:
        """The container of now; one that is gone is replaced first."""
        self._kernel.ensure_session()
        with self._kernel.environment.programs(self._kernel.session_id) as site:
            yield site


class RefusingExecutor(Executor):
    """Stands where code would run on this machine although its session runs elsewhere."""

    def __init__(self, name: str, mode: EnvMode) -> None:
        self._error = exec_error(
            f"{name} would run on this machine, outside the session's {mode.value};"
            " use python there, or a session that is local or in a container",
            "NOT_ISOLATED",
        )

    def run(self, code: str, options: RunOptions) -> ExecutionResult:
        """Give a result that says why nothing was run."""
        return ExecutionResult(
            execution_id=options.execution_id,
            code=code,
            status=ExecutionStatus.ERROR,
            error=self._error,
        )

    def interrupt(self, *, kill: bool = False) -> bool:
        """Nothing runs."""
        return False

    def close(self) -> None:
        """Nothing is open."""


class ExecutorRegistry(Closeable):
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
        redactor: Redactor | None = None,
    ) -> None:
        """Settings of all executors.

        Args:
            environment: Has the kernel that `python` runs on; without one it is a fresh process.
            session_id: The kernel's session, started by the first code that needs it.
            folder: Where long outputs are kept; by default in one that goes with
                the registry and its last result.
            cwd: Where the shell starts and programs run. A session in a container that is started
                here has it as its working directory.
            env: Variables for them, besides the harmless ones of ours.
            init_script: Run in the shell before its first command.
            languages: Languages added to the built-in ones.
            limits: What a fresh process may use.
            default_timeout: Seconds a fresh process may take if nothing else is said.
            audit: Where executions are written down; by default in the folder.
            on_late_output: Told what the shell's background processes write.
            redactor: Masks secrets in what the shell and programs write; by default the
                environment's, which masks what the kernel says.

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
        if redactor is None and environment is not None:
            redactor = environment.redactor
        self._redactor = redactor
        self._audit = audit or AuditLog(
            self._folder / "audit.jsonl", who=session_id, redactor=redactor
        )
        self._kernel: KernelExecutor | None = None
        if environment is not None:
            mounted = cwd if is_confined else None
            self._kernel = KernelExecutor(environment, session_id, cwd=mounted, audit=self._audit)
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
        """The names of all languages that are known."""
        return tuple(sorted({*BUILT_IN, *self._languages}))

    def available_languages(self) -> tuple[str, ...]:
        """The names of those whose interpreter or compiler is there, as far as that is known.

        Beside a confined kernel, which may not run yet, it is not: there these are the languages
        that every place should have, and those that were added.
        """
        if self._kernel is None or self._place_of_programs == "here":
            return tuple(name for name in self.languages if self._is_available(name))
        return tuple(sorted({*EVERYWHERE, *self._languages}))

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

    def shell_state(self) -> ShellKnowledge | None:
        """Where programs would begin that the session's shell starts on this machine.

        Returns:
            None: it does not say.

        Raises:
            SessionError: The session's programs run elsewhere, or the registry has been closed.
        """
        if self._kernel is not None and (place := self._place_of_programs) != "here":
            where = self._kernel.environment.env_mode.value
            advice = " `! command` runs inside, without one." if place != "refused" else ""
            raise SessionError(
                "A program with a terminal would run on this machine, outside the session's"
                f" {where}.{advice}"
            )
        shell = self.get("bash")
        return shell.ask() if isinstance(shell, ShellExecutor) else None

    def complete_shell(self, line: str) -> list[ShellCompletion]:
        """What can be typed at the end of a line for the shell; nothing is started for it."""
        shell = self.get("bash")
        return shell.complete(line) if isinstance(shell, ShellExecutor) else []

    def interrupt(self, *, kill: bool = False) -> bool:
        """Stop what runs on any executor; return whether anything did."""
        with self._lock:
            executors = list(self._executors.values())
        return sum(executor.interrupt(kill=kill) for executor in executors) > 0

    def close(self) -> None:
        """Close every executor and remove what is ours."""
        with self._lock:
            self._is_closed = True
            executors, self._executors = list(self._executors.values()), {}
        for executor in executors:
            executor.close()
        if self._kernel is not None:
            self._kernel.stop_session()
        if self._owns_audit:
            self._audit.close()
        self._given_folder.close()

    @property
    def _place_of_programs(self) -> ProgramPlace:
        if self._kernel is None:
            return "here"
        return KERNEL_MODES[self._kernel.environment.env_mode].programs

    def _is_available(self, name: str) -> bool:
        language = find_language(name, self._languages)
        if language is None or (name == "python" and self._kernel is not None):
            return language is not None
        sites = LocalSites()
        environment = sites.environment(self._env or {})
        with sites.use() as site:
            return can_run(language, site, environment, sites.working_directory(self._cwd))

    def _make(self, name: str, fresh: bool) -> Executor:
        is_configured = name in self._languages
        if name == "python" and not fresh and not is_configured and self._kernel is not None:
            return self._kernel
        sites: ProgramSites = LocalSites()
        if self._kernel is not None:
            place = self._place_of_programs
            if place == "refused":
                return RefusingExecutor(name, self._kernel.environment.env_mode)
            if place == "beside the kernel":
                sites = SessionSites(self._kernel)
            else:
                environment = self._kernel.environment
                sites = LocalSites(guard=environment.guard, rules=environment.env_rules)
        if name == "bash" and not fresh and not is_configured:
            return ShellExecutor(
                self._cwd,
                self._env,
                self._init_script,
                folder=self._given_folder,
                audit=self._audit,
                on_late_output=self._on_late_output,
                sites=sites,
                redactor=self._redactor,
            )
        return ProcessExecutor(
            name,
            cwd=self._cwd,
            env=self._env,
            languages=self._languages,
            limits=self._limits,
            default_timeout=self._default_timeout,
            folder=self._given_folder,
            audit=self._audit,
            sites=sites,
            redactor=self._redactor,
        )
