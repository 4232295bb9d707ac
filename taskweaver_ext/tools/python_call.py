"""A call of the Python tool, and what comes of it: cells in, results and a text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus, Notice, Usage
from taskweaver_ext.tools.display_text import ImageOutput, StructuredOutput
from taskweaver_ext.tools.late_cells import LateCellOutput

DEFAULT_TIMEOUT_SECONDS = 30.0
MIN_TIMEOUT_SECONDS = 1.0
MAX_TIMEOUT_SECONDS = 600.0

STDIN_REFUSED = (
    "Kernel requested stdin; interactive input is not supported."
    " Put the value into the code, or pass it in a file or a variable."
)

_CANCELLED = "Command was cancelled"
_NO_OUTPUT = "(no output)"
_TOLD_BY_A_MARKER = "truncated"
_MAX_NAME_CHARACTERS = 80

SCHEMA: dict[str, Any] = {
    "name": "python",
    "description": (
        "Run Python cells, one after another, in a persistent IPython kernel. Variables,"
        " imports and functions stay for later calls. Put a step into a cell of its own and"
        " give it a short title; after a cell that fails, the rest is not run, and what ran"
        " before it stays. input() is not available. Long output is shortened; the whole is"
        " at the artifact:// address that the result names."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "cells": {
                "type": "array",
                "minItems": 1,
                "description": "The cells to run, in order.",
                "items": {
                    "type": "object",
                    "properties": {
                        "code": {"type": "string", "description": "Python code."},
                        "title": {"type": "string", "description": "A few words about it."},
                    },
                    "required": ["code"],
                    "additionalProperties": False,
                },
            },
            "timeout": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_TIMEOUT_SECONDS,
                "default": DEFAULT_TIMEOUT_SECONDS,
                "description": "Seconds for all cells together; 0 for no limit.",
            },
            "cwd": {
                "type": "string",
                "description": "The folder to run in; each has a kernel of its own.",
            },
            "reset": {
                "type": "boolean",
                "default": False,
                "description": "Start with a fresh kernel, without earlier variables.",
            },
        },
        "required": ["cells"],
        "additionalProperties": False,
    },
}
"""The tool as models are told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A piece of code with a few words about it."""

    code: str
    title: str = ""

    @property
    def name(self) -> str:
        """What it is known by: its title, or the first line of its code."""
        return self.title or self.code.strip().partition("\n")[0][:_MAX_NAME_CHARACTERS]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCall:
    """What the tool is asked to do."""

    cells: tuple[Cell, ...]
    timeout: float | None = None
    """Seconds; None: the default, 0: none."""
    cwd: str | None = None
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What became of one cell."""

    number: int
    """Counted from 1."""
    title: str = ""
    status: ExecutionStatus = ExecutionStatus.SUCCESS
    exit_code: int | None = 0
    """None for a cell that was stopped."""
    output: str = ""
    """What it wrote and displayed, in order, and how it failed; shortened in the middle."""
    outcome: str = ""
    """How it ended, in a sentence; empty after success."""
    outputs: tuple[StructuredOutput, ...] = ()
    artifact: str | None = None
    """The address of the whole output (`artifact://<id>`), if a part is left out above."""
    files: tuple[str, ...] = ()
    """Paths of images and other files it made."""
    stdin_requested: bool = False
    duration_seconds: float = 0.0
    usage: Usage = Usage()
    notices: tuple[Notice, ...] = ()

    @property
    def is_success(self) -> bool:
        """Whether the next cell may run."""
        return self.exit_code == 0

    @property
    def cancelled(self) -> bool:
        """Whether it was stopped, by the caller or by its timeout."""
        return self.status in (ExecutionStatus.CANCELLED, ExecutionStatus.TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCallResult:
    """What became of a call."""

    text: str
    """For the model: all cells, which one failed, and what else it should know."""
    is_error: bool
    cells: tuple[CellResult, ...] = ()
    """Those that ran; the last one failed if there was an error."""
    late: tuple[LateCellOutput, ...] = ()
    """What earlier cells wrote after their end, since the last result."""

    @property
    def images(self) -> tuple[ImageOutput, ...]:
        """All images that were displayed."""
        found = (output for cell in self.cells for output in cell.outputs)
        return tuple(output for output in found if isinstance(output, ImageOutput))


def clamp_timeout(requested: float | None, at_most: float = 0.0) -> float | None:
    """The seconds a call may take; None for no limit.

    Args:
        requested: None: the default; 0: no limit.
        at_most: A limit on what may be requested, besides ours; 0: none.

    Raises:
        ValueError: What is requested is not a number of seconds.
    """
    seconds = DEFAULT_TIMEOUT_SECONDS if requested is None else requested
    if not seconds >= 0:
        raise ValueError(f"timeout is a number of seconds, not {seconds!r}.")
    if seconds == 0:
        return at_most or None
    seconds = min(max(seconds, MIN_TIMEOUT_SECONDS), MAX_TIMEOUT_SECONDS)
    return min(seconds, at_most) if at_most else seconds


def parse_call(arguments: Mapping[str, Any]) -> PythonCall:
    """Read a call as a model wrote it; a ValueError names every mistake.

    What may be left out may be null as well: some APIs make models name every parameter.
    """
    if not isinstance(arguments, Mapping):
        raise ValueError("The call cannot be understood: it must be an object with cells.")
    mistakes = [
        f"there is no parameter {name!r}"
        for name in arguments.keys() - SCHEMA["parameters"]["properties"].keys()
    ]
    cells = arguments.get("cells")
    if not isinstance(cells, list) or not cells or not all(map(_is_cell, cells)):
        mistakes.append("cells must be a list of objects with code, and a title if you like")
    timeout = arguments.get("timeout")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0
    ):
        mistakes.append("timeout must be a number of seconds")
    if not isinstance(arguments.get("cwd"), str | None):
        mistakes.append("cwd must be the path of a folder")
    if not isinstance(arguments.get("reset"), bool | None):
        mistakes.append("reset must be true or false")
    if mistakes:
        raise ValueError("The call cannot be understood: " + "; ".join(sorted(mistakes)) + ".")
    return PythonCall(
        cells=tuple(Cell(code=c["code"], title=_one_line(c.get("title"))) for c in cells or ()),
        timeout=timeout,
        cwd=arguments.get("cwd"),
        reset=bool(arguments.get("reset")),
    )


def _one_line(title: str | None) -> str:
    return " ".join((title or "").split())


def _is_cell(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("code"), str)
        and isinstance(value.get("title"), str | None)
        and value.keys() <= {"code", "title"}
    )


def exit_code_of(result: ExecutionResult, *, stdin_requested: bool) -> int | None:
    """What a program that ended like this would have exited with; None if it was stopped."""
    if result.status in (ExecutionStatus.TIMEOUT, ExecutionStatus.CANCELLED):
        return None
    if result.is_success:
        return 1 if stdin_requested else 0
    return result.exit_code or 1


def outcome_of(result: ExecutionResult, exit_code: int | None, timeout: float | None) -> str:
    """How an execution ended, in a sentence; empty after success."""
    if result.status is ExecutionStatus.TIMEOUT:
        lost = "" if result.variables_survived else "; its kernel was killed, variables are lost"
        return f"Command timed out after {timeout or 0:g} seconds{lost}"
    if result.status is ExecutionStatus.CANCELLED:
        return _CANCELLED
    if result.status is ExecutionStatus.DIED:
        return result.error or "The kernel died"
    return f"Command exited with code {exit_code}" if exit_code else ""


def never_run(number: int, cell: Cell) -> CellResult:
    """The result of a cell that never began, because its call was stopped before."""
    return CellResult(
        number=number,
        title=cell.title,
        status=ExecutionStatus.CANCELLED,
        exit_code=None,
        outcome=_CANCELLED,
    )


def text_of(cells: Sequence[CellResult], count: int, late: Sequence[LateCellOutput] = ()) -> str:
    """The text for the model, of the cells that ran and how many there were."""
    parts = [f"[late output of {one.name}]\n{one.text}\n[end of late output]" for one in late]
    parts += [f"[{n.message}]" for c in cells for n in c.notices if n.kind != _TOLD_BY_A_MARKER]
    for cell in cells:
        output = cell.output.rstrip("\n")
        if count == 1:
            parts.append(output or ("" if cell.outcome else _NO_OUTPUT))
        else:
            heading = f"[{cell.number}/{count}] {cell.title}".rstrip()
            parts.append(f"{heading}\n{output or _NO_OUTPUT}")
    if cells and not cells[-1].is_success:
        parts.append(_failure_text(cells[-1], count))
    return "\n\n".join(part for part in parts if part)


def _failure_text(cell: CellResult, count: int) -> str:
    if count == 1:
        return cell.outcome
    name = f"Cell {cell.number} of {count}" + (f" ({cell.title})" if cell.title else "")
    left = count - cell.number
    not_run = f" {left} later {'cell was' if left == 1 else 'cells were'} not run." if left else ""
    is_lost = cell.status is ExecutionStatus.DIED
    kept = " What the cells before it did is kept." if cell.number > 1 and not is_lost else ""
    return f"{name} failed: {cell.outcome.rstrip('.')}.{kept}{not_run}"
