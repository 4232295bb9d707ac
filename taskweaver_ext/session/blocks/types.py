"""What a session comes to when it is read back: messages, cells with their outputs, notices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.execution.results import (
    ExecutionArtifact,
    ExecutionId,
    MimeBundle,
    StreamName,
)
from taskweaver_ext.conversation import AttachmentType, PostId, RoleName, RoundId
from taskweaver_ext.events.extras import NoticeSubject, QuestionId, QuestionKind, QuestionOutcome

TERMINAL = "terminal"
"""Stands in place of a language where a program had a person's terminal."""

CellStatus: TypeAlias = Literal[
    "success",
    "error",
    "timeout",
    "cancelled",
    "died",
    "paused",
    "running",
    "lost",
    "refused",
    "not_run",
]
"""How code ended: `lost` with its process, `paused` by Ctrl-Z, `refused` by verification or
a person, `not_run` when its round ended before it began, `running` when it still does."""


@dataclass(slots=True, kw_only=True)
class TextOutput:
    """What code wrote to one stream without a break; lines that were written over are folded."""

    stream: StreamName
    text: str
    """May hold plain colours, and nothing else that drives a terminal."""
    is_late: bool = False
    """Whether it came after the code's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Stands where the middle of much output is not kept."""

    characters: int
    lines: int
    others: int
    """How many displays and the like are left out."""
    paths: dict[StreamName, str]
    """Where the whole text of each stream is, beneath the session's folder."""


@dataclass(slots=True, kw_only=True)
class DisplayOutput:
    """Something shown by rich display, with the updates made to it applied."""

    bundle: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Large parts of the bundle by MIME type, as paths beneath the session's folder."""
    display_id: str | None = None
    is_result: bool = False
    seq: int = 0
    """The event that showed it, or changed it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOutput:
    """What a plugin logged."""

    level: str
    tag: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactOutput:
    """A file that the code made."""

    artifact: ExecutionArtifact


@dataclass(slots=True, kw_only=True)
class QuestionOutput:
    """What a person was asked, and what became of it; a password is never known."""

    question_id: QuestionId
    kind: QuestionKind
    prompt: str
    reasons: tuple[str, ...] = ()
    outcome: QuestionOutcome | None = None
    """None: it was never closed."""
    answer: str = ""


Output: TypeAlias = (
    TextOutput | LeftOut | DisplayOutput | LogOutput | ArtifactOutput | QuestionOutput
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A complete part of a post that is not its message: a plan, a thought."""

    type: AttachmentType
    text: str
    extra: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCode:
    """A block of code in the text of an answer, which has not run."""

    number: int
    """Counts together with those of cells."""
    language: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a person or a role said."""

    role: RoleName
    send_to: RoleName
    text: str
    round_id: RoundId
    post_id: PostId | None = None
    at: float = 0.0
    attachments: tuple[Attached, ...] = ()
    context: str = ""
    """What went to the agent along with a person's words: shared code, names of files."""
    files: tuple[str, ...] = ()
    """The names of files that were added to the working directory for it."""
    is_error: bool = False
    """Whether the text says why the role came to nothing."""
    proposed: tuple[ProposedCode, ...] = ()
    """The blocks of code in the text of an answer, in their order."""


@dataclass(slots=True, kw_only=True)
class Cell:
    """Code, who wrote it, and what came of it."""

    number: int
    """Counts the blocks of code of the session from 1, those that did not run included."""
    language: str
    code: str
    """The code that ran: where a person has edited it, the edited one."""
    by: Literal["person", "agent"]
    role: RoleName
    round_id: RoundId
    post_id: PostId
    execution_id: ExecutionId
    at: float = 0.0
    outputs: list[Output] = field(default_factory=list)
    status: CellStatus = "not_run"
    error: str = ""
    """The traceback, or the failure in words; of refused code, why."""
    exit_code: int | None = None
    duration_seconds: float | None = None
    variables_survived: bool = True
    notices: tuple[str, ...] = ()
    """What a person should know: a restart, lost variables, limits."""
    is_edited: bool = False
    """Whether a person has changed the code before it ran."""
    verification: str = ""
    """CORRECT, INCORRECT or NONE; empty where none was due."""
    report: str = ""
    """What a model was told about the outcome."""
    objective: str = ""
    program: str = ""
    repeats: int | None = None
    """The number of the block that a person ran again with it."""

    @property
    def has_run(self) -> bool:
        """Whether the code has begun to run."""
        return self.status not in ("refused", "not_run")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateText:
    """What code wrote after its cell was told, where a reader could not look ahead."""

    execution_id: ExecutionId
    output: TextOutput
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNotice:
    """Something to know of the session, or of a round, that no role has said."""

    kind: Literal["notice", "error", "cancelled", "resumed", "missed", "summary"]
    text: str
    about: NoticeSubject | None = None
    """What a notice is about, where readers act on it."""
    files: tuple[str, ...] = ()
    """The names of files that were added to the working directory."""
    round_id: RoundId | None = None
    at: float = 0.0


Block: TypeAlias = Message | Cell | LateText | SessionNotice
