"""Opens the chat that fits: on a terminal, or through pipes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.chat.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from taskweaver_ext.chat.project_sessions import ProjectSessions
from taskweaver_ext.cli.choose_session import choose_session
from taskweaver_ext.cli.init import find_template
from taskweaver_ext.cli.kernel_place import HERE, say_where_code_runs
from taskweaver_ext.cli.program_name import program_name
from taskweaver_ext.cli.project_log import logging_to_project
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.cli.standard_input import StandardInput, is_terminal
from taskweaver_ext.config import variables
from taskweaver_ext.config.settings import Config
from taskweaver_ext.console.chat import LEAVE_TWICE, ConsoleChat
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.line_prompt import LinePrompt
from taskweaver_ext.console.markdown_use import MarkdownUse
from taskweaver_ext.console.pictures import ColorDepth, PictureDrawer
from taskweaver_ext.console.piped_chat import PipedChat, PlainTranscript
from taskweaver_ext.console.request_runner import RequestRunner, Resumption
from taskweaver_ext.console.screen import PlainScreen, TerminalScreen, fit
from taskweaver_ext.console.terminal_settings import settings_kept

_STDOUT = 1
_STDERR = 2


def open_chat(
    project: Path | None,
    kernel: str | None,
    resume: str | None = None,
    *,
    cwd: Path | None = None,
    with_variables: bool = False,
    trust: bool = False,
) -> int:
    """Chat until the person leaves or the input ends; return the exit code.

    Args:
        resume: The session to continue; empty: the one that the person chooses.
        cwd: Where code works; None: here, and of a session that is continued where it did.
        with_variables: Whether the variables of its snapshot are loaded.
        trust: Whether they are loaded whoever has saved them.
    """
    arguments = {"execution_service.kernel_mode": kernel}
    with (
        TaskWeaverApp(project, arguments=arguments, defaults=HERE) as app,
        logging_to_project(app.config.logging, lambda: app.redactor),
    ):
        source = ProjectSessions(app, find_template, cwd=cwd, program=program_name())
        if resume == "":
            resume = choose_session(source.workspace)
        wanted = Resumption(resume, with_variables=with_variables, trust=trust)
        if _is_interactive():
            return _chat_on_terminal(source, app.config, wanted)
        if not is_terminal():  # a person reads it in the first lines
            say_where_code_runs(app.config)
        return _chat_through_pipes(source, wanted, is_verbose=app.config.console.verbose)


def _is_interactive() -> bool:
    """Whether a person is at a terminal that can move its cursor."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and not variables.has_simple_terminal()


def _chat_on_terminal(source: ProjectSessions, settings: Config, resume: Resumption) -> int:
    history_path = settings.history_file
    chat = ConsoleChat(
        source,
        TerminalScreen(_STDOUT, sys.stdout.encoding),
        has_color=variables.wants_color(),
        history_path=history_path,
        resume=resume,
        markdown=_markdown_use(settings),
        pictures=PictureDrawer(_depth_for_pictures(settings)),
        asks_for_pictures=settings.console.pictures == "auto" and variables.may_be_asked(),
        is_verbose=settings.console.verbose,
    )
    with SignalWatch() as signals:
        return chat.run(signals.pass_to)


def _depth_for_pictures(settings: Config) -> ColorDepth:
    has_blocks = fit("▀", sys.stdout.encoding) == "▀"
    is_wanted = settings.console.pictures != "off" and has_blocks
    return variables.color_depth() if is_wanted else "none"


def _markdown_use(settings: Config) -> MarkdownUse:
    console = settings.console
    return MarkdownUse(console.markdown_agent, console.markdown_python, console.markdown_shell)


def _chat_through_pipes(source: ProjectSessions, resume: Resumption, *, is_verbose: bool) -> int:
    streams = Screen()

    def write(stream: StreamName, text: str) -> None:
        if streams.failure is None and not streams.write(stream, text):
            runner.abandon()

    transcript = PlainTranscript(
        write,
        on_answer=lambda answer: write("stdout", f"{answer}\n"),
        shows_status=is_terminal(),
        is_verbose=is_verbose,
    )
    lines = _TypedLines()
    has_person = is_terminal() and os.isatty(_STDERR)
    prompt = LinePrompt(lines, lambda text: click.echo(text, nl=False, err=True))
    display = Display(
        PlainScreen(_STDERR, sys.stderr.encoding),
        transcript,
        prompt if has_person else None,
        has_spinner=False,
    )
    runner = RequestRunner(source, display, can_ask=has_person, on_idle_signal=lines.on_idle_signal)
    if sys.stdin.isatty() and sys.stdout.isatty():  # simple as it is, a program can have it
        runner.terminal_jobs.lend = settings_kept
    with contextlib.ExitStack() as stack:
        stack.callback(streams.close)
        stack.callback(lines.close)
        signals = stack.enter_context(SignalWatch())
        runner.start(signals.pass_to, resume.session_id)
        stack.callback(runner.close)
        if is_terminal():
            columns, _ = shutil.get_terminal_size()
            display.say(source.introduce(runner.session, columns))
        runner.say_folder_problem()
        if resume.session_id is not None:
            runner.show_past()
        has_variables = runner.bring_back_variables(resume)
        chat = PipedChat(runner, has_person=has_person)
        exit_code = chat.run(_lines_of(lines, display)) if has_variables else EXIT_FAILED
        streams.say_failure()
        if streams.failure is None:
            runner.say_how_to_resume()
        is_interrupted = runner.is_asked_to_end if has_person else signals.count
        return EXIT_INTERRUPTED if is_interrupted else exit_code


class _TypedLines(StandardInput):
    """Standard input as the requests of a chat."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ctrl_c = False
        """Whether the wait for a line has ended for Ctrl-C."""

    def on_idle_signal(self, number: int) -> None:
        """Hear a signal while nothing runs."""
        self.is_ctrl_c = number == signal.SIGINT
        self.cancel()


def _lines_of(source: _TypedLines, display: Display) -> Iterator[str]:
    """Yield lines; a person at a terminal too simple for more is shown where to type.

    One Ctrl-C of theirs only empties the line.
    """
    is_leaving = False
    while True:
        if is_terminal():
            click.echo("You > ", nl=False, err=True)
        source.is_ctrl_c = False
        line = source.read_line()
        if line is None and source.is_ctrl_c and is_terminal() and not is_leaving:
            is_leaving = True
            click.echo("", err=True)
            display.say(LEAVE_TWICE)
        elif line is None:
            return
        else:
            is_leaving = False
            yield line
