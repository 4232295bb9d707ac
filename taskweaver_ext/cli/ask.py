"""`taskweaver-ext ask`: one request, its answer on standard output, the work on standard error."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click
from rich.console import Console

from taskweaver_ext import config
from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.kernels.host import EnvMode
from taskweaver_ext.chat.console.display import Display
from taskweaver_ext.chat.console.markdown import markdown_rows
from taskweaver_ext.chat.console.request_runner import RequestRunner
from taskweaver_ext.chat.console.rows import NO_LIMIT, Painter
from taskweaver_ext.chat.console.screen import PlainScreen, TerminalScreen, quiet_typing
from taskweaver_ext.chat.console.transcript import Transcript
from taskweaver_ext.cli.app_source import sessions_of
from taskweaver_ext.cli.project_log import logging_to_project
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.config import ApprovalMode

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

_STDERR = 2


@click.command(short_help="Have one request done, and exit.")
@click.argument("request", nargs=-1, required=True)
@click.option(
    "-p",
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project's folder; by default the nearest one upwards.",
)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Give a file to the session; may be repeated.",
)
@click.option(
    "--kernel",
    type=click.Choice([mode.value for mode in EnvMode]),
    help="Where code runs; as the project says by default.",
)
@click.option(
    "--approve",
    type=click.Choice(["auto", "deny"]),
    default="deny",
    show_default=True,
    help="Whether shell code of the agent may run.",
)
def command(
    request: tuple[str, ...],
    project: Path | None,
    files: tuple[Path, ...],
    kernel: str | None,
    approve: ApprovalMode,
) -> int:
    """Have one request done, and exit.

    The answer goes to standard output; plan, code and what it prints go to
    standard error as they come. REQUEST may be - for standard input.

    Exit codes: 0 done, 1 the task failed, 2 misused, 130 interrupted.
    """
    text = sys.stdin.read() if request == ("-",) else " ".join(request)
    if not text.strip():
        raise click.UsageError("There is nothing to ask.")
    arguments = {"execution_service.kernel_mode": kernel}
    answers: list[str] = []
    is_live = sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal
    with contextlib.ExitStack() as stack:
        app = stack.enter_context(TaskWeaverApp(project, arguments=arguments))
        stack.enter_context(logging_to_project(app.config.logging))
        signals = stack.enter_context(SignalWatch())
        if is_live:
            stack.enter_context(quiet_typing())
        runner = _make_runner(app, answers, is_live=is_live)
        runner.start(signals.pass_to)
        stack.callback(runner.close)
        runner.files += [path.absolute() for path in files]
        runner.session.approval.mode = approve
        chat_round = runner.ask_agent(text)
    _show(answers)
    if runner.was_stopped:
        return EXIT_INTERRUPTED
    return EXIT_DONE if chat_round.state == "finished" else EXIT_FAILED


def _make_runner(app: TaskWeaverApp, answers: list[str], *, is_live: bool) -> RequestRunner:
    encoding = sys.stderr.encoding
    screen = TerminalScreen(_STDERR, encoding) if is_live else PlainScreen(_STDERR, encoding)
    transcript = Transcript(
        *screen.size(),
        Painter(is_live and config.wants_color()),
        on_answer=answers.append,
        **({} if is_live else {"rows_in_full": NO_LIMIT}),
    )
    return RequestRunner(
        sessions_of(app),
        Display(screen, transcript, has_spinner=is_live),
        can_ask=False,
    )


def _show(answers: list[str]) -> None:
    """Write the answers to standard output: drawn on a terminal, as they are into a pipe."""
    streams = Screen()
    for answer in answers:
        if sys.stdout.isatty():
            console = Console()
            rows = markdown_rows(answer, console.width, has_color=config.wants_color())
            answer = "\n".join(rows)
        streams.write("stdout", f"{answer}\n")
    streams.close()
