"""The events of a session, and the base classes of handlers.

`TaskWeaverEvent` and the handler classes keep TaskWeaver's shape, so that its
handlers work here. Which shape of `events/extras.py` their `extra` has is written
under each event type; it is always a dict, often an empty one.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from taskweaver_ext.conversation import PostId, RoundId
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.extras import (
    AnsweredExtra,
    AttachmentExtra,
    CodeBlockExtra,
    CodeExecExtra,
    ContextExtra,
    EventExtra,
    ExecutionEventExtra,
    ExecutionOutputExtra,
    FilesExtra,
    FolderExtra,
    LateOutputExtra,
    MemoryExtra,
    MessageExtra,
    MissedEventsExtra,
    NewPostExtra,
    NoticeExtra,
    QuestionExtra,
    RoleExtra,
    RoundEndExtra,
    RoundStartExtra,
    SettingsExtra,
)


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


EventType: TypeAlias = SessionEventType | RoundEventType | PostEventType
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
