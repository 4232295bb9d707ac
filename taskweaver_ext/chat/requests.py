"""What a person can type: a request to the agent, Python, shell, or a command."""

from __future__ import annotations

import codeop
import re
import warnings
from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["agent", "python", "shell"]
MODES: tuple[Mode, ...] = ("agent", "python", "shell")

PREFIXES: dict[str, Mode] = {">": "python", "!": "shell"}

TERMINAL_PREFIX = "!!"
"""Before a command that is to have the terminal."""

COMMANDS = {
    "help": "show this",
    "exit": "leave",
    "clear": "clear the screen",
    "reset": "begin a new session: conversation, variables and shell",
    "sessions": "show the sessions of the project",
    "resume": "[ID]  continue another session in place of this one",
    "load": "FILE...  place files where code can open them",
    "save": "[FILE]  save the transcript of the session",
    "export": "[--force] FILE  write the session as .ipynb, .md, .html or .zip",
    "snapshot": "[FILE]  save the Python variables",
    "restore": "[--trust] [FILE]  bring back the variables that /snapshot saved",
    "info": "show session, model, folders and what was used",
    "mode": "[agent|python|shell]  what a line without a prefix is",
    "expand": "[NUMBER]  show collapsed output in full",
    "markdown": "[agent|python|shell] [on|off]|NUMBER  draw what comes, or a block, as Markdown",
    "history": "show what was typed",
    "artifacts": "show the files that were made",
    "auto": "[on|next|off]  have the agent react to what you run, or tell it later",
    "approve": "[ask shell|ask all|deny|auto]  what the agent may run; allow, forget PATTERN",
    "context": "[drop NUMBER|clear]  show what the agent knows, or take it out",
    "demo": "watch a scripted model plan, write code and run it",
}

ALIASES = {
    "bye": "exit",
    "quit": "exit",
    "h": "help",
    "?": "help",
    "file": "load",
    "img": "load",
    "image": "load",
}


LEAVING: dict[Mode, tuple[str, ...]] = {
    "agent": ("exit", "quit", "bye", "exit()", "quit()"),
    "python": ("exit", "quit", "exit()", "quit()"),
    "shell": ("exit", "logout"),
}
"""Lines that leave, as they do in the programs that people know."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a line asks for."""

    kind: Mode | Literal["terminal", "command", "nothing"]
    text: str
    """Without its prefix; a command's arguments."""
    command: str = ""


def parse_request(line: str, mode: Mode) -> Request:
    """Find out what a line asks for, where `mode` is what lines without a prefix are."""
    text = line.strip()
    if not text:
        return Request("nothing", "")
    if text.startswith(TERMINAL_PREFIX):
        return Request("terminal", text.removeprefix(TERMINAL_PREFIX).strip())
    if text[0] in PREFIXES:
        kind = PREFIXES[text[0]]
        code = line.strip("\n").lstrip().lstrip(text[0] if kind == "python" else "")
        code = code[1:] if kind == "shell" else code
        return Request(kind, code.removeprefix(" ").rstrip())
    if text in LEAVING[mode]:
        return Request("command", "", "exit")
    if text[0] == "/":
        name, _, arguments = text[1:].partition(" ")
        name = ALIASES.get(name, name)
        # A path is no command, but where no path makes sense it is a mistyped one.
        if name in COMMANDS or (mode == "agent" and "/" not in name):
            return Request("command", arguments.strip(), name)
    return Request(mode, line.strip("\n") if mode == "python" else text)


def prefix_width(line: str) -> int:
    """How far the prefix moves the first line of code to the right."""
    prefix = re.match(r"\s*(>+ ?|!!? ?)", line)
    return len(prefix[0]) if prefix else 0


def is_complete(line: str, mode: Mode) -> bool:
    """Whether Enter sends the line; else it begins another one."""
    request = parse_request(line, mode)
    if request.kind == "python":
        return not _is_in_block(line) and _compiles(request.text)
    return request.kind not in ("shell", "terminal", "agent") or not line.endswith("\\")


def is_complete_python(code: str) -> bool:
    """Whether Enter runs code that is being edited; else it begins another line."""
    return not _is_in_block(code) and _compiles(code)


def _is_in_block(text: str) -> bool:
    """Whether the last line belongs to a block, which goes on until an empty line ends it."""
    last_line = text.rpartition("\n")[2]
    return "\n" in text and last_line.startswith((" ", "\t")) and bool(last_line.strip())


def _compiles(code: str) -> bool:
    """Whether code is complete, be it right or wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return codeop.compile_command(code, symbol="exec") is not None
    except (SyntaxError, ValueError, OverflowError):
        return True  # running it says what is wrong
