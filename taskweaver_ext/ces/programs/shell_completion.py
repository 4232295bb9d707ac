"""What can be typed next in a line of shell: commands, paths, variables.

Nothing is run for it: commands are looked for on the PATH and among what the shell has said it
knows, paths in its folder. A name is offered as it has to be typed, with what is special in it
quoted as the word is that has been begun.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

MAX_COMPLETIONS = 200
_SECONDS = 0.5
"""How long folders are looked through; one on a slow disk may hold very many files."""

CompletionKind: TypeAlias = Literal["command", "folder", "file", "variable"]

_SEPARATORS = ";|&(\n`"
_BREAKS = f" \t{_SEPARATORS})<>"
_SPECIAL = re.compile(r"([^\w@%+=:,./~-])", re.ASCII)
_SPECIAL_IN_DOUBLE_QUOTES = re.compile(r"([\\\"$`])")
_VARIABLE = re.compile(r"(?<!\\)\$(\{?)(\w*)$")
_ASSIGNMENT = re.compile(r"\w+\+?=")
_BEFORE_COMMANDS = frozenset(
    "sudo env time nice nohup command exec builtin which type man then do else if while !".split()
)


@dataclass(frozen=True, slots=True)
class ShellKnowledge:
    """What a shell knows that can be typed."""

    cwd: Path
    environment: Mapping[str, str]
    """Its exported variables."""
    commands: tuple[str, ...] = ()
    """Its functions, aliases, builtins and keywords."""
    variables: tuple[str, ...] = ()
    """The names of all its variables."""
    is_here: bool = True
    """Whether its folders are those of this machine; if not, `commands` has its programs, too."""


@dataclass(frozen=True, slots=True)
class ShellCompletion:
    """One thing that can stand where the cursor is."""

    text: str
    """What is to be typed in the place of what is there."""
    replaces: int
    """How many characters before the cursor it takes the place of."""
    shown: str
    """Its name, without quotes."""
    kind: CompletionKind


@dataclass(frozen=True, slots=True)
class _Word:
    """The word that the cursor is at the end of."""

    raw: str
    """As it was typed."""
    quote: str
    """The quote that is open in it, if one is."""
    is_command: bool
    """Whether it is the name of a command."""


def complete_shell(line: str, shell: ShellKnowledge) -> list[ShellCompletion]:
    """Return what fits at the end of a line, in order; at most `MAX_COMPLETIONS`."""
    word = _last_word(line)
    if word.quote != "'" and (match := _VARIABLE.search(word.raw)):
        return _variables(match, shell)[:MAX_COMPLETIONS]
    if word.is_command and "/" not in word.raw and not word.raw.startswith("~"):
        return _commands(word, shell)[:MAX_COMPLETIONS]
    return _paths(word, shell)[:MAX_COMPLETIONS] if shell.is_here else []


def _last_word(line: str) -> _Word:
    """Read a line as bash would, as far as it matters for its last word."""
    start, quote, is_command = 0, "", True
    position = 0
    while position < len(line):
        character = line[position]
        if quote:
            if character == "\\" and quote == '"':
                position += 1
            elif character == quote:
                quote = ""
        elif character == "\\":
            position += 1
        elif character in "'\"":
            quote = character
        elif character in _BREAKS:
            is_command = _goes_on_with_command(line[start:position], character, is_command)
            start = position + 1
        position += 1
    raw = line[start:]
    return _Word(raw, quote, is_command and _ASSIGNMENT.match(raw) is None)


def _goes_on_with_command(word: str, end: str, was_command: bool) -> bool:
    """Whether the next word names a command, given the one before it and what ended that."""
    if end in _SEPARATORS:
        return True
    if end in "<>)":
        return False
    if not word:
        return was_command
    return was_command and (word in _BEFORE_COMMANDS or _ASSIGNMENT.match(word) is not None)


def _variables(match: re.Match[str], shell: ShellKnowledge) -> list[ShellCompletion]:
    brace, start = match[1], match[2]
    names = sorted({*shell.environment, *shell.variables})
    return [
        ShellCompletion(
            f"${brace}{name}{'}' if brace else ''}", len(match[0]), f"${name}", "variable"
        )
        for name in names
        if name.startswith(start) and name.isidentifier()
    ]


def _commands(word: _Word, shell: ShellKnowledge) -> list[ShellCompletion]:
    start = _unquoted(word.raw)
    if not start:
        return []
    names = {name for name in shell.commands if name.startswith(start)}
    if shell.is_here:
        names.update(_programs(start, shell))
    return [
        ShellCompletion(
            f"{word.quote}{_quoted(name, word.quote, is_whole=True)}",
            len(word.raw),
            name,
            "command",
        )
        for name in sorted(names)
    ]


def _programs(start: str, shell: ShellKnowledge) -> Iterator[str]:
    deadline = time.monotonic() + _SECONDS
    for folder in dict.fromkeys(shell.environment.get("PATH", os.defpath).split(os.pathsep)):
        for entry in _entries(shell.cwd / folder, deadline):
            if entry.name.startswith(start) and _is_program(entry):
                yield entry.name


def _is_program(entry: os.DirEntry[str]) -> bool:
    try:
        mode = entry.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _paths(word: _Word, shell: ShellKnowledge) -> list[ShellCompletion]:
    raw = word.raw
    if not word.quote and (assigned := raw.rpartition("="))[1]:
        raw = assigned[2]
    head, slash, _ = raw.rpartition("/")
    start = _unquoted(raw)[len(_unquoted(head + slash)) :]
    folder = _folder_of(head + slash, word.quote, shell)
    found = []
    for entry in _entries(folder, time.monotonic() + _SECONDS):
        if not entry.name.startswith(start) or (entry.name[0] == "." and start[:1] != "."):
            continue
        is_folder = _is_folder(entry)
        if word.is_command and not is_folder and not _is_program(entry):
            continue
        text = f"{head}{slash}{_quoted(entry.name, word.quote, is_whole=not is_folder)}"
        if word.quote and not slash:
            text = f"{word.quote}{text}"
        found.append(
            ShellCompletion(
                f"{text}/" if is_folder else text,
                len(raw),
                f"{entry.name}/" if is_folder else entry.name,
                "folder" if is_folder else "file",
            )
        )
    return sorted(found, key=lambda one: one.shown)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _folder_of(head: str, quote: str, shell: ShellKnowledge) -> Path:
    """The folder that the part of a word before its last slash means."""
    text = _unquoted(head)
    if head.startswith("~"):
        home = shell.environment.get("HOME", "")
        text = f"{home}{text[1:]}" if text.startswith("~/") and home else os.path.expanduser(text)
    elif quote != "'" and not head.startswith("'"):
        text = re.sub(
            r"\$(?:\{(\w+)\}|(\w+))",
            lambda match: shell.environment.get(match[1] or match[2], match[0]),
            text,
        )
    return shell.cwd / text


def _entries(folder: Path, deadline: float) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if time.monotonic() > deadline:
                    return
                yield entry
    except (OSError, ValueError):
        return


def _unquoted(raw: str) -> str:
    """What a word means, its quotes and backslashes read; one that is not closed goes on."""
    text, quote, position = [], "", 0
    while position < len(raw):
        character = raw[position]
        if character == "\\" and quote != "'" and position + 1 < len(raw):
            position += 1
            text.append(raw[position])
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        else:
            text.append(character)
        position += 1
    return "".join(text)


def _quoted(name: str, quote: str, *, is_whole: bool) -> str:
    """A name as it has to be typed after an open quote, or after none.

    Args:
        is_whole: Whether nothing of the name is to come, so that its quote is closed.
    """
    end = quote if is_whole else ""
    if quote == '"':
        return _SPECIAL_IN_DOUBLE_QUOTES.sub(r"\\\1", name) + end
    if quote == "'":
        return name.replace("'", "'\\''") + end
    if "\n" in name:
        return "$'" + name.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    text = _SPECIAL.sub(lambda match: match[1] if ord(match[1]) > 127 else f"\\{match[1]}", name)
    return f"\\{text}" if text.startswith("~") else text
