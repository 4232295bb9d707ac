"""`taskweaver-ext exec`: run one program in any language and pass on what it writes."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.events import ArtifactProduced, ExecutionEvent
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus, Notice
from taskweaver_ext.ces.inside.spawner.started_process import complaint_about_folder
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES, EnvMode
from taskweaver_ext.ces.process import DEFAULT_TIMEOUT_SECONDS, ProcessExecutor
from taskweaver_ext.ces.programs.exec_errors import (
    describe_missing_site,
    exec_error,
    explain_working_directory,
)
from taskweaver_ext.ces.programs.languages import BUILT_IN
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.program import ProgramLimits
from taskweaver_ext.chat.exit_codes import EXIT_OUR_FAILURE, EXIT_TIMED_OUT
from taskweaver_ext.cli.language_table import describe_languages
from taskweaver_ext.cli.run_view import Completion, JsonView, PlainView
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.config.loading import find_variable_names, load_execution_service
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.machine.owned_folders import disown_folder, make_owned_folder

_HINTS = {
    "LANG_UNSUPPORTED": f"the languages are {', '.join(sorted(BUILT_IN))}",
    "ENOENT": "check the name, or install what is missing; exec --list shows what is there",
    "VERSION_INVALID": "exec --list shows the versions that are there",
    "CWD_INVALID": "give another folder with --cwd",
    "TIMEOUT": "--timeout SECONDS gives it more time",
    "OUTPUT_LIMIT": "--max-output SIZE lets it write more",
    "OUT_OF_MEMORY": "--memory SIZE gives it more",
    "BINARY_OUTPUT": "its raw bytes are in the file named above",
}
_PATIENCE_SECONDS = 2.0
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


class _Failure(click.ClickException):
    """Ours, not the program's."""

    exit_code = EXIT_OUR_FAILURE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def _refusal(what: str, code: str, hint: str = "") -> _Failure:
    """What is raised before a program has started."""
    return _Failure(exec_error(what, code), hint)


def _unreadable(path: str, error: OSError) -> _Failure:
    code = errno.errorcode.get(error.errno or 0, "EIO")
    return _refusal(f"{path} cannot be read: {error.strerror}", code, "check the file's name")


class _Command(click.Command):
    """A command whose misuse has an exit code that programs seldom have themselves."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Read the arguments."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            hint = "see taskweaver-ext exec --help"
            what = error.format_message().removesuffix(".")
            raise _refusal(what, "USAGE", hint) from error


def _size(value: str) -> int:
    """Read a number of bytes: 500000, 64K, 512M, 2G."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no size; write it like 500000, 64K, 512M or 2G.")
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")


def _list_languages(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if is_given:
        click.echo("\n".join(describe_languages()))
        context.exit()


@click.command(
    cls=_Command, short_help="Run one program in any language and pass on what it writes."
)
@click.argument("language")
@click.argument("file", required=False)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_languages,
    help="Show the languages with the tools and versions that are there.",
)
@click.option("-c", "code", metavar="CODE", help="Run this code instead of a file.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=DEFAULT_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="End the program after so long; 0 for never.",
)
@click.option("--cwd", metavar="FOLDER", help="Where it runs; here by default.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="A variable for it; repeatable.")
@click.option(
    "--stdin",
    metavar="TEXT|@FILE|-",
    help="What it reads: a text, a file, or our own standard input. By default nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Write events as JSON, one per line.")
@click.option("--memory", type=_size, metavar="SIZE", help="How much memory it may use.")
@click.option("--cpu", type=click.IntRange(min=1), metavar="SECONDS", help="How much CPU time.")
@click.option("--file-size", type=_size, metavar="SIZE", help="How large a file it may write.")
@click.option(
    "--max-output",
    type=_size,
    metavar="SIZE",
    help="End the program when it has written more; by default after 4G.",
)
@click.option(
    "--kernel",
    type=click.Choice([mode.value for mode, row in KERNEL_MODES.items() if row.program_sites]),
    default=EnvMode.Local.value,
    show_default=True,
    help="Where it runs: on this machine, or without a network in a sandbox or a container.",
)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the run is written down; by default in the user's own log.",
)
def command(
    language: str,
    file: str | None,
    code: str | None,
    timeout: float,
    cwd: str | None,
    env: tuple[str, ...],
    stdin: str | None,
    as_json: bool,
    memory: int | None,
    cpu: int | None,
    file_size: int | None,
    max_output: int | None,
    kernel: str,
    audit: Path | None,
) -> int:
    """Run one program in any language and pass on what it writes.

    LANGUAGE is python, bash, javascript, typescript, rust, go, c, cpp, java or
    another one that --list shows with the tools that are installed for it;
    python@3.12 or node@20 is one version of it, found among environments, pyenv, uv,
    nvm and others. The code is a FILE, standard input (-), or the CODE after -c.

    It runs in a process of its own; nothing it starts outlives it. In a container
    it sees the folder it runs in, and nothing else of this machine; in a sandbox it also
    reads the system's programs.

    Ctrl-C interrupts the program; a second one kills it.

    Exit codes: the program's own; 124 timed out, 128 and the signal that ended
    it, 125 a failure that is not the program's.
    """
    given = _find_code(file, code, stdin)
    log = AuditLog(audit or Path(click.get_app_dir("taskweaver-ext")) / "audit.jsonl", who="exec")
    limits = ProgramLimits(memory_bytes=memory, cpu_seconds=cpu, file_bytes=file_size)
    screen = Screen()
    with contextlib.ExitStack() as stack:
        stack.callback(screen.close)
        stack.callback(log.close)
        folder = stack.enter_context(_record_folder())
        mode = KERNEL_MODES[EnvMode(kernel)]
        assert mode.program_sites is not None  # as those that --kernel offers
        seen = _find_folder(cwd, is_needed=mode.is_confined)
        try:
            mode.check_folder(seen)
            names = find_variable_names()
            service = replace(
                load_execution_service(), env_allow=names.env_allow, env_deny=names.env_deny
            )
            sites, limits = stack.enter_context(mode.program_sites(seen, limits, service))
        except TaskWeaverError as error:
            raise _Failure(describe_missing_site(error)) from error
        executor = ProcessExecutor(
            language,
            cwd=cwd,
            env=_read_variables(env),
            limits=limits,
            default_timeout=timeout or None,
            max_output_bytes=MAX_OUTPUT_BYTES if max_output is None else max_output,
            folder=folder,
            audit=log,
            sites=sites,
        )
        stack.callback(executor.close)
        run = _Run(executor, screen, as_json=as_json)
        return run.to_end(given, _read_stdin(stdin))


def _find_code(file: str | None, code: str | None, stdin: str | None) -> str:
    """Read the code from where the user says it is."""
    if code is not None and file is not None:
        what = f"There are two programs: {file} and the one after -c"
        raise _refusal(what, "USAGE", "give one of them")
    if code is not None:
        return code
    if file is None:
        hint = "give a FILE, -c CODE, or - for standard input"
        raise _refusal("No code was given", "MISSING_CODE", hint)
    try:
        if file != "-":
            return Path(file).read_text(encoding="utf-8")
        if stdin == "-":
            what = "Standard input cannot be both the program and what it reads"
            raise _refusal(what, "USAGE", "give one of them in a file")
        return sys.stdin.buffer.read().decode("utf-8")
    except OSError as error:
        raise _unreadable(file, error) from error
    except UnicodeDecodeError as error:
        raise _refusal(f"{file} is not UTF-8 text", "ENCODING") from error


def _read_stdin(source: str | None) -> bytes | None:
    if source is None:
        return None
    if source == "-":
        return sys.stdin.buffer.read()
    if not source.startswith("@"):
        return source.encode()
    try:
        return Path(source[1:]).read_bytes()
    except OSError as error:
        raise _unreadable(source[1:], error) from error


def _read_variables(assignments: tuple[str, ...]) -> dict[str, str]:
    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            what = f"{assignment!r} sets no variable"
            raise _refusal(what, "EINVAL", "write it as --env NAME=VALUE")
        variables[name] = value
    return variables


@contextlib.contextmanager
def _record_folder() -> Iterator[Path]:
    """A private folder; kept only when it holds raw bytes whose place has been said."""
    folder = make_owned_folder("exec")
    try:
        yield folder
    finally:
        if any(folder.glob("*.bin")):
            disown_folder(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _find_folder(cwd: str | None, *, is_needed: bool) -> Path:
    """Where the program runs; unless it is needed before, the program's result says it is bad."""
    folder = LocalSites().working_directory(cwd)
    complaint = complaint_about_folder(str(folder)) if is_needed else ""
    if is_needed and not folder.is_absolute():  # the one that we are in has been removed
        complaint = "absent"
    if error := explain_working_directory(folder, complaint):
        raise _Failure(error, "give another folder with --cwd")
    return folder


class _PlainView(PlainView):
    """The program's own streams on ours; what we have to add goes to standard error."""

    def show(self, event: ExecutionEvent) -> None:
        """Show what the program writes, where files are, and what happens to its container."""
        if isinstance(event, ArtifactProduced):
            self._screen.say(f"[Saved] {event.artifact.name}: {event.artifact.file_name}")
        else:
            super().show(event)

    def finish(self, result: ExecutionResult, notices: list[Notice]) -> None:
        """Say what the program did not say itself."""
        for notice in notices:
            if notice.kind != "output_limit" and notice.message not in self._said:
                self._screen.say(f"[Notice] {notice.message}")
        if result.status is ExecutionStatus.CANCELLED:
            self._screen.say("[Cancelled]")
        elif result.status is ExecutionStatus.DIED:
            self._screen.say(f"[Died] {result.error}")
        elif result.error and result.error.startswith("exec: "):
            self._screen.say(f"error: {result.error}")
            for code, hint in _HINTS.items():
                if result.error.endswith(f"({code})"):
                    self._screen.say(f"hint: {hint}")


class _Run:
    """One program, from its start to our exit code."""

    def __init__(self, executor: ProcessExecutor, screen: Screen, *, as_json: bool) -> None:
        self._executor = executor
        self._screen = screen
        self._view = Completion(JsonView(screen) if as_json else _PlainView(screen))
        self._last_signal: int = signal.SIGINT

    def to_end(self, code: str, stdin: bytes | None) -> int:
        """Run it and return the exit code."""
        with SignalWatch() as signals:

            def stop(number: int) -> None:
                self._last_signal = number
                self._screen.leave_line()
                self._executor.interrupt(kill=signals.count > 1)

            signals.pass_to(stop, self._suggest_killing, _PATIENCE_SECONDS)
            result = self._executor.execute(code, on_event=self._receive, stdin=stdin)
        for artifact in result.artifact:
            self._view.show(ArtifactProduced(execution_id=result.execution_id, artifact=artifact))
        if self._screen.failure is None:
            self._view.finish(result)
        return self._exit_code(result)

    def _receive(self, event: ExecutionEvent) -> None:
        self._view.show(event)
        if self._screen.failure is not None:
            self._executor.interrupt()  # its output is not read any more

    def _suggest_killing(self) -> None:
        self._screen.say("[Interrupting] The program still runs; Ctrl-C again kills it.")

    def _exit_code(self, result: ExecutionResult) -> int:
        if self._screen.failure is not None:
            return 128 + signal.SIGPIPE
        if result.status is ExecutionStatus.TIMEOUT:
            return EXIT_TIMED_OUT
        if result.status is ExecutionStatus.CANCELLED:
            return 128 + self._last_signal
        is_ours = result.error is not None and result.error.endswith("(OUTPUT_LIMIT)")
        if result.exit_code is None or is_ours:
            return EXIT_OUR_FAILURE
        return result.exit_code or (0 if result.is_success else EXIT_OUR_FAILURE)
