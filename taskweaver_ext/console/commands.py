"""What lines of a chat ask for: requests, code, and commands (all but `/exit`)."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from taskweaver_ext.chat.dropped_files import dropped_files
from taskweaver_ext.chat.requests import COMMANDS, MODES, Mode, Request
from taskweaver_ext.chat.session_table import session_table
from taskweaver_ext.chat.terminal_programs import advise_on_terminal
from taskweaver_ext.console.block_commands import BlockCommands
from taskweaver_ext.console.command_words import UsageError, words_of
from taskweaver_ext.console.decision_commands import DecisionCommands
from taskweaver_ext.console.help_text import help_on, help_text
from taskweaver_ext.console.markdown_command import USAGE as MARKDOWN_USAGE
from taskweaver_ext.console.markdown_command import redraw_as_markdown, set_markdown
from taskweaver_ext.console.request_runner import RequestRunner
from taskweaver_ext.console.rows import RED, YELLOW
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.machine.private_files import write_private
from taskweaver_ext.session.blocks import OWN_FOLDER
from taskweaver_ext.session.saved import list_sessions
from taskweaver_ext.session.session import Session

_MAX_HISTORY_LINES = 50

_log = logging.getLogger(__name__)


class InputState(Protocol):
    """What commands can know and change of the prompt, or of the lines of a pipe."""

    mode: Mode
    """What a line without a prefix is."""

    @property
    def history(self) -> list[str]:
        """What was typed, oldest first."""

    def prefill(self, text: str) -> bool:
        """Let the next line begin with a text; False where lines cannot be edited."""


class Commands:
    """Does what the lines of one chat ask for, on the thread that owns the terminal."""

    def __init__(self, runner: RequestRunner, input_state: InputState) -> None:
        self._runner = runner
        self._input = input_state
        self._say = runner.display.say
        self._decisions = DecisionCommands(runner)
        blocks = BlockCommands(runner, input_state.prefill)
        self._actions: dict[str, Callable[[str], None]] = {
            "run": blocks.run,
            "edit": blocks.edit,
            "edit!": blocks.edit_outside,
            "copy": blocks.copy,
            "show": blocks.show,
            "expand": blocks.expand,
            "find": blocks.find,
            "verbose": self._verbose,
            "help": self._help,
            "clear": lambda _: runner.display.clear_screen(),
            "reset": self._reset,
            "sessions": self._sessions,
            "resume": self._resume,
            "load": self._load,
            "save": self._save,
            "export": self._export,
            "snapshot": self._snapshot,
            "restore": self._restore,
            "info": self._info,
            "mode": self._mode,
            "markdown": self._markdown,
            "history": self._history,
            "artifacts": self._artifacts,
            "demo": lambda _: runner.play_demo(),
            **self._decisions.actions,
        }

    def do(self, request: Request) -> bool:
        """Do what a line asks for; False when it failed, which has been said."""
        runner = self._runner
        runner.begin_request()
        try:
            match request.kind:
                case "command":
                    return self.run(request.command, request.text)
                case "agent" if files := dropped_files(request.text):
                    runner.add_files(files)
                    return True
                case "agent":
                    return runner.ask_agent(request.text).is_done
                case "python":
                    return runner.run_code("python", request.text).is_success
                case "shell":
                    return self._run_shell(request.text)
                case "terminal":
                    return runner.run_in_terminal(request.text).is_success
                case "nothing":
                    return True
        except TaskWeaverError as error:
            if not runner.was_stopped:
                self._say(f"error: {error}", color=RED)
            return False
        except Exception as error:  # noqa: BLE001 - the next request may succeed
            _log.exception("A request failed")
            self._say(f"error: {type(error).__name__}: {error}", color=RED)
            return False

    def _run_shell(self, code: str) -> bool:
        """Run it, unless all that could come of it is a program that waits for a terminal."""
        advice = advise_on_terminal(code)
        if advice is not None:
            self._say(advice.text, color=YELLOW)
            if advice.is_sure:
                return False
        return self._runner.run_code("bash", code).is_success

    def run(self, name: str, arguments: str) -> bool:
        """Do what a command says; False when it could not be done, which has been said."""
        try:
            self._find(name)(arguments)
        except UsageError as error:
            self._say(str(error), color=YELLOW)
            return False
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self._say(f"{where}{error.strerror}", color=YELLOW)
            return False
        return True

    def _find(self, name: str) -> Callable[[str], None]:
        action = self._actions.get(name)
        if action is None:
            similar = difflib.get_close_matches(name, COMMANDS, 1)
            advice = f"Did you mean /{similar[0]}?" if similar else "/help shows all."
            raise UsageError(f"There is no command /{name}. {advice}")
        return action

    def _reset(self, _arguments: str) -> None:
        before = self._runner.session
        self._runner.begin_session()
        self._say(f"This is a new session: {self._runner.session.session_id}")
        self._say_how_to_go_back(before)

    def _say_how_to_go_back(self, before: Session) -> None:
        if before.rounds:
            self._say(f"/resume {before.session_id} continues the one before.")

    def _sessions(self, _arguments: str) -> None:
        sessions = list_sessions(self._runner.source.workspace)
        current = self._runner.session.session_id
        width = self._runner.display.transcript.width
        self._say("\n".join(session_table(sessions, current=current, width=width)), indent=4)

    def _resume(self, arguments: str) -> None:
        current = self._runner.session.session_id
        others = [
            one
            for one in list_sessions(self._runner.source.workspace)
            if one.round_count and one.session_id != current
        ]
        if not arguments and len(others) != 1:
            width = self._runner.display.transcript.width
            table = session_table(others, is_numbered=True, width=width)
            advice = "/resume NUMBER or ID continues one." if others else "There is no other one."
            self._say("\n".join([*(table if others else ()), advice]), indent=4)
            return
        chosen = arguments or "1"
        if len(chosen) < 4 and chosen.isdecimal() and 0 < int(chosen) <= len(others):
            chosen = others[int(chosen) - 1].session_id
        before = self._runner.session
        self._runner.begin_session(chosen)
        self._say(f"The folder is {self._runner.session.cwd}")
        self._say_how_to_go_back(before)
        self._runner.show_past()
        self._runner.offer_variables()

    def _load(self, arguments: str) -> None:
        paths = [Path(word).expanduser().absolute() for word in words_of(arguments)]
        if not paths:
            raise UsageError("/load FILE... places files where code can open them.")
        for path in paths:
            if path.is_dir():
                raise UsageError(f"{path} is a folder; /load takes files.")
            if not path.is_file():
                raise UsageError(f"There is no file {path}.")
        self._runner.add_files(paths)

    def _save(self, arguments: str) -> None:
        words = words_of(arguments)
        if len(words) > 1:
            raise UsageError("/save [FILE] takes one file; put quotes around a name with spaces.")
        folder = self._runner.session.session_dir
        path = Path(words[0]).expanduser() if words else folder / "transcript.json"
        rounds = [one.to_dict() for one in self._runner.session.rounds]
        transcript = {"session_id": self._runner.session.session_id, "rounds": rounds}
        text = json.dumps(transcript, ensure_ascii=False, indent=2, default=str)
        write_private(path, text)
        self._say(f"Saved {len(rounds)} round(s) to {path.absolute()}")

    def _export(self, arguments: str) -> None:
        words = words_of(arguments)
        names = [word for word in words if word != "--force"]
        if len(names) != 1:
            raise UsageError(
                "/export [--force] FILE: its ending (.ipynb, .md, .html, .zip) decides."
            )
        path = Path(names[0]).expanduser()
        done = self._runner.session.export(path, replaces="--force" in words)
        self._say("\n".join([f"Exported to {done.path.absolute()}", *done.notes]))

    def _snapshot(self, arguments: str) -> None:
        words = words_of(arguments)
        if len(words) > 1:
            raise UsageError("/snapshot [FILE] takes one file; put quotes around its spaces.")
        self._runner.snapshot(Path(words[0]).expanduser() if words else None)

    def _restore(self, arguments: str) -> None:
        words = words_of(arguments)
        paths = [Path(word).expanduser() for word in words if word != "--trust"]
        if len(paths) > 1:
            raise UsageError("/restore [--trust] [FILE] takes one file.")
        self._runner.restore_variables(paths[0] if paths else None, trust="--trust" in words)

    def _info(self, _arguments: str) -> None:
        runner = self._runner
        details = [
            ("session", runner.session.session_id),
            *runner.source.describe(runner.session),
            ("mode", self._input.mode),
            *self._decisions.describe(),
        ]
        width = max(len(name) for name, _ in details)
        lines = [f"{name:<{width}}  {value}" for name, value in details]
        self._say("\n".join(lines), indent=width + 2)

    def _mode(self, arguments: str) -> None:
        if arguments and arguments not in MODES:
            raise UsageError(f"/mode {'|'.join(MODES)}: what a line without a prefix is.")
        if arguments:
            self._input.mode = arguments
        self._say(f"Lines without a prefix go to: {self._input.mode}")

    def _verbose(self, arguments: str) -> None:
        if arguments not in ("", "on", "off"):
            raise UsageError("/verbose on|off: whether plans, thoughts and messages are shown.")
        transcript = self._runner.display.transcript
        if arguments:
            transcript.is_verbose = arguments == "on"
        shown = "all that roles plan, think and tell each other"
        brief = "code, output and answers; plans that have several steps"
        self._say(f"From now on you see {shown if transcript.is_verbose else brief}.")

    def _help(self, arguments: str) -> None:
        name = arguments.removeprefix("/")
        if name:
            self._find(name)
        width = self._runner.display.transcript.width
        self._say(help_on(name) if name else help_text(width))

    def _markdown(self, arguments: str) -> None:
        if arguments.isdecimal():
            redraw_as_markdown(int(arguments), self._runner.session, self._runner.display)
        elif not set_markdown(arguments, self._runner.display):
            raise UsageError(MARKDOWN_USAGE)

    def _history(self, _arguments: str) -> None:
        self._say("\n".join(self._input.history[-_MAX_HISTORY_LINES:]))

    def _artifacts(self, _arguments: str) -> None:
        lines: list[str] = []
        session = self._runner.session
        for folder in (session.session_dir, *self._runner.demo_folders):
            for place in (folder / OWN_FOLDER, folder / "ces" / "artifacts"):
                lines += _file_list(place, sorted(place.rglob("*")))
        if session.works_here:  # what else is there is the person's
            lines += _file_list(session.cwd.resolve(), session.made_files())
        self._say("\n".join(lines) or "No files have been made yet.")


def _file_list(folder: Path, paths: Iterable[Path]) -> list[str]:
    """Lines with the files among these paths, and their sizes."""
    lines = [
        f"{path.stat().st_size:>12,}  {path.relative_to(folder)}"
        for path in paths
        if path.is_file()
    ]
    return [str(folder), *lines] if lines else []
