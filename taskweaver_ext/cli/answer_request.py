"""Has one request done by the agent of a project."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from taskweaver_ext.chat.project_sessions import ProjectSessions
from taskweaver_ext.cli.init import find_template
from taskweaver_ext.cli.kernel_place import HERE, UNWATCHED, say_where_code_runs
from taskweaver_ext.cli.program_name import program_name
from taskweaver_ext.cli.project_log import logging_to_project
from taskweaver_ext.cli.screen import Screen
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.config import variables
from taskweaver_ext.config.settings import ApprovalMode
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.markdown import markdown_rows
from taskweaver_ext.console.output_block import OPEN_LINES
from taskweaver_ext.console.request_runner import RequestRunner
from taskweaver_ext.console.rows import Painter
from taskweaver_ext.console.screen import PlainScreen, TerminalScreen
from taskweaver_ext.console.terminal_settings import echo_off
from taskweaver_ext.console.transcript import Transcript

_STDERR = 2


def answer_request(
    text: str,
    project: Path | None,
    *,
    files: Sequence[Path],
    kernel: str | None,
    cwd: Path | None = None,
    approve: ApprovalMode,
    resume: str | None = None,
) -> int:
    """Ask the agent, show its work on standard error, then its answer; return the exit code."""
    arguments = {"execution_service.kernel_mode": kernel}
    answers: list[str] = []
    is_live = sys.stderr.isatty() and not variables.has_simple_terminal()
    with contextlib.ExitStack() as stack:
        app = stack.enter_context(
            TaskWeaverApp(project, arguments=arguments, defaults={**HERE, **UNWATCHED})
        )
        stack.enter_context(logging_to_project(app.config.logging, lambda: app.redactor))
        say_where_code_runs(app.config)
        signals = stack.enter_context(SignalWatch())
        runner = _make_runner(app, cwd, answers, is_live=is_live)
        if is_live:
            stack.enter_context(echo_off(runner.display.suspend_soon))
        runner.start(signals.pass_to, resume)
        stack.callback(runner.close)
        runner.say_folder_problem()
        if files:
            runner.add_files([path.absolute() for path in files])
        runner.session.settings.set_approval(approve)
        chat_round = runner.ask_agent(text)
        runner.say_how_to_resume()
    _show(answers)
    if runner.was_stopped:
        return EXIT_INTERRUPTED
    return EXIT_DONE if chat_round.is_done else EXIT_FAILED


def _make_runner(
    app: TaskWeaverApp, cwd: Path | None, answers: list[str], *, is_live: bool
) -> RequestRunner:
    encoding = sys.stderr.encoding
    screen = TerminalScreen(_STDERR, encoding) if is_live else PlainScreen(_STDERR, encoding)
    transcript = Transcript(
        *screen.size(),
        Painter(is_live and variables.wants_color()),
        collapses=is_live,
        can_expand=False,
        is_verbose=app.config.console.verbose,
        open_lines=OPEN_LINES if is_live else 0,
        on_answer=answers.append,
    )
    display = Display(screen, transcript, has_spinner=is_live)
    return RequestRunner(
        ProjectSessions(app, find_template, cwd=cwd, program=program_name()), display, can_ask=False
    )


def _show(answers: list[str]) -> None:
    """Write the answers to standard output: drawn on a terminal, as they are into a pipe."""
    streams = Screen()
    for answer in answers:
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns
            rows = markdown_rows(answer, width, has_color=variables.wants_color())
            answer = "\n".join(rows)
        streams.write("stdout", f"{answer}\n")
    streams.close()
