"""The executors of one session: its kernel with the plugins, its shell, and fresh processes."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.events import ExecutionEvent, LateOutput, LogRecorded
from taskweaver_ext.ces.execution.executor import OnInput, RunOptions
from taskweaver_ext.ces.execution.results import (
    ExecutionId,
    ExecutionResult,
    ExecutionStatus,
    KernelContents,
)
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.client.execution import END_OF_INPUT
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES
from taskweaver_ext.ces.programs.languages import Language, canonical_name
from taskweaver_ext.ces.programs.shell_completion import ShellCompletion, ShellKnowledge
from taskweaver_ext.ces.sessions.variables import RestoredVariables, SavedVariables
from taskweaver_ext.errors import PluginError, SessionError, TaskWeaverError
from taskweaver_ext.events.emitter import PostEventProxy, SessionEventEmitter
from taskweaver_ext.events.extras import LateOutputExtra, QuestionKind
from taskweaver_ext.events.questions import CANCELLED, Answer, Questions, new_question
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.plugins.registry import PluginEntry
from taskweaver_ext.roles.base.cancellation import Cancellation
from taskweaver_ext.roles.code_interpreter.live_output import LiveOutput
from taskweaver_ext.tools.shown_output import ShownOutput
from taskweaver_ext.traces.traces import NoTraces, TracedPost, Traces

_logger = logging.getLogger(__name__)

MAX_SHOWN_CHARS = 20_000
"""More than any text for a model or a record has room for."""


@dataclass(frozen=True, slots=True)
class CodeRun:
    """What became of code that has run."""

    result: ExecutionResult
    shown: ShownOutput
    """What it wrote and displayed, without the value of its last line."""


class CodeExecutor:
    """Run code of any language for one session, in events of a post.

    The kernel starts with the first Python code, in a container with any code, or before that
    with `start_meanwhile`.

    Threads:
        `start`, `update_session_var` and `close` are for any thread, the rest for the one
        that runs the round, which `cancellation` stops.
        `_lock` keeps the kernel from being started twice, and during `close`.
    """

    def __init__(
        self,
        environment: Environment,
        session_id: str,
        session_dir: Path,
        cwd: Path,
        emitter: SessionEventEmitter,
        plugins: Sequence[PluginEntry],
        cancellation: Cancellation,
        questions: Questions,
        *,
        plugin_problems: Sequence[str] = (),
        languages: Mapping[str, Language] | None = None,
        shell_init_script: str | None = None,
        traces: Traces | None = None,
    ) -> None:
        """Prepare to run code.

        Args:
            cwd: Where it works.
            questions: Through which code asks a person for input.
            plugin_problems: Why plugins of the project are not among `plugins`; a person is told.
            languages: Languages besides the built-in ones.
            shell_init_script: Run in each fresh shell before its first command.
            traces: Told of each run.
        """
        self.cwd = cwd
        self.plugins: tuple[PluginEntry, ...] = tuple(plugins)
        """Those that generated code can call; one that does not load is taken out."""
        self.on_input: OnInput | None = None
        """Answers `input()` in Python code, while there is a user to ask."""
        self._environment = environment
        self._emitter = emitter
        self._session_id = session_id
        self._session_dir = session_dir
        self._cancellation = cancellation
        self._questions = questions
        self._traces = traces or NoTraces()
        self._mode = KERNEL_MODES[environment.env_mode]
        self._unloaded = list(plugins)
        self._untold = list(plugin_problems)
        records = session_dir / "ces"
        self._audit = AuditLog(
            records / "audit.jsonl", who=session_id, redactor=environment.redactor
        )
        self._registry = ExecutorRegistry(
            environment,
            session_id,
            folder=records / "output",  # where the kernel has its records, too
            cwd=self.cwd,
            init_script=shell_init_script,
            languages=languages,
            audit=self._audit,
            on_late_output=self._say_late_output,
        )
        self._lock = threading.Lock()
        self._is_started = False
        self._is_ready = False
        self._is_closed = False
        self._has_given_up = False

    @functools.cached_property
    def languages(self) -> tuple[str, ...]:
        """The names of the languages that can be run, as it was when this was asked first."""
        return self._registry.available_languages()

    @property
    def is_contained(self) -> bool:
        """Whether code, of whatever language, cannot reach beyond the session's container."""
        return self._mode.is_confined

    def start_meanwhile(self) -> None:
        """Begin to start the kernel while the caller does something else."""
        if self._is_started or not self._lock.acquire(blocking=False):
            return  # another thread is at it
        try:
            # What fails here will be tried, and told, when code needs the kernel.
            with contextlib.suppress(TaskWeaverError):
                self._begin_to_start()
        finally:
            self._lock.release()

    def start(self, post: PostEventProxy | None = None) -> None:
        """Start the kernel with its plugins, unless it runs.

        Args:
            post: Shows what takes the time, and which plugins do not load.

        Raises:
            RoundCancelledError: The round was stopped; what is not loaded yet is loaded next time.
            KernelStartError: The kernel did not become ready.
            SessionError: The executor has been closed.
        """
        if post is not None and not self._is_ready:
            post.update_status("starting the kernel")
        with self._lock:
            self._begin_to_start()
            if not self._is_ready:
                with self._stoppable() as token:
                    self._environment.wait_for_kernel(self._session_id, token=token)
                self._is_ready = True
            while self._untold and post is not None:
                _warn(post, self._untold.pop(0))
            while self._unloaded:
                self._load(self._unloaded[0], post)
                del self._unloaded[0]

    def _begin_to_start(self) -> None:
        if self._is_closed:
            raise SessionError("The session has been stopped. Start another one.")
        if self._is_started:
            return
        self._environment.start_session(
            self._session_id,
            self._session_dir,
            self.cwd,
            on_late_output=self._say_late_output,
            wait=False,
        )
        self._is_started = True
        self._registry.get("python")  # from now on `close` interrupts the kernel

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[CancellationToken]:
        """A token that a wish to stop cancels while the block runs; raises RoundCancelledError."""
        token = CancellationToken()
        try:
            with self._cancellation.stopping(token.cancel):
                yield token
        except TaskWeaverError:
            self._cancellation.check()  # what was stopped has not failed
            raise

    def recover(self) -> None:
        """Give a kernel that died too often another chance: a person has asked for more."""
        if self._has_given_up:
            self._environment.restart_session(self._session_id)
            self._has_given_up = False

    def run(self, language: str, code: str, post: PostEventProxy) -> CodeRun:
        """Run code to its end and show in the post what it does.

        Raises:
            RoundCancelledError: The round was stopped before it began.
            KernelStartError: The kernel did not become ready.
        """
        name = canonical_name(language)
        place = TracedPost(
            session_id=self._session_id,
            round_id=post.round_id,
            post_id=post.post.id,
            role=post.post.send_from,
        )
        with self._traces.execution(place, name, code) as tell_tracer:
            run = self._run(name, code, post)
            tell_tracer(run.result)
        return run

    def _run(self, name: str, code: str, post: PostEventProxy) -> CodeRun:
        execution_id = ExecutionId(post.post.id)
        if name == "python" or self._mode.programs == "beside the kernel":
            self.start(post)
        shown = ShownOutput(MAX_SHOWN_CHARS, with_value=False)
        output = LiveOutput(
            post, execution_id, self._session_dir, on_question_void=self._questions.cancel
        )

        def on_event(event: ExecutionEvent) -> None:
            output.on_event(event)
            shown.receive(event)

        with output, self._stoppable() as token:
            post.update_status(f"running {name} code")
            options = RunOptions(
                execution_id=execution_id,
                on_event=on_event,
                on_input=self._input_for(execution_id, output),
                record_on_disk=True,  # the session's journal refers to it
                token=token,
            )
            result = self._registry.get(name).run(code, options)
        if result.status is ExecutionStatus.DIED and result.death is None:
            self._has_given_up = True
        return CodeRun(result, shown)

    def shell_state(self) -> ShellKnowledge | None:
        """Where a program begins that a person starts beside the shell; None if it does not say.

        Raises:
            SessionError: The session's programs do not run on this machine.
        """
        return self._registry.shell_state()

    def complete_shell(self, line: str) -> list[ShellCompletion]:
        """What can be typed at the end of a line for the shell; from any thread."""
        return self._registry.complete_shell(line)

    def kernel_contents(self) -> KernelContents | None:
        """Return what generated code would find in the kernel, if it runs and says so.

        Raises:
            RoundCancelledError: The round was stopped.
        """
        if not self._is_started:
            return None
        with self._stoppable() as token:
            return self._environment.kernel_contents(self._session_id, token=token)

    def snapshot(self, path: Path) -> SavedVariables:
        """Save the variables of the kernel to a file.

        Raises:
            RoundCancelledError: It was stopped.
            SessionError: There is no kernel, or the file cannot be written.
        """
        if not self._is_started:
            raise SessionError("No Python code has run here yet, so there are no variables.")
        with self._stoppable() as token:
            return self._environment.snapshot(self._session_id, path, token=token)

    def restore_variables(self, path: Path, *, trust: bool) -> RestoredVariables:
        """Load the variables of a file into the kernel, which is started if need be.

        Raises:
            RoundCancelledError: It was stopped.
            SessionError: The file is not there, or cannot be trusted.
        """
        self.start()
        with self._stoppable() as token:
            return self._environment.restore(self._session_id, path, trust=trust, token=token)

    def update_session_var(self, variables: dict[str, str]) -> None:
        """Set what plugins read with `ctx.get_session_var`."""
        self.start()
        self._environment.update_session_var(self._session_id, variables)

    def close(self) -> None:
        """End the kernel, the shell and everything they started."""
        self._registry.interrupt(kill=True)
        with self._lock:
            was_started, self._is_started = self._is_started, False
            self._is_closed = True
        self._registry.close()
        self._audit.close()
        if was_started:
            self._environment.stop_session(self._session_id)

    def _input_for(self, execution_id: ExecutionId, output: LiveOutput) -> OnInput | None:
        """Return what answers `input()` of one execution, if anybody can be asked."""
        ask_person = self.on_input
        if ask_person is None and not self._questions.accepts_answers:
            return None

        def ask(prompt: str, password: bool) -> str:
            kind: QuestionKind = "password" if password else "input"

            def call() -> Answer:
                assert ask_person is not None
                text = ask_person(prompt, password)
                return CANCELLED if text == END_OF_INPUT else Answer("answered", text)

            answer = self._questions.ask(
                new_question(kind, prompt, execution_id),
                ask_person and call,
                settled=lambda: CANCELLED if output.has_ended else None,
            )
            return answer.text if answer.outcome == "answered" else END_OF_INPUT

        return ask

    def _say_late_output(self, output: LateOutput) -> None:
        """Tell the session what code writes after its end."""
        details: LateOutputExtra = {
            "stream": output.stream,
            "text": output.text,
            "execution_id": output.execution_id,
        }
        self._emitter.emit_session_event(SessionEventType.session_late_output, output.text, details)

    def _load(self, plugin: PluginEntry, post: PostEventProxy | None) -> None:
        """Load a plugin; one that cannot be loaded is left out, which the post says."""
        if post is not None:
            post.update_status(f"loading the plugin {plugin.name}")
        try:
            with self._stoppable() as token:
                self._environment.load_plugin(
                    self._session_id,
                    plugin.name,
                    plugin.read_source(),
                    dict(plugin.configurations),
                    token=token,
                )
        except PluginError as error:
            _logger.warning("The plugin %r is left out: %s", plugin.name, error)
            self.plugins = tuple(other for other in self.plugins if other is not plugin)
            problem = f"{plugin.name}: {str(error).strip().splitlines()[-1]}"
            if post is not None:
                _warn(post, problem)
            else:
                self._untold.append(problem)


def _warn(post: PostEventProxy, problem: str) -> None:
    warning = LogRecorded(
        execution_id=ExecutionId(post.post.id),
        level="warning",
        tag="plugins",
        message=f"One is left out. {problem}",
    )
    post.emit_execution_event(warning)
