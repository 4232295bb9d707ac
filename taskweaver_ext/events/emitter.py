"""What a session says, in TaskWeaver's words: events of rounds, and of posts as they grow."""

from __future__ import annotations

from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.conversation import (
    Attachment,
    AttachmentType,
    Post,
    RoleName,
    RoundId,
    RoundState,
)
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.dispatcher import EventDispatcher
from taskweaver_ext.events.extras import (
    AttachmentExtra,
    CodeExecExtra,
    EventExtra,
    ExecutionEventExtra,
    ExecutionOutputExtra,
    NoticeExtra,
    NoticeSubject,
    RoundEndExtra,
    RoundStartExtra,
    UsageDict,
)
from taskweaver_ext.events.types import (
    EventScope,
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)


class SessionEventEmitter(EventDispatcher):
    """Emit the events of a session's rounds and posts to all of its handlers."""

    current_round_id: RoundId | None = None
    """The round that is under way."""

    def start_round(self, round_id: RoundId, details: RoundStartExtra | None = None) -> None:
        """Say that a round began; posts belong to it until `end_round`.

        Args:
            details: What the person wants of it.

        Raises:
            SessionError: another round has not ended.
        """
        if self.current_round_id is not None:
            raise SessionError(f"Round {self.current_round_id!r} has not ended yet.")
        self.current_round_id = round_id
        try:
            details = details or {"kind": "message", "user_query": ""}
            self._emit_round_event(RoundEventType.round_start, "Round started", details)
        except BaseException:  # Ctrl-C in a handler must not keep the next round from starting
            self.current_round_id = None
            raise

    def add_post(self, post: Post) -> None:
        """Say that a post is part of the conversation, as it is now.

        Raises:
            SessionError: there is no current round.
        """
        self._emit_round_event(RoundEventType.round_new_post, "", {"post": post.to_dict()})

    def end_round(
        self, round_id: RoundId, state: RoundState = "finished", usage: UsageDict | None = None
    ) -> None:
        """Say that the round ended, and how.

        Args:
            usage: What models have cost in the whole session so far.

        Raises:
            SessionError: it is not the current round.
        """
        if self.current_round_id != round_id:
            raise SessionError(f"Round {round_id!r} cannot end: it is not the current one.")
        details: RoundEndExtra = {"state": state}
        if usage is not None:
            details["usage"] = usage
        try:
            self._emit_round_event(RoundEventType.round_end, "Round ended", details)
        finally:  # Ctrl-C in a handler must not keep the next round from starting
            self.current_round_id = None

    def emit_error(self, msg: str) -> None:
        """Say what went wrong with the current round.

        Raises:
            SessionError: there is no current round.
        """
        self._emit_round_event(RoundEventType.round_error, msg, {})

    def emit_session_event(
        self, kind: SessionEventType, msg: str = "", extra: EventExtra | None = None
    ) -> None:
        """Say something about the session as a whole."""
        self.emit(TaskWeaverEvent(EventScope.session, kind, None, None, msg, extra or {}))

    def emit_notice(self, msg: str, about: NoticeSubject | None = None) -> None:
        """Say something that a person should know of the session itself."""
        details: NoticeExtra = {} if about is None else {"about": about}
        self.emit_session_event(SessionEventType.session_notice, msg, details)

    def create_post_proxy(self, send_from: RoleName) -> PostEventProxy:
        """Begin a post of the role `send_from` in the current round.

        Raises:
            SessionError: there is no current round.
        """
        post = Post.create(message="", send_from=send_from)
        return PostEventProxy(self, self._require_round(), post)

    def _require_round(self) -> RoundId:
        if self.current_round_id is None:
            raise SessionError("No round is under way. Start one first.")
        return self.current_round_id

    def _emit_round_event(self, kind: RoundEventType, msg: str, extra: EventExtra) -> None:
        self.emit(TaskWeaverEvent(EventScope.round, kind, self._require_round(), None, msg, extra))


class PostEventProxy:
    """Build a post and emit an event for each step.

    Threads:
        One thread builds the post. `emit_execution_output`, `emit_execution_event`,
        `emit_code_exec` and `update_status` do not touch it and are safe from any thread.
    """

    def __init__(self, emitter: SessionEventEmitter, round_id: RoundId, post: Post) -> None:
        self.emitter = emitter
        self.round_id = round_id
        self.post = post
        self.message_is_end = False
        self._emit(PostEventType.post_start, "Post created", {"role": post.send_from})

    def update_send_to(self, send_to: RoleName) -> None:
        """Address the post to a role."""
        self.post.send_to = send_to
        self._emit(PostEventType.post_send_to_update, "", {"role": send_to})

    def update_status(self, status: str) -> None:
        """Say what the role is doing now, in a few words."""
        self._emit(PostEventType.post_status_update, status, {})

    def update_message(self, message: str, is_end: bool = True) -> None:
        """Add the next piece to the message; `is_end` says that it is the last.

        Raises:
            SessionError: the last piece was there already.
        """
        if self.message_is_end:
            raise SessionError(f"The message of post {self.post.id!r} is complete already.")
        self.post.message += message
        self.message_is_end = is_end
        self._emit(PostEventType.post_message_update, message, {"is_end": is_end})

    def update_attachment(
        self,
        message: str,
        type: AttachmentType | None = None,
        extra: object = None,
        id: str | None = None,
        is_end: bool = True,
    ) -> Attachment:
        """Attach something, or add the next piece to the attachment called `id`.

        Raises:
            SessionError: neither a type nor the id of an attachment of that type is given.
        """
        if id is None:
            if type is None:
                raise SessionError("A new attachment needs a type.")
            attachment = Attachment.create(type, message, extra=extra)
            self.post.add_attachment(attachment)
        else:
            attachment = self._find_attachment(id, type)
            attachment.content += message
            attachment.extra = extra
        details: AttachmentExtra = {
            "type": attachment.type,
            "extra": extra,
            "id": attachment.id,
            "is_end": is_end,
        }
        self._emit(PostEventType.post_attachment_update, message, details)
        return attachment

    def emit_execution_output(
        self,
        stream: StreamName,
        text: str,
        execution_id: ExecutionId | None = None,
        offset: int = 0,
        size: int | None = None,
    ) -> None:
        """Pass on what running code wrote; without an id, the execution has the post's.

        Args:
            offset: Where in the record of that stream the text begins, in bytes.
            size: How many bytes of the record it is; None: the record may not have it.
        """
        details: ExecutionOutputExtra = {
            "stream": stream,
            "text": text,
            "execution_id": ExecutionId(self.post.id) if execution_id is None else execution_id,
            "offset": offset,
        }
        if size is not None:
            details["size"] = size
        self._emit(PostEventType.post_execution_output, text, details)

    def emit_execution_event(self, event: ExecutionEvent) -> None:
        """Pass on whatever else an execution says."""
        details: ExecutionEventExtra = {"execution_id": event.execution_id, "event": event}
        self._emit(PostEventType.post_execution_event, "", details)

    def emit_code_exec(self, text: str, extra: CodeExecExtra) -> None:
        """Pass on a piece of the panel that shows code being written and run."""
        self._emit(PostEventType.post_code_exec, text, extra)

    def error(self, msg: str) -> None:
        """Let `msg` take the place of everything the post has said."""
        self.post.attachment_list = []
        self.post.message = msg
        self._emit(PostEventType.post_error, msg, {})

    def end(self, msg: str = "") -> Post:
        """Say that the post is complete, and return it."""
        self._emit(PostEventType.post_end, msg, {})
        return self.post

    def _find_attachment(self, id: str, type: AttachmentType | None) -> Attachment:
        for attachment in reversed(self.post.attachment_list):
            if attachment.id == id and type in (None, attachment.type):
                return attachment
        kind = "" if type is None else f" {type.value}"
        raise SessionError(f"Post {self.post.id!r} has no{kind} attachment {id!r}.")

    def _emit(self, kind: PostEventType, message: str, extra: EventExtra) -> None:
        self.emitter.emit(
            TaskWeaverEvent(EventScope.post, kind, self.round_id, self.post.id, message, extra)
        )
