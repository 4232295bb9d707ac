"""What the events of a session say besides their text: the shape of each `extra`.

Which event has which shape is written under each type in `events/types.py`.
"""

from __future__ import annotations

from typing import Any, Literal, Never, NotRequired, TypeAlias, TypedDict, final

from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.config.settings import ApprovalMode, ApprovalScope, AutoSend, FolderPlace
from taskweaver_ext.conversation import (
    AttachmentId,
    AttachmentType,
    PostDict,
    PostId,
    RoleName,
    RoundId,
    RoundState,
)

# The shapes are final, so that `"stream" in event.extra` tells a type checker which one it is.


@final
class MissedEventsExtra(TypedDict):
    """Which events were asked for but are no longer kept."""

    first_seq: int
    last_seq: int


@final
class LateOutputExtra(TypedDict):
    """Where a piece of late output comes from."""

    stream: StreamName
    text: str
    """The same as the event's `msg`."""
    execution_id: ExecutionId


QuestionId: TypeAlias = str
QuestionKind: TypeAlias = Literal["input", "password", "approval"]
QuestionOutcome: TypeAlias = Literal[
    "answered", "approved", "edited", "refused", "always", "pattern", "cancelled"
]
"""`always` and `pattern` approve, too, and allow all such code, or such commands, from now on."""


@final
class QuestionExtra(TypedDict):
    """What a person is asked; answered once, with `session.answer`."""

    question_id: QuestionId
    kind: QuestionKind
    prompt: str
    """The same as the event's `msg`."""
    execution_id: ExecutionId
    """The execution that asks, or wants to begin."""
    language: NotRequired[str]
    code: NotRequired[str]
    """What wants to run."""
    reasons: NotRequired[list[str]]
    """Why a person has to decide, a sentence each."""
    choices: NotRequired[list[QuestionOutcome]]
    """The outcomes that an answer can bring about."""
    block: NotRequired[int]
    """The number of the code block that wants to run."""
    always: NotRequired[str]
    """What `always` allows from now on, in a sentence."""
    pattern: NotRequired[str]
    """What `pattern` allows from now on, unless the answer's text is another pattern."""


@final
class AnsweredExtra(TypedDict):
    """What became of a question; a password is never told."""

    question_id: QuestionId
    outcome: QuestionOutcome
    answer: NotRequired[str]
    """The text of an input, the code that runs instead, the pattern, or why it was refused."""
    by_rules: NotRequired[bool]
    """Whether nobody had to answer any more, because a setting was changed."""


@final
class ContextExtra(TypedDict):
    """All that goes to the agent with the next message, and what was taken out of what it knows.

    The agent knows its own code, and of a person's that which was shared: its post is among `runs`
    before a message takes it along. Both until it is among `dropped`, or its round is forgotten.
    """

    blocks: list[str]
    runs: NotRequired[list[PostId]]
    """For each block, the post of the run that it tells of; empty where it is some other text."""
    codes: NotRequired[list[str]]
    """For each block, the code that was run."""
    dropped: NotRequired[list[PostId]]
    """The posts whose code, and what came of it, the agent knows no longer."""


@final
class MemoryExtra(TypedDict):
    """Which rounds a role knows by a summary alone."""

    role: RoleName
    """Empty: all of them, and they know nothing of the rounds any more."""
    covered_rounds: list[RoundId]
    room_share: NotRequired[float]
    """How much of the room that its model should have the role uses, after the model refused more;
    1 unless said."""


@final
class SettingsExtra(TypedDict):
    """All that a person can change of a session while it lives."""

    approval: ApprovalMode
    """Whether code of the agent asks first, runs, or is refused."""
    approval_scope: ApprovalScope
    """What asks: what cannot be verified and is not contained, or all code."""
    allowed_patterns: list[str]
    """Shell commands that run without asking."""
    allowed_kinds: list[str]
    """Languages whose code runs without asking; `python+programs` is Python that starts some."""
    auto_send: AutoSend
    """Whether what a person runs goes to the agent: off, with the next message, or at once."""


@final
class FolderExtra(TypedDict):
    """Whose folder it is: the person's (`here`), or the session's own."""

    place: FolderPlace


@final
class FilesExtra(TypedDict):
    """What was added to the working folder."""

    files: list[str]
    """Their names there, as code opens them."""


NoticeSubject: TypeAlias = Literal[
    "fresh_kernel", "variables_saved", "variables_restored", "put_away"
]


@final
class NoticeExtra(TypedDict):
    """What a notice is about, where readers act on it."""

    about: NotRequired[NoticeSubject]


@final
class RoundStartExtra(TypedDict):
    """What the person wants of a round."""

    kind: Literal["message", "run"]
    user_query: str
    post: NotRequired[PostDict]
    """The person's post, with files and context, where roles are to answer it."""
    files: NotRequired[list[str]]
    """The names of files that were added to the working directory for it."""
    repeats: NotRequired[int]
    """The number of the code block that a run repeats."""
    is_shared: NotRequired[bool]
    """Whether the agent hears of a run."""


class UsageDict(TypedDict):
    """Tokens."""

    prompt: int
    completion: int
    cached: int
    is_estimate: bool


@final
class RoundEndExtra(TypedDict):
    """How a round ended."""

    state: RoundState
    usage: NotRequired[UsageDict]
    """What models have cost in the whole session so far."""


@final
class NewPostExtra(TypedDict):
    """What the roles know of a post from now on; what was shown of it and taken back is gone."""

    post: NotRequired[PostDict]


@final
class RoleExtra(TypedDict):
    """The role that speaks, or is spoken to."""

    role: RoleName


@final
class MessageExtra(TypedDict):
    """Whether the message is complete now."""

    is_end: bool


@final
class AttachmentExtra(TypedDict):
    """Which attachment grew, and whether it is complete now."""

    type: AttachmentType
    extra: Any
    """What the attachment itself has as extra."""
    id: AttachmentId
    is_end: bool


@final
class ExecutionOutputExtra(TypedDict):
    """Where a piece of output comes from."""

    stream: StreamName
    text: str
    """The same as the event's `msg`."""
    execution_id: ExecutionId
    offset: int
    """Where in the record of that stream the text begins, in bytes of its UTF-8."""
    size: NotRequired[int]
    """How many bytes of the record it is; left out where the record may not have it."""


@final
class ExecutionEventExtra(TypedDict):
    """What an execution says besides its output, in the words of `ces`."""

    execution_id: ExecutionId
    event: ExecutionEvent


@final
class CodeExecExtra(TypedDict):
    """One piece of the panel that shows code being written and run."""

    marker: Literal["subsystem"]
    sub_type: Literal[
        "code_exec.objective",
        "code_exec.program.name",
        "code_exec.code",
        "code_exec.contract",
        "code_exec.status",
    ]
    format: Literal["text", "json"]
    title: str
    index: int
    """Counts the pieces of one `sub_type`, from 0; code that begins again at 0 replaces it."""
    completed: bool
    execution_id: ExecutionId
    artifact_name: NotRequired[str]
    language: NotRequired[str]
    agent: NotRequired[str]
    payload: NotRequired[Any]
    """What `msg` holds as JSON text, when `format` is json."""


@final
class CodeBlockExtra(TypedDict):
    """Which block of code has which number; numbers count the blocks of a session from 1."""

    number: int
    language: str
    by: Literal["person", "agent"]
    part: int
    """0: the code that the post runs; else which one it is of those in the post's message."""
    repeats: NotRequired[int]
    """The number of the block that a person runs again with it."""


NoExtra: TypeAlias = dict[str, Never]
"""The extra of events whose text says everything: an empty dict."""
EventExtra: TypeAlias = (
    NoExtra
    | MissedEventsExtra
    | LateOutputExtra
    | QuestionExtra
    | AnsweredExtra
    | ContextExtra
    | MemoryExtra
    | SettingsExtra
    | FolderExtra
    | FilesExtra
    | NoticeExtra
    | RoundStartExtra
    | RoundEndExtra
    | NewPostExtra
    | RoleExtra
    | MessageExtra
    | AttachmentExtra
    | ExecutionOutputExtra
    | ExecutionEventExtra
    | CodeExecExtra
    | CodeBlockExtra
)
