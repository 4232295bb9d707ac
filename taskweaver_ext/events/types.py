"""The events of a session, and the base classes of handlers.

`TaskWeaverEvent` and the handler classes keep TaskWeaver's shape, so that its
handlers work here. What `extra` holds is written under each event type; it is
always a dict, often an empty one.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from taskweaver_ext.errors import ProtocolError


class EventScope(enum.Enum):
    """What an event is about."""

    session = "session"
    round = "round"
    post = "post"


class SessionEventType(enum.Enum):
    """What can happen to a session. `extra` is empty unless noted."""

    session_start = "session_start"
    session_end = "session_end"
    session_new_round = "session_new_round"
    session_events_missed = "session_events_missed"
    """Told to one reader alone, before events of which earlier ones are gone. MissedEventsExtra."""
    session_late_output = "session_late_output"
    """`msg` is what code wrote after its execution had ended. LateOutputExtra."""
    session_question = "session_question"
    """`msg` is what a person is asked. QuestionExtra."""
    session_answered = "session_answered"
    """The question is closed. AnsweredExtra."""
    session_context_update = "session_context_update"
    """What the agent knows, or hears with the next message, has changed. ContextExtra."""
    session_memory_update = "session_memory_update"
    """A role knows earlier rounds by the summary in `msg` from now on, or all roles have forgotten
    them. MemoryExtra."""
    session_renamed = "session_renamed"
    """`msg` is the title that a person has given the session; empty: none any more."""
    session_settings = "session_settings"
    """What a person can change of the session, as it is from now on. SettingsExtra."""
    session_folder = "session_folder"
    """`msg` is the folder in which code works from now on; until it is told, that is the session's
    own. FolderExtra."""
    session_files_added = "session_files_added"
    """Files were given to the session, and code can open them. FilesExtra."""
    session_notice = "session_notice"
    """`msg` is something a person should know of the session itself. NoticeExtra."""


class RoundEventType(enum.Enum):
    """What can happen to a round. `extra` is empty unless noted."""

    round_start = "round_start"
    """RoundStartExtra: what the person wants."""
    round_end = "round_end"
    """RoundEndExtra: how it ended."""
    round_error = "round_error"
    """`msg` says what went wrong."""
    round_new_post = "round_new_post"
    """A post is complete and part of the conversation. NewPostExtra."""


class PostEventType(enum.Enum):
    """What can happen to a post. `extra` is empty unless noted."""

    post_start = "post_start"
    """RoleExtra: the role that speaks."""
    post_end = "post_end"
    post_error = "post_error"
    """`msg` takes the place of everything the post has said so far."""
    post_status_update = "post_status_update"
    """`msg` is what the role is doing now."""
    post_send_to_update = "post_send_to_update"
    """RoleExtra: the role that is spoken to."""
    post_message_update = "post_message_update"
    """`msg` is the next piece of the message. MessageExtra."""
    post_attachment_update = "post_attachment_update"
    """`msg` is the next piece of the attachment's content. AttachmentExtra."""
    post_execution_output = "post_execution_output"
    """`msg` is what running code wrote. ExecutionOutputExtra."""
    post_execution_event = "post_execution_event"
    """Whatever else an execution says. ExecutionEventExtra."""
    post_code_exec = "post_code_exec"
    """`msg` is text for the execution panel. CodeExecExtra."""
    post_code_block = "post_code_block"
    """The number of a block of code, told before its code is; of one that is proposed in the text
    of an answer, `msg` is the code, told before the round has the post. CodeBlockExtra."""


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


EventType: TypeAlias = SessionEventType | RoundEventType | PostEventType
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
EXTRA_SHAPES: Mapping[EventType, Any] = {
    SessionEventType.session_events_missed: MissedEventsExtra,
    SessionEventType.session_late_output: LateOutputExtra,
    SessionEventType.session_question: QuestionExtra,
    SessionEventType.session_answered: AnsweredExtra,
    SessionEventType.session_context_update: ContextExtra,
    SessionEventType.session_memory_update: MemoryExtra,
    SessionEventType.session_settings: SettingsExtra,
    SessionEventType.session_folder: FolderExtra,
    SessionEventType.session_files_added: FilesExtra,
    SessionEventType.session_notice: NoticeExtra,
    RoundEventType.round_start: RoundStartExtra,
    RoundEventType.round_end: RoundEndExtra,
    RoundEventType.round_new_post: NewPostExtra,
    PostEventType.post_start: RoleExtra,
    PostEventType.post_send_to_update: RoleExtra,
    PostEventType.post_message_update: MessageExtra,
    PostEventType.post_attachment_update: AttachmentExtra,
    PostEventType.post_execution_output: ExecutionOutputExtra,
    PostEventType.post_execution_event: ExecutionEventExtra,
    PostEventType.post_code_exec: CodeExecExtra,
    PostEventType.post_code_block: CodeBlockExtra,
}
"""Which typed dictionary the extra of an event is; of the others it is empty."""


@dataclass(frozen=True, slots=True)
class TaskWeaverEvent:
    """Something that happened in a session.

    Raises:
        ProtocolError: the type is of another scope, or the ids of its scope are missing.
    """

    scope: EventScope
    t: EventType
    round_id: RoundId | None
    post_id: PostId | None
    msg: str
    extra: EventExtra = field(default_factory=dict)
    seq: int = 0
    """Its number in the session, from 1; 0 until it is emitted."""
    at: float = 0.0
    """When it was emitted, in seconds since 1970."""

    def __post_init__(self) -> None:
        """Refuse an event that no handler could place."""
        if not isinstance(self.t, _TYPES_OF_SCOPE[self.scope]):
            raise ProtocolError(f"{self.t} is not an event of a {self.scope.value}.")
        if self.scope is not EventScope.session and self.round_id is None:
            raise ProtocolError(f"A {self.scope.value} event needs the id of its round.")
        if self.scope is EventScope.post and self.post_id is None:
            raise ProtocolError("A post event needs the id of its post.")


_TYPES_OF_SCOPE: Mapping[EventScope, type[EventType]] = {
    EventScope.session: SessionEventType,
    EventScope.round: RoundEventType,
    EventScope.post: PostEventType,
}


class SessionEventHandler(abc.ABC):
    """A subscriber to the events of a session.

    The emitter calls `handle` for one event at a time, on whichever thread
    dispatches. An exception is logged (the first of each subscription) and does not
    reach other handlers. Events are shared and kept: do not change them.
    """

    @abc.abstractmethod
    def handle(self, event: TaskWeaverEvent) -> None:
        """Hear one event; return soon, because other handlers wait."""


class SessionEventHandlerBase(SessionEventHandler):
    """A handler with one method per scope; override those you need."""

    def handle(self, event: TaskWeaverEvent) -> None:
        """Call the method of the event's scope."""
        kind, round_id, post_id = event.t, event.round_id, event.post_id
        if isinstance(kind, SessionEventType):
            self.handle_session(kind, event.msg, event.extra)
        elif isinstance(kind, RoundEventType) and round_id is not None:
            self.handle_round(kind, event.msg, event.extra, round_id)
        elif isinstance(kind, PostEventType) and round_id is not None and post_id is not None:
            self.handle_post(kind, event.msg, event.extra, post_id, round_id)

    def handle_session(self, type: SessionEventType, msg: str, extra: EventExtra) -> None:
        """Hear what happened to the session."""

    def handle_round(
        self, type: RoundEventType, msg: str, extra: EventExtra, round_id: RoundId
    ) -> None:
        """Hear what happened to a round."""

    def handle_post(
        self, type: PostEventType, msg: str, extra: EventExtra, post_id: PostId, round_id: RoundId
    ) -> None:
        """Hear what happened to a post."""
