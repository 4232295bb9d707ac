"""`taskweaver-ext run`: run Python code on a kernel, as `python` would run it, and watch it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import ExecutionEvent, InputSettled, StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.client.execution import END_OF_INPUT
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES, EnvMode
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TIMED_OUT
from taskweaver_ext.cli.run_view import Completion, JsonView, PlainView
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.cli.standard_input import StandardInput, is_terminal
from taskweaver_ext.config.folders import current_folder
from taskweaver_ext.config.loading import find_variable_names
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.child_environment import rules_of
from taskweaver_ext.machine.owned_folders import disown_folder, make_owned_folder

_SESSION = "run"
_PATIENCE_SECONDS = 2.0
"""How long interrupted code may take before we speak of killing it, or do it when asked to end."""
_SETUP_SOURCE = Path(__file__).with_name("script_setup.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is to be run, and what it is to know of itself."""

    code: str
    name: str
    """As it stands in tracebacks."""
    path: Path | None = None
    arguments: tuple[str, ...] = ()
    is_from_stdin: bool = False

    def setup_code(self) -> str:
        """Code that makes the kernel ready for it."""
        path = str(self.path) if self.path else None
        folder = str(self.path.parent) if self.path else None
        arguments = (self.name, path, folder, [*self.arguments])
        call = f"behave_like_a_script(shell, *{arguments!r})"
        source = f"{_SETUP_SOURCE.read_text(encoding='utf-8')}\n{call}\n"
        return f"exec({source!r}, {{'shell': get_ipython(), '__name__': 'taskweaver_script'}})"


@click.command(short_help="Run Python code and show its output as it happens.")
@click.argument("arguments", metavar="[FILE | -] [ARGUMENTS]...", nargs=-1)
@click.option("-c", "code", metavar="CODE", help="Run this code instead of a file.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop the code after so long.",
)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the code runs; here by default.",
)
@click.option(
    "--kernel",
    type=click.Choice([mode.value for mode in EnvMode]),
    default=EnvMode.Local.value,
    show_default=True,
    help="Where its kernel runs.",
)
@click.option(
    "--python",
    metavar="VERSION|PATH",
    help="The interpreter, such as 3.12 or .venv; found by itself by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Write events as JSON, one per line.")
@click.option("--keep", is_flag=True, help="Keep the session's folder and say where it is.")
def command(
    arguments: tuple[str, ...],
    code: str | None,
    timeout: float | None,
    cwd: Path | None,
    kernel: str,
    python: str | None,
    as_json: bool,
    keep: bool,
) -> int:
    """Run Python code and show its output as it happens.

    The code is a FILE, standard input (-), or the CODE after -c. It runs as
    `python` would run it. Put -- before arguments of its own that begin with a
    dash.

    Ctrl-C interrupts the code; a second one kills it.

    Exit codes: 0 done, 1 the code failed, 2 misused, 124 timed out, 130
    interrupted.
    """
    script = _find_script(arguments, code)
    screen = Screen()
    run = _Run(script, screen, as_json=as_json, timeout=timeout)
    try:
        with SignalWatch() as signals, _session_folder(run, is_kept=keep) as folder:
            try:
                return run.on_kernel(folder, signals, mode=EnvMode(kernel), python=python, cwd=cwd)
            except KeyboardInterrupt:  # before the code began
                screen.say("[Cancelled]")
                return EXIT_INTERRUPTED
    finally:
        screen.close()


def _find_script(arguments: tuple[str, ...], code: str | None) -> Script:
    """Read the code from where the user says it is."""
    if code is not None:
        return Script(code=code, name="<string>", arguments=("-c", *arguments))
    if not arguments:
        raise click.UsageError("There is nothing to run: give a FILE, -c CODE, or - for stdin.")
    if arguments[0] == "-":
        text = sys.stdin.read() if sys.stdin else ""
        return Script(code=text, name="<stdin>", arguments=arguments, is_from_stdin=True)
    path = Path(arguments[0])
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} is not Python code: {error}.") from error
    return Script(code=text, name=str(path.absolute()), path=path.absolute(), arguments=arguments)


@contextlib.contextmanager
def _session_folder(run: _Run, *, is_kept: bool) -> Iterator[Path]:
    """A private folder, removed at the end unless the user may still want something from it."""
    folder = make_owned_folder("run")
    try:
        yield folder
    finally:
        if is_kept:
            run.screen.say(f"[Kept] {folder}")
        if is_kept or run.has_files_in(folder):
            disown_folder(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


class _Run:
    """One script on one kernel."""

    def __init__(
        self, script: Script, screen: Screen, *, as_json: bool, timeout: float | None
    ) -> None:
        self.screen = screen
        self._script = script
        self._timeout = timeout
        self._view = Completion(JsonView(screen) if as_json else PlainView(screen))
        self._shows_prompts = not as_json
        self._input = StandardInput()
        self._environment: Environment
        self._signals: SignalWatch
        self._result: ExecutionResult | None = None
        self._is_unheard = False

    def has_files_in(self, folder: Path) -> bool:
        """Whether the code left artifacts there, whose paths have been shown."""
        artifacts = self._result.artifact if self._result else []
        return any(Path(artifact.file_name).is_relative_to(folder) for artifact in artifacts)

    def on_kernel(
        self,
        folder: Path,
        signals: SignalWatch,
        *,
        mode: EnvMode,
        python: str | None,
        cwd: Path | None,
    ) -> int:
        """Start a kernel, run the script on it, and return the exit code."""
        self._signals = signals
        if cwd is None and KERNEL_MODES[mode].starts_here:
            cwd = current_folder()
        # A process to fork kernels from pays only where more than one is needed.
        rules = rules_of(find_variable_names(), is_for_person=True)
        with Environment(
            folder, mode, python=python, env_rules=rules, warm_start=False
        ) as self._environment:
            self._environment.start_session(
                _SESSION, session_dir=folder, cwd=cwd, on_late_output=self._view.show
            )
            signals.pass_to(self._stop, self._suggest_killing, _PATIENCE_SECONDS)
            try:
                result = self._execute()
            finally:
                self._input.close()
        self._result = result
        if self.screen.failure is None:
            self._view.finish(result)  # only now can no late output come any more
        return self._exit_code(result)

    def _execute(self) -> ExecutionResult:
        environment = self._environment
        setup = environment.execute_code(
            _SESSION, self._script.setup_code(), on_event=self._show_limits, timeout=60
        )
        if not setup.is_success:
            return setup
        may_ask = is_terminal() or not self._script.is_from_stdin
        return environment.execute_code(
            _SESSION,
            _keep_line_numbers(self._script.code),
            on_event=self._receive,
            on_input=self._ask if may_ask else None,
            timeout=self._timeout,
        )

    def _show_limits(self, event: ExecutionEvent) -> None:
        """What a machine cannot do for code is told to the first that runs, which is ours."""
        if isinstance(event, StatusChanged) and event.status == "limit":
            self._view.show(event)

    def _receive(self, event: ExecutionEvent) -> None:
        if isinstance(event, StatusChanged) and event.status == "running" and self._signals.count:
            self._stop(signal.SIGINT)  # it came when there was nothing to interrupt yet
        if isinstance(event, InputSettled) and event.outcome == "cancelled":
            self._input.cancel()
        self._view.show(event)
        if self.screen.failure is not None and not self._is_unheard:
            self._is_unheard = True  # once: a second interrupt would disturb the first
            self._interrupt(kill_after=_PATIENCE_SECONDS)

    def _stop(self, number: int) -> None:
        """Interrupt the code, on the thread for signals; at once and for good the second time."""
        self.screen.leave_line()
        if self._signals.count > 1:
            self._interrupt(kill_after=0)
        else:
            self._interrupt(kill_after=None if number == signal.SIGINT else _PATIENCE_SECONDS)

    def _interrupt(self, kill_after: float | None) -> None:
        with contextlib.suppress(SessionError):  # it is over already
            self._environment.interrupt(_SESSION, kill_after)

    def _suggest_killing(self) -> None:
        self.screen.say("[Interrupting] The code still runs; Ctrl-C again kills it.")

    def _ask(self, prompt: str, password: bool) -> str:
        if self._shows_prompts:
            self.screen.write("stderr" if password else "stdout", prompt)
        line = self._input.read_line(is_hidden=password)
        if password and is_terminal():
            self.screen.write("stderr", "\n")  # the one that was typed is hidden as well
        return END_OF_INPUT if line is None else line

    def _exit_code(self, result: ExecutionResult) -> int:
        if self.screen.failure is not None:
            self.screen.say_failure()
            return EXIT_FAILED
        if result.is_success:
            return EXIT_DONE
        if result.status is ExecutionStatus.TIMEOUT:
            return EXIT_TIMED_OUT
        return EXIT_INTERRUPTED if self._signals.count else EXIT_FAILED


def _keep_line_numbers(code: str) -> str:
    """IPython drops blank lines at the start, and tracebacks would be off by as many."""
    first_line = code.partition("\n")[0]
    return code if first_line.strip() else f"#{code}"
