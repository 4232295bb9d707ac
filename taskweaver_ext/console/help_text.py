"""What `/help` says: all that can be typed, on one screen."""

from __future__ import annotations

from taskweaver_ext.chat.requests import COMMANDS
from taskweaver_ext.console.rows import cell_width, clip

_COLUMN = 39
"""How wide one of two columns is on a terminal of 80."""
_TYPED = """\
Text asks the agent, > runs Python, ! shell; !! vim x has your terminal;
> name? explains, > name?? shows its source."""
_KEYS = """\
Enter sends, Alt-Enter adds a line, Tab completes; Up, Ctrl-R: earlier lines;
Alt-Up: earlier blocks. Ctrl-C stops what runs, twice kills it; Ctrl-D leaves.
/help COMMAND says more. Blocks of code are known by the number in brackets."""


def help_text(width: int) -> str:
    """Return all commands in as many columns as there is room for, and the keys."""
    name_width = max(map(len, COMMANDS))
    entries = [
        clip(f"/{name:<{name_width}} {_meaning(text)}", _COLUMN) for name, text in COMMANDS.items()
    ]
    columns = 2 if width >= 2 * _COLUMN + 1 else 1
    rows = -(-len(entries) // columns)
    lines = []
    for number in range(rows):
        cells = entries[number::rows]
        padded = [cell + " " * (_COLUMN - cell_width(cell)) for cell in cells]
        lines.append(" ".join(padded).rstrip())
    return "\n".join([_TYPED, *lines, _KEYS])


def help_on(name: str) -> str:
    """Return what one command takes and does."""
    takes, meaning = _parts(COMMANDS[name])
    return f"/{name} {takes}".rstrip() + f": {meaning}."


def _meaning(text: str) -> str:
    return _parts(text)[1]


def _parts(text: str) -> tuple[str, str]:
    """What a command takes, and what it does."""
    takes, gap, meaning = text.partition("  ")
    return (takes, meaning) if gap else ("", text)
