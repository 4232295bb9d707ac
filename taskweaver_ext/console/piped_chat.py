"""The chat without a terminal: one request per line, plain output, an exit code."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from taskweaver_ext.chat.requests import Mode, Request, parse_request
from taskweaver_ext.console.commands import Commands
from taskweaver_ext.console.request_runner import RequestRunner
from taskweaver_ext.errors import TaskWeaverError

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

_log = logging.getLogger(__name__)


class PipedChat:
    """Does one request after another; a failed one does not keep the next from being done."""

    def __init__(self, runner: RequestRunner) -> None:
        self.mode: Mode = "agent"
        self.history: list[str] = []
        self._runner = runner
        self._commands = Commands(runner, self)

    def run(self, lines: Iterable[str]) -> int:
        """Do what the lines ask for; return the exit code."""
        has_failed = False
        for line in lines:
            self.history.append(line.rstrip("\n"))
            request = parse_request(line, self.mode)
            if request.command == "exit":
                break
            has_failed = not self._do(request) or has_failed
            if self._runner.is_abandoned:
                return EXIT_FAILED
            if self._runner.was_stopped:
                return EXIT_INTERRUPTED
        return EXIT_FAILED if has_failed else EXIT_DONE

    def _do(self, request: Request) -> bool:
        """Do what was asked; False when it failed."""
        try:
            match request.kind:
                case "command":
                    return self._commands.run(request.command, request.text)
                case "agent":
                    return self._runner.ask_agent(request.text).is_done
                case "python":
                    return self._runner.run_code("python", request.text).is_success
                case "shell":
                    return self._runner.run_code("bash", request.text).is_success
                case "nothing":
                    return True
        except TaskWeaverError as error:
            if not self._runner.was_stopped:
                self._runner.display.say(f"error: {error}")
            return False
        except Exception as error:  # noqa: BLE001 - the next request may fare better
            _log.exception("A request failed")
            self._runner.display.say(f"error: {type(error).__name__}: {error}")
            return False
