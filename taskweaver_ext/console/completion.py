"""What Tab offers: commands, their arguments, file names, and names that the kernel knows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from taskweaver_ext.ces.execution.looks import Completions
from taskweaver_ext.ces.programs.shell_completion import ShellCompletion
from taskweaver_ext.chat.requests import COMMANDS, MODES, Mode, parse_request, prefix_width
from taskweaver_ext.text.terminal import message_text

_CHOICES: dict[str, Sequence[str]] = {
    "mode": MODES,
    "auto": ("on", "off"),
    "approve": ("ask", "auto", "deny"),
    "context": ("clear",),
}
_COMMANDS_WITH_FILES = ("load", "save", "export")
_WORD_BREAKS = " \t\n\"'=;|&<>()"


CompletePython: TypeAlias = Callable[[str, float], Completions]
"""Asks the kernel what fits at the end of some code, and waits for so many seconds at most."""

_TYPING_SECONDS = 1.0
_TAB_SECONDS = 15.0
"""A person who presses Tab waits until the kernel has been started."""
_WORTH_A_MENU = re.compile(r"[\w.'\"/%\[(]\Z")
"""After what is typed names are offered unasked: not between two words."""


CompleteShell: TypeAlias = Callable[[str], Sequence[ShellCompletion]]
"""Asks what fits at the end of a line for the shell."""


class ChatCompleter(Completer):
    """Completes what is being typed, as what it would be taken for."""

    def __init__(
        self,
        get_mode: Callable[[], Mode],
        complete_python: CompletePython,
        complete_shell: CompleteShell,
    ) -> None:
        self._get_mode = get_mode
        self._complete_python = complete_python
        self._complete_shell = complete_shell
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Offer what fits before the cursor."""
        text = document.text_before_cursor
        request = parse_request(text, self._get_mode())
        if text.startswith("/") and " " not in text:
            return _commands(text[1:])
        if request.kind == "command":
            return self._arguments(request.command, text, complete_event)
        if request.kind == "python":
            return self._names(text, request.text, complete_event)
        if request.kind in ("shell", "terminal"):
            return self._shell(text[prefix_width(text) :], complete_event)
        return self._files(text, complete_event)

    def _arguments(self, command: str, text: str, event: CompleteEvent) -> Iterator[Completion]:
        if command in _COMMANDS_WITH_FILES:
            yield from self._files(text, event)
        word = text.rpartition(" ")[2]
        for choice in _CHOICES.get(command, ()):
            if choice.startswith(word):
                yield Completion(choice, -len(word))

    def _files(self, text: str, event: CompleteEvent) -> Iterator[Completion]:
        word = text
        for character in _WORD_BREAKS:
            word = word.rpartition(character)[2]
        for completion in self._paths.get_completions(Document(word.lstrip("!")), event):
            yield Completion(
                shlex.quote(completion.text) if " " in completion.text else completion.text,
                completion.start_position,
                display=message_text(completion.display_text),
            )

    def _shell(self, line: str, event: CompleteEvent) -> Iterator[Completion]:
        if event.text_inserted and not _WORTH_A_MENU.search(line):
            return
        for one in self._complete_shell(line):
            kind = "" if one.kind == "file" else one.kind
            yield Completion(
                one.text, -one.replaces, display=message_text(one.shown), display_meta=kind
            )

    def _names(self, typed: str, code: str, event: CompleteEvent) -> Iterator[Completion]:
        is_unasked = event.text_inserted
        if not code.strip() or (is_unasked and not _WORTH_A_MENU.search(typed)):
            return
        found = self._complete_python(code, _TYPING_SECONDS if is_unasked else _TAB_SECONDS)
        only_parameters = is_unasked and typed.endswith("(")
        for match in found.matches:
            if not only_parameters or match.kind == "param":
                yield Completion(
                    match.text,
                    found.start - found.end,
                    display=message_text(match.text),
                    display_meta=message_text(match.detail or match.kind),
                )


def _commands(start: str) -> Iterator[Completion]:
    for name, meaning in COMMANDS.items():
        if name.startswith(start):
            yield Completion(name, -len(start), display=f"/{name}", display_meta=meaning)
