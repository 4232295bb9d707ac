"""What is left of an execution once it has ended."""

from __future__ import annotations

import enum
import json
import signal as signals
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NewType, TypeAlias

ExecutionId = NewType("ExecutionId", str)
StreamName: TypeAlias = Literal["stdout", "stderr"]
MimeBundle: TypeAlias = dict[str, Any]
Cause: TypeAlias = Literal[
    "exited", "signal", "out_of_memory", "unresponsive", "container_gone", "engine_gone", "unknown"
]
"""Of a kernel's end; "unresponsive": it lived, but code had wrecked what runs code."""


class ExecutionStatus(enum.Enum):
    """How far an execution has come, or how it ended."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    DIED = "died"
    PAUSED = "paused"
    """A program of a person's that was stopped with Ctrl-Z, and waits to be continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDeath:
    """How a kernel came to its end."""

    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    """One sentence for people: "killed by SIGSEGV"."""


def signal_name(number: int) -> str:
    """A signal as people call it; those without a name have their number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the caller should know about a result that is not part of its data."""

    kind: Literal[
        "truncated",
        "record_failed",
        "display_skipped",
        "restarted",
        "state_lost",
        "output_lost",
        "output_limit",
        "limit",
        "host",
    ]
    message: str


@dataclass(frozen=True, slots=True)
class HostNotice:
    """Something the host has to say about the kernel: paused, resumed, a limit, lost output."""

    status: Literal["paused", "resumed", "limit", "output_lost"]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an execution consumed, where the host can tell."""

    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelContents:
    """What code would find in a kernel."""

    python: str
    """The version, as in "3.11"."""
    system: str
    """As in `sys.platform`."""
    packages: tuple[str, ...] = ()
    """Those of some well-known packages that are installed."""
    variables: tuple[tuple[str, str], ...] = ()
    """The latest variables of earlier code: names, and what kind of thing each is."""
    variable_count: int = 0
    """How many there are altogether."""

    @staticmethod
    def from_json(text: str) -> KernelContents | None:
        """Read what a kernel says of itself; None when it makes no sense, as code can forge it."""
        try:
            said = json.loads(text)
            return KernelContents(
                python=str(said["python"]),
                system=str(said["system"]),
                packages=tuple(map(str, said["packages"])),
                variables=tuple((str(name), str(kind)) for name, kind in said["variables"]),
                variable_count=int(said["variable_count"]),
            )
        except (KeyError, TypeError, ValueError, RecursionError):
            return None


@dataclass(slots=True, kw_only=True)
class ExecutionArtifact:
    """A file an execution made; the names of the fields are TaskWeaver's."""

    name: str
    type: str
    """chart, image, df, file, txt, svg or html."""
    mime_type: str = ""
    original_name: str = ""
    file_name: str = ""
    """Where it is: a path on this machine, or empty when only `file_content` came."""
    file_content: str = ""
    file_content_encoding: Literal["str", "base64"] = "str"
    preview: str = ""


@dataclass(slots=True, kw_only=True)
class Display:
    """Something shown by rich display, with the updates made to it applied."""

    bundle: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    is_result: bool = False
    """True for the value of the last expression."""
    files: dict[str, str] = field(default_factory=dict)
    """Parts that are too large for a result, by MIME type: where each is, whole, as a file."""


@dataclass(slots=True, kw_only=True)
class ExecutionResult:
    """Everything an execution left behind; bounded, whatever the code wrote."""

    execution_id: ExecutionId
    code: str
    status: ExecutionStatus = ExecutionStatus.PENDING
    error: str | None = None
    """The traceback or the failure in words, as plain text; None after success."""
    output: str = ""
    """The last expression's value as text."""
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    log: list[tuple[str, str, str]] = field(default_factory=list)
    """(level, tag, message), oldest first."""
    artifact: list[ExecutionArtifact] = field(default_factory=list)

    exit_code: int | None = None
    duration_seconds: float = 0.0
    displays: list[Display] = field(default_factory=list)
    full_output_paths: dict[StreamName, Path] = field(default_factory=dict)
    """Where the whole text of each stream is; empty when nothing was cut from `stdout`/`stderr`."""
    notices: list[Notice] = field(default_factory=list)
    variables_survived: bool = True
    """False when the state the code could rely on (variables, shell) is gone afterwards."""
    death: KernelDeath | None = None
    usage: Usage = field(default_factory=Usage)
    folder: object = field(default=None, init=False, repr=False, compare=False)
    """Keeps the files that it names for as long as it is there, where they are temporary."""

    @property
    def is_success(self) -> bool:
        """Whether the code ran to its end without an error."""
        return self.status is ExecutionStatus.SUCCESS
