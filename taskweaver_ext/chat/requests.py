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

_PREFIX_OF = {"python": ">", "bash": "!", "shell": "!", "terminal": TERMINAL_PREFIX}
"""What a line begins with that runs code in a language."""

COMMANDS = {
    "run": "[NUMBER]  run a block again",
    "edit": "[NUMBER]  edit a block in the input",
    "edit!": "[NUMBER]  edit a block in $EDITOR",
    "copy": "[NUMBER]  copy a block",
    "show": "[NUMBER]  show a block and its state",
    "expand": "[NUMBER]  show all output of a block",
    "find": "[NUMBER] TEXT  search in output",
    "markdown": "[agent|python|shell] [on|off]|NUMBER  draw text as Markdown",
    "verbose": "[on|off]  show plans and thoughts",
    "clear": "clear the screen",
    "mode": "[agent|python|shell]  what plain lines are",
    "approve": "[ask shell|ask all|deny|auto|allow|forget PATTERN]  what the agent may run",
    "auto": "[on|next|off]  agent hears what you run",
    "context": "[drop NUMBER|clear]  what the agent knows",
    "load": "FILE...  give files to the code",
    "artifacts": "show files that were made",
    "history": "show what was typed",
    "info": "show model, folders, usage",
    "sessions": "show all sessions",
    "resume": "[ID]  continue another session",
    "reset": "begin a new session",
    "save": "[FILE]  save the transcript",
    "export": "[--force] FILE  as .ipynb .md .html .zip",
    "snapshot": "[FILE]  save Python variables",
    "restore": "[--trust] [FILE]  bring variables back",
    "demo": "watch a scripted agent work",
    "help": "[COMMAND]  this, or one command",
    "exit": "leave",
}
"""What each takes, two spaces, and what it does; in the order of `/help`."""

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


def input_line(language: str, code: str) -> str | None:
    """Return the line that runs a block of code; None where no line can."""
    prefix = _PREFIX_OF.get(language)
    return f"{prefix} {code}" if prefix else None


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
