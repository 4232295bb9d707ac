"""The chat on a terminal: reads requests and has them done."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

from taskweaver_ext.chat.chat_session import SessionSource
from taskweaver_ext.chat.kernel_names import KernelName
from taskweaver_ext.chat.requests import Request, parse_request
from taskweaver_ext.console.commands import Commands
from taskweaver_ext.console.completion import ChatCompleter
from taskweaver_ext.console.display import Display
from taskweaver_ext.console.guidance import LEAVE_TWICE, WELCOME
from taskweaver_ext.console.prompt import Prompt, QuestionRefusedError
from taskweaver_ext.console.request_runner import PassSignals, RequestRunner
from taskweaver_ext.console.rows import DIM, RED, Painter
from taskweaver_ext.console.screen import TerminalScreen
from taskweaver_ext.console.terminal_hold import holding_terminal
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.errors import TaskWeaverError

EXIT_DONE = 0
EXIT_INTERRUPTED = 130

_log = logging.getLogger(__name__)


class ConsoleChat:
    """One chat on one terminal.

    Threads:
        `run` is called on the main thread, which owns the terminal from then on.
    """

    def __init__(
        self,
        source: SessionSource,
        screen: TerminalScreen,
        *,
        has_color: bool,
        history_path: Path | None = None,
        first_words: str = WELCOME,
    ) -> None:
        """Prepare a chat; its first session is made by `run`.

        Args:
            history_path: Where what is typed is kept; None for nowhere.
            first_words: What a person reads above the first prompt.
        """
        painter = Painter(has_color)
        completer = ChatCompleter(lambda: self._prompt.mode, self._find_names)
        self._prompt = Prompt(painter, history_path, completer)
        self._display = Display(screen, Transcript(*screen.size(), painter), self._prompt)
        self._source = source
        self._first_words = first_words
        self._was_stopped = False
        """Whether Ctrl-C was pressed while the last request was done."""
        self._runner = RequestRunner(source, self._display, on_idle_signal=self._on_idle_signal)
        self._commands = Commands(self._runner, self._prompt)

    def run(self, pass_signals_to: PassSignals) -> int:
        """Chat until the person leaves; return the exit code."""
        with holding_terminal(self._display.suspend_with):
            self._runner.start(pass_signals_to)
            try:
                self._display.say(self._first_words, color=DIM)
                self._listen()
            finally:
                try:
                    self._display.settle()
                finally:  # also where the terminal is gone
                    self._runner.close()
        return EXIT_INTERRUPTED if self._runner.is_asked_to_end else EXIT_DONE

    def _on_idle_signal(self, number: int) -> None:
        """Hear a signal while nothing runs; at the prompt Ctrl-C is a key like others."""
        if number == signal.SIGINT:
            self._was_stopped = True
            self._display.stop_expanding()
        else:
            self._prompt.leave()

    def _listen(self) -> None:
        while not self._runner.is_asked_to_end:
            try:
                line = self._read()
            except EOFError:
                return
            except QuestionRefusedError:
                if not self._was_stopped:
                    return
                # It may have been meant for what had just been stopped, and came too late.
                self._was_stopped = False
                self._display.say(LEAVE_TWICE, color=DIM)
                continue
            request = parse_request(line, self._prompt.mode)
            if request.command == "exit":
                return
            self._was_stopped = False
            self._do(request)
            self._was_stopped = self._was_stopped or self._runner.was_stopped

    def _read(self) -> str:
        with self._runner.hearing.open(), self._display.showing_above(self._prompt):
            return self._prompt.read()

    def _do(self, request: Request) -> None:
        try:
            match request.kind:
                case "command":
                    self._commands.run(request.command, request.text)
                case "agent":
                    self._runner.ask_agent(request.text)
                case "python":
                    self._runner.run_code("python", request.text)
                case "shell":
                    self._runner.run_code("bash", request.text)
                case "nothing":
                    pass
        except TaskWeaverError as error:
            if not self._runner.was_stopped:
                self._display.say(f"error: {error}", color=RED)
        except Exception as error:  # noqa: BLE001 - the next request may fare better
            _log.exception("A request failed")
            self._display.say(f"error: {type(error).__name__}: {error}", color=RED)

    def _find_names(self, code: str) -> list[KernelName]:
        return list(self._source.find_names(self._runner.session, code))
