"""The chat on a terminal: reads requests and has them done."""

from __future__ import annotations

import signal
from pathlib import Path

from taskweaver_ext.ces.execution.looks import Completions
from taskweaver_ext.chat.exit_codes import EXIT_DONE, EXIT_INTERRUPTED
from taskweaver_ext.chat.project_sessions import ProjectSessions
from taskweaver_ext.chat.requests import parse_request
from taskweaver_ext.console.block_recall import BlockRecall
from taskweaver_ext.console.commands import Commands
from taskweaver_ext.console.completion import ChatCompleter
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.markdown_use import MarkdownUse
from taskweaver_ext.console.output_block import OPEN_LINES
from taskweaver_ext.console.picture_query import PictureQuery
from taskweaver_ext.console.pictures import PictureDrawer
from taskweaver_ext.console.prompt import Prompt, QuestionRefusedError
from taskweaver_ext.console.request_runner import (
    NOT_RESUMED,
    PassSignals,
    RequestRunner,
    Resumption,
)
from taskweaver_ext.console.rows import DIM, Painter
from taskweaver_ext.console.screen import TerminalScreen
from taskweaver_ext.console.terminal_settings import echo_off
from taskweaver_ext.console.transcript import Transcript

LEAVE_TWICE = "Ctrl-C again leaves, as exit and Ctrl-D do."


class ConsoleChat:
    """One chat on one terminal.

    Threads:
        `run` is called on the main thread, which owns the terminal from then on.
    """

    def __init__(
        self,
        source: ProjectSessions,
        screen: TerminalScreen,
        *,
        has_color: bool,
        history_path: Path | None = None,
        resume: Resumption = NOT_RESUMED,
        markdown: MarkdownUse | None = None,
        pictures: PictureDrawer | None = None,
        asks_for_pictures: bool = False,
        is_verbose: bool = False,
    ) -> None:
        """Prepare a chat; its first session is made by `run`.

        Args:
            history_path: Where what is typed is kept; None for nowhere.
            resume: The session to continue.
            markdown: What is drawn as Markdown at first.
            pictures: Draws pictures.
            asks_for_pictures: Whether the terminal is asked if it shows them itself.
            is_verbose: Whether thoughts, all plans and messages between roles are shown at first.
        """
        painter = Painter(has_color)
        completer = ChatCompleter(
            lambda: self._prompt.mode,
            self._complete_python,
            lambda line: self._runner.session.complete_shell(line),
        )
        self._prompt = Prompt(painter, history_path, completer)
        transcript = Transcript(
            *screen.size(), painter, open_lines=OPEN_LINES, is_verbose=is_verbose
        )
        transcript.markdown = markdown or MarkdownUse()
        transcript.displays.pictures = pictures or PictureDrawer()
        self._query = PictureQuery(screen) if asks_for_pictures else None
        self._display = Display(screen, transcript, self._prompt)
        self._source = source
        self._screen = screen
        self._resume = resume
        self._runner = RequestRunner(source, self._display, on_idle_signal=self._on_idle_signal)
        self._commands = Commands(self._runner, self._prompt)

    def run(self, pass_signals_to: PassSignals) -> int:
        """Chat until the person leaves; return the exit code.

        Raises:
            SessionError: The session that is to be continued cannot be.
        """
        with echo_off(self._display.suspend_soon) as lend:
            self._runner.terminal_jobs.lend = lend
            if self._query is not None:
                self._query.ask()  # it answers while the session is made
            self._runner.start(pass_signals_to, self._resume.session_id)
            if self._query is not None:
                answers = self._query.finish(self._prompt)
                self._display.transcript.displays.pictures.protocol = answers.protocol
            try:
                columns, _ = self._screen.size()
                introduction = self._source.introduce(self._runner.session, columns)
                self._display.say(introduction, color=DIM)
                if self._resume.session_id is None:
                    self._runner.say_folder_problem()
                else:
                    self._runner.show_past()
                    self._runner.bring_back_variables(self._resume)
                self._listen()
                self._runner.say_how_to_resume()
            finally:
                try:
                    self._display.settle()
                finally:  # also where the terminal is gone
                    self._runner.close()
        return EXIT_INTERRUPTED if self._runner.is_asked_to_end else EXIT_DONE

    def _on_idle_signal(self, number: int) -> None:
        """Hear a signal while nothing runs; at the prompt Ctrl-C is a key like others."""
        if number == signal.SIGINT:
            self._display.stop_showing()
        else:
            self._prompt.leave()

    def _listen(self) -> None:
        is_leaving = False
        while not self._runner.is_asked_to_end:
            try:
                line = self._read()
            except EOFError:
                return
            except QuestionRefusedError:
                # The first may have been meant for what has just ended, or for a line.
                if is_leaving and not self._prompt.is_typed_in:
                    return
                is_leaving = True
                self._display.say(LEAVE_TWICE, color=DIM)
                continue
            is_leaving = False
            request = parse_request(line, self._prompt.mode)
            if request.command == "exit":
                return
            self._commands.do(request)

    def _read(self) -> str:
        self._prompt.recall = BlockRecall(self._runner.session.code_blocks)
        with self._runner.subscription.open(), self._display.above_prompt(self._prompt):
            return self._prompt.read()

    def _complete_python(self, code: str, seconds: float) -> Completions:
        return self._runner.session.kernel.complete(code, timeout=seconds)
