"""What an execution says while it runs, as one ordered stream of frozen values.

Consumers `match` on the class and end with `assert_never`, so that a type
checker names every frontend that forgot a new event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.execution.results import (
    ExecutionArtifact,
    ExecutionId,
    ExecutionResult,
    ExecutionStatus,
    MimeBundle,
    Notice,
    StreamName,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputProduced:
    """The code, or a child process of it, wrote text."""

    execution_id: ExecutionId
    stream: StreamName
    text: str
    offset: int = field(default=0, compare=False)
    """Where in the record of the stream the text begins, in bytes; not part of its JSON."""
    size: int = field(default=0, compare=False)
    """How many bytes of the record it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayProduced:
    """The code displayed an object, or its last expression had a value."""

    execution_id: ExecutionId
    bundle: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    is_result: bool = False
    files: dict[str, str] = field(default_factory=dict)
    """Large parts of the bundle by MIME type: paths, in a session beneath its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayUpdated:
    """An earlier display with this id is to show something else."""

    execution_id: ExecutionId
    display_id: str
    bundle: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """As in `DisplayProduced`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCleared:
    """The code asked for what it has shown so far to be taken away (the record keeps it)."""

    execution_id: ExecutionId
    wait: bool = False
    """True: only when the next output comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecorded:
    """A plugin logged something through its context."""

    execution_id: ExecutionId
    level: str
    tag: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactProduced:
    """A file was added to the artifacts of the execution."""

    execution_id: ExecutionId
    artifact: ExecutionArtifact


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequested:
    """The code called `input()` or `getpass()` and waits for an answer."""

    execution_id: ExecutionId
    prompt: str
    password: bool = False
    number: int = 0
    """Counts the questions, so that an answer is not taken for another's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettled:
    """The question is closed: answered, or not wanted any more."""

    execution_id: ExecutionId
    outcome: Literal["answered", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """The execution, or the kernel under it, entered another state."""

    execution_id: ExecutionId
    status: Literal["running", "interrupting", "killing", "restarted", "paused", "resumed", "limit"]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReported:
    """The code itself reported what it is doing, as data."""

    execution_id: ExecutionId
    report: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateOutput:
    """Text that came after its execution had ended: a thread or a background process wrote on."""

    execution_id: ExecutionId
    stream: StreamName
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFinished:
    """The last event of an execution; nothing but late output follows it."""

    execution_id: ExecutionId
    status: ExecutionStatus
    error: str = ""
    """Plain text. Empty after success."""
    exit_code: int | None = None
    duration_seconds: float = 0.0
    variables_survived: bool = True
    notices: tuple[Notice, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @staticmethod
    def of(result: ExecutionResult) -> ExecutionFinished:
        """Make the event that tells how an execution ended."""
        return ExecutionFinished(
            execution_id=result.execution_id,
            status=result.status,
            error=result.error or "",
            exit_code=result.exit_code,
            duration_seconds=round(result.duration_seconds, 6),
            variables_survived=result.variables_survived,
            notices=tuple(result.notices),
            usage=result.usage,
        )


ExecutionEvent: TypeAlias = (
    OutputProduced
    | DisplayProduced
    | DisplayUpdated
    | OutputCleared
    | LogRecorded
    | ArtifactProduced
    | InputRequested
    | InputSettled
    | StatusChanged
    | StatusReported
    | LateOutput
    | ExecutionFinished
)
