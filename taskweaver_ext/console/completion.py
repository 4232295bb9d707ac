"""What Tab offers: commands, their arguments, file names, and names that the kernel knows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from taskweaver_ext.chat.kernel_names import KernelName
from taskweaver_ext.chat.requests import COMMANDS, MODES, Mode, parse_request
from taskweaver_ext.text.terminal import message_text

_CHOICES: dict[str, Sequence[str]] = {
    "mode": MODES,
    "auto": ("on", "off"),
    "approve": ("ask", "auto", "deny"),
    "context": ("clear",),
}
_COMMANDS_WITH_FILES = ("load", "save", "export")
_WORD_BREAKS = " \t\n\"'=;|&<>()"


FindNames: TypeAlias = Callable[[str], Sequence[KernelName]]
"""Asks the kernel for names, given the code before the cursor."""


class ChatCompleter(Completer):
    """Completes what is being typed, as what it would be taken for."""

    def __init__(self, get_mode: Callable[[], Mode], find_names: FindNames) -> None:
        self._get_mode = get_mode
        self._find_names = find_names
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
            return self._names(request.text)
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

    def _names(self, code: str) -> Iterator[Completion]:
        if not code.strip():
            return
        for name in self._find_names(code):
            yield Completion(
                name.text,
                -name.replaces,
                display=message_text(name.text),
                display_meta=message_text(name.signature),
            )


def _commands(start: str) -> Iterator[Completion]:
    for name, meaning in COMMANDS.items():
        if name.startswith(start):
            yield Completion(name, -len(start), display=f"/{name}", display_meta=meaning)
