"""What `name?` and `name??` show: how something is called, what it does, its source, and where."""

from __future__ import annotations

from typing import Any

from .inspection import describe
from .known_expressions import Expressions
from .static_look import Known, attribute

_WIDTH = 76


def look_up(shell: Any, name: str, code: str = "") -> Known | None:
    """Return what a name stands for, a magic's with its percent sign; None when that is nothing.

    Args:
        code: Where the name stands; may bind it, too.
    """
    if name.startswith("%"):
        find = shell.find_cell_magic if name.startswith("%%") else shell.find_line_magic
        function = find(name.lstrip("%"))
        return None if function is None else Known(function)
    expressions = Expressions(shell.user_ns, code)
    found = expressions.find(name)
    if found is None and "." in name:  # what is not read because that would run code
        owner, _, last = name.rpartition(".")
        holder = expressions.find(owner)
        found = holder and attribute(Known(holder.kind), last)
    return found


def help_page(shell: Any, name: str, *, with_source: bool) -> str | None:
    """Return a page of help on a name, as plain text; None where there is nothing of that name."""
    found = look_up(shell, name)
    if found is None:
        return None
    told = describe(found, with_source=with_source)
    body = told["source"].rstrip() or told["documentation"]
    place = _place(shell, told["file"], told["line"])
    return "\n\n".join(part for part in (_head(name, told), body, place) if part)


def _head(name: str, told: dict[str, Any]) -> str:
    module = told["module"] if told["module"] not in ("", "builtins") else ""
    origin = f" from {module}" if module else ""
    if told["kind"] == "instance":
        size = f" of {told['size']}" if told["size"] else ""
        return f"{name}: {told['type']}{size}{origin}\n{told['value']}"
    if told["kind"] == "module":
        return f"{name}: module"
    return f"{_call(name, told['parameters'])}\n{told['kind']}{origin}"


def _call(name: str, parameters: list[str] | None) -> str:
    """A name and its parameters, in as many lines as that takes."""
    if parameters is None:
        return name
    line = f"{name}({', '.join(parameters)})"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in parameters), ")"])


def _place(shell: Any, file: str, line: int | None) -> str:
    if not file:
        return ""
    cell = getattr(shell.compile, "_filename_map", {}).get(file)
    where = f"Cell {cell}" if type(cell) is int else f"File {file}"
    return where if line is None else f"{where}, line {line}"
