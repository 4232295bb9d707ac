"""What a look into a kernel shows: what fits in code, what something is, what is there and runs.

Looking never waits for code that runs and never runs code of the user. Where the kernel cannot
answer, the result says so instead of what it could not find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from taskweaver_ext.ces.execution.results import ExecutionId

LookStatus: TypeAlias = Literal["ok", "timeout", "starting", "no_kernel", "failed"]
"""Whether a kernel has answered; "timeout": code that runs keeps Python's lock, "starting": it is
not ready yet, "no_kernel": there is none, "failed": it could not, and `detail` says why."""

CompletionKind: TypeAlias = Literal[
    "class",
    "function",
    "instance",
    "key",
    "keyword",
    "magic",
    "method",
    "module",
    "param",
    "path",
    "property",
    "statement",
]
"""As Jupyter's words are; "key": of a mapping or table, "statement": a name in the code itself."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Something that fits where the cursor is."""

    text: str
    """Stands in place of the code from `start` to `end`."""
    kind: CompletionKind
    detail: str = ""
    """The signature of what can be called, the type of a value; often empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """Everything that fits where the cursor is, the likeliest first."""

    matches: tuple[Completion, ...] = ()
    start: int = 0
    """Which part of the code a match replaces: from here ..."""
    end: int = 0
    """... to here, in characters."""
    is_cut: bool = False
    """Whether there is more that fits."""
    status: LookStatus = "ok"
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What is known of the name at the cursor."""

    name: str = ""
    """The name, with what it is an attribute of; of a call that is being typed, what is called."""
    is_found: bool = False
    kind: str = ""
    """One of the words of `CompletionKind`."""
    type_name: str = ""
    module: str = ""
    signature: str = ""
    """How it is called: "(a, b=1)"."""
    documentation: str = ""
    file: str = ""
    """Where it is defined, as the kernel sees it."""
    line: int | None = None
    value: str = ""
    """In few words, where it is no function, class or module."""
    size: str = ""
    source: str = ""
    """With `detail=1`, where it is known."""
    status: LookStatus = "ok"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the user's."""

    name: str
    type_name: str
    kind: str
    """instance, function, class or module."""
    size: str = ""
    """The shape of an array or table ("3 x 2"), the length of a text or container."""
    value: str = ""
    """In few words; of a table or array the first values."""


@dataclass(frozen=True, slots=True)
class StackLine:
    """A line of code that is being run."""

    file: str
    """As Python knows it; that of a cell is of no use to people."""
    cell: int | None
    """The number of the cell, if the line is in one."""
    line: int
    text: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCode:
    """What a kernel is doing."""

    execution_id: ExecutionId | None
    seconds: float
    """For how long the execution runs."""
    stack: tuple[StackLine, ...] = ()
    """The calls of the user's code that are under way; the last line is the one that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPeek:
    """A kernel at one moment, also while it runs code."""

    state: str
    """As in `SessionInfo`: idle, busy, put_away, starting or dead."""
    variables: tuple[Variable, ...] = ()
    """The latest ones, in the order in which they were made."""
    variable_count: int = 0
    """How many there are altogether."""
    running: RunningCode | None = None
    memory_bytes: int | None = None
    """What the kernel's process holds."""
    status: LookStatus = "ok"
    detail: str = ""
