"""Where a person types: history, editing of several lines, completion."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app
from prompt_toolkit.application.run_in_terminal import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.lexers import DynamicLexer, Lexer, PygmentsLexer
from prompt_toolkit.output import ColorDepth

from taskweaver_ext.chat.requests import (
    Mode,
    is_complete,
    is_complete_python,
    parse_request,
    prefix_width,
)
from taskweaver_ext.console.block_recall import BlockRecall
from taskweaver_ext.console.inbox import Question
from taskweaver_ext.console.offered_completions import OfferedCompletions
from taskweaver_ext.console.rows import OUTPUT, Painter
from taskweaver_ext.console.screen import fit
from taskweaver_ext.console.terminal_answers import TerminalAnswers
from taskweaver_ext.console.terminal_settings import suspend_process_group
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.text.hidden_characters import HiddenCharacters
from taskweaver_ext.text.terminal import message_text

if sys.platform != "win32":
    from prompt_toolkit.input.posix_utils import PosixStdinReader
    from prompt_toolkit.input.vt100 import Vt100Input
    from prompt_toolkit.input.vt100_parser import Vt100Parser

PROMPTS: dict[Mode, str] = {"agent": "You ▸ ", "python": ">>> ", "shell": "$ "}
_CONTINUATION = "… "
_INDENT = "    "
_MENU_ROWS = 6


class QuestionRefusedError(Exception):
    """Ctrl-C was pressed at an empty prompt, or a question was not answered."""


class Prompt:
    """Reads what a person types, on the thread that owns the terminal.

    While it waits, `run_above` may print above it, and `withdraw` and `leave` make it give
    up. All three are for any thread, `leave` also for a signal handler.
    """

    how_to_edit = "Enter runs it, Alt-Enter adds a line, Ctrl-C leaves it as it was."

    def __init__(self, painter: Painter, history_path: Path | None, completer: Completer) -> None:
        self.mode: Mode = "agent"
        self._painter = painter
        self._application: Application[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_left = False
        self.is_typed_in = False
        """Whether something was typed since the prompt began to wait."""
        self._draft = ""
        """What the next line begins with."""
        self.on_begin: Callable[[], None] | None = None
        """Called on the prompt's thread as soon as a prompt waits."""
        self.recall: BlockRecall | None = None
        """Brings earlier blocks of code into the line; for one line."""
        offered = OfferedCompletions(completer)
        bindings = self._line_bindings()
        offered.bind_tab(bindings)
        self._lines: PromptSession[str] = PromptSession(
            history=_history(history_path),
            completer=offered,
            complete_while_typing=Condition(self._is_code),
            reserve_space_for_menu=_MENU_ROWS,
            multiline=True,
            key_bindings=bindings,
            prompt_continuation=self._continuation,
            lexer=DynamicLexer(self._lexer) if painter.has_color else None,
            color_depth=None if painter.has_color else ColorDepth.DEPTH_1_BIT,
            include_default_pygments_style=painter.has_color,
        )
        self._lines.default_buffer.on_text_changed += self._note_typing
        # The window's signal tells of a new size; asking for it twice a second is idle work.
        self._lines.app.terminal_size_polling_interval = None

    def prefill(self, text: str) -> bool:
        """Let the next line begin with a text."""
        self._draft = text
        return True

    @property
    def history(self) -> list[str]:
        """What was typed, oldest first."""
        return list(self._lines.history.get_strings())

    def read(self) -> str:
        """Wait for a request.

        Raises:
            EOFError: Ctrl-D, or a call of `withdraw` or `leave`.
            QuestionRefusedError: Ctrl-C at an empty prompt.
        """
        self.is_typed_in = False
        message = self._painter.paint(fit(PROMPTS[self.mode], sys.stdout.encoding), "1;36")
        draft, self._draft = self._draft, ""
        # What is seen is what will run.
        return self._run(self._lines, message=ANSI(message), default=HiddenCharacters().feed(draft))

    def ask(self, question: Question) -> str:
        """Wait for an answer; to a question of the session, what was typed before it is none.

        Raises:
            EOFError: Ctrl-D, or a call of `withdraw` or `leave`.
            QuestionRefusedError: Ctrl-C.
        """
        if question.language:
            bindings = self._code_bindings(question.language)
        else:
            bindings = self._question_bindings(gives_up_at_once=question.is_optional)
        lines: PromptSession[str] = PromptSession(
            history=InMemoryHistory(),
            key_bindings=bindings,
            multiline=bool(question.language),
            color_depth=None if self._painter.has_color else ColorDepth.DEPTH_1_BIT,
        )
        lines.app.terminal_size_polling_interval = None
        # Kernels ask for a password without a word.
        words = question.prompt or ("Password: " if question.is_secret else "")
        before, _, last = message_text(words).rpartition("\n")
        frame = fit(OUTPUT, sys.stdout.encoding)
        shown = "".join(f"{frame}{line}\n" for line in before.split("\n") if before)
        is_decision = bool(question.question_id) and not question.is_optional
        typed = self._set_typed_aside() if is_decision else []
        try:
            return self._run(
                lines,
                message=f"{shown}{frame}{last}",
                default=HiddenCharacters().feed(question.default),  # what is seen is what will run
                is_password=question.is_secret,
                prompt_continuation=frame,
            )
        finally:
            if typed:  # it was meant for the next line
                store_typeahead(self._lines.app.input, typed)

    def run_above(self, show: Callable[[], None]) -> None:
        """Call `show` on the prompt's thread, with the prompt out of the way; from any thread."""
        self._call(lambda application: run_in_terminal(show))

    def withdraw(self) -> None:
        """Make a prompt that waits raise EOFError; from any thread."""
        self._call(lambda application: application.exit(exception=EOFError))

    def give_up(self) -> None:
        """Make a prompt that waits raise QuestionRefusedError; from any thread."""
        self._call(lambda application: application.exit(exception=KeyboardInterrupt))

    def leave(self) -> None:
        """Make this and every later prompt raise EOFError."""
        self._is_left = True
        self.withdraw()

    def type_ahead(self, typed: str) -> None:
        """Receive what was typed before there was a prompt, for the next one."""
        if typed:
            keys: list[KeyPress] = []
            parser = Vt100Parser(keys.append)
            parser.feed(typed)
            parser.flush()
            store_typeahead(self._lines.app.input, keys)

    def ignore(self, answers: TerminalAnswers, seconds: float) -> None:
        """Keep answers of the terminal that come late from what is typed, for so long."""
        source = self._lines.app.input
        if sys.platform != "win32" and isinstance(source, Vt100Input):
            reader = _LateAnswerFilter(source.stdin_reader, answers, time.monotonic() + seconds)
            source.stdin_reader = cast(PosixStdinReader, reader)

    def _set_typed_aside(self) -> list[KeyPress]:
        source = self._lines.app.input
        return [*get_typeahead(source), *source.read_keys(), *source.flush_keys()]

    def _call(self, what: Callable[[Application[str]], object]) -> None:
        application, loop = self._application, self._loop
        if application is None or loop is None:
            return

        def call() -> None:
            if application.is_running and not application.is_done:
                what(application)

        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:
            return  # the prompt has just ended

    def _run(self, lines: PromptSession[str], **options: Any) -> str:  # noqa: ANN401 - its options
        def begin() -> None:
            self._loop = asyncio.get_running_loop()
            self._application = get_app()
            if self.on_begin is not None:
                self.on_begin()
            if self._is_left:
                self.leave()

        try:
            return lines.prompt(pre_run=begin, **options)
        except KeyboardInterrupt as error:
            raise QuestionRefusedError from error
        finally:
            self._application = self._loop = None

    def _note_typing(self, _buffer: Buffer) -> None:
        self.is_typed_in = True

    def _continuation(self, width: int, _line_number: int, wrap_count: int) -> str:
        """What stands before a further line, as wide as what stands before the first.

        Nothing does where the screen's edge cut a line.
        """
        cells = width + prefix_width(self._lines.default_buffer.text)
        return "" if wrap_count else fit(f"{_CONTINUATION:>{cells}}", sys.stdout.encoding)

    def _is_code(self) -> bool:
        """Whether what is being typed is for a machine: then completions are offered unasked."""
        request = parse_request(self._lines.default_buffer.text, self.mode)
        return request.kind == "command" or (
            request.kind in ("python", "shell") and bool(request.text.strip())
        )

    def _lexer(self) -> Lexer | None:
        request = parse_request(self._lines.default_buffer.text, self.mode)
        if request.kind not in ("python", "shell"):
            return None
        # Only now: the first prompt need not wait for it.
        from pygments.lexers.python import PythonLexer
        from pygments.lexers.shell import BashLexer

        return PygmentsLexer(PythonLexer if request.kind == "python" else BashLexer)

    def _line_bindings(self) -> KeyBindings:
        bindings = self._question_bindings()

        _add_keys_for_lines(bindings, lambda text: is_complete(text, self.mode))

        @bindings.add("escape", "up")
        def _(event: KeyPressEvent) -> None:
            if self.recall is not None:
                _replace(event, self.recall.older(event.current_buffer.text))

        @bindings.add("escape", "down")
        def _(event: KeyPressEvent) -> None:
            if self.recall is not None:
                _replace(event, self.recall.newer(event.current_buffer.text))

        return bindings

    def _code_bindings(self, language: str) -> KeyBindings:
        """Keys as where requests are typed, for code that is edited before it runs."""
        bindings = self._question_bindings(gives_up_at_once=True)
        is_python = language == "python"
        _add_keys_for_lines(bindings, lambda text: not is_python or is_complete_python(text))
        return bindings

    def _question_bindings(self, *, gives_up_at_once: bool = False) -> KeyBindings:
        """Keys of every prompt.

        Args:
            gives_up_at_once: Whether Ctrl-C leaves what is there as it was, instead of emptying it.
        """
        bindings = KeyBindings()

        @bindings.add("c-c")
        @bindings.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text and not gives_up_at_once:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

        @bindings.add("c-z")
        def _(event: KeyPressEvent) -> None:
            suspend_process_group()

        return bindings


class _LateAnswerFilter:
    """Reads what is typed, without what the terminal answers; stands in for another reader."""

    def __init__(self, reader: PosixStdinReader, answers: TerminalAnswers, until: float) -> None:
        self._reader = reader
        self._answers = answers
        self._until = until

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def read(self, count: int = 1024) -> str:
        text = self._reader.read(count)
        if time.monotonic() > self._until:
            return self._answers.close() + text
        return self._answers.feed(text)


def _add_keys_for_lines(bindings: KeyBindings, is_complete_text: Callable[[str], bool]) -> None:
    """Let Enter send what is complete and else begin another line, as Alt-Enter always does."""

    @bindings.add("c-m", filter=~is_searching)
    @bindings.add("c-j", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif buffer.document.is_cursor_at_the_end and not is_complete_text(buffer.text):
            buffer.insert_text("\n" + _indent_after(buffer.document.current_line))
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "c-m")
    @bindings.add("escape", "c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")


def _replace(event: KeyPressEvent, text: str | None) -> None:
    """Put a text in the place of what was typed; what is seen is what will run."""
    if text is not None:
        shown = HiddenCharacters().feed(text)
        event.current_buffer.document = Document(shown, len(shown))


def _history(path: Path | None) -> History:
    """Keep what is typed in a file, if it can be written."""
    if path is None:
        return InMemoryHistory()
    try:
        make_private_folder(path.parent)
        os.close(open_private(path.resolve(), os.O_WRONLY | os.O_APPEND))
    except OSError:
        return InMemoryHistory()
    return _ForgivingHistory(str(path))


class _ForgivingHistory(FileHistory):
    """What was typed; a full disk is no reason to end a chat."""

    def store_string(self, string: str) -> None:
        """Add to the file, if that can be done."""
        with contextlib.suppress(OSError):
            super().store_string(string)


def _indent_after(line: str) -> str:
    """Indent as the line above, and deeper after a colon."""
    content = line.lstrip("> ") if line.startswith(">") else line
    indent = content[: len(content) - len(content.lstrip())]
    return indent + _INDENT if content.rstrip().endswith(":") else indent
