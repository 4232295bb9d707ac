"""What is said in a session: rounds of posts, and what is attached to them.

A round is one question of the user with everything the roles said until it was
answered. The shapes, the attachment types and their spelling are TaskWeaver's,
so that its example files load and its users find what they know.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NewType, NotRequired, TypeAlias, TypedDict, get_args

from taskweaver_ext.errors import ProtocolError

RoundId = NewType("RoundId", str)
PostId = NewType("PostId", str)
AttachmentId = NewType("AttachmentId", str)
RoleName: TypeAlias = str
RoundState: TypeAlias = Literal["created", "finished", "failed", "cancelled"]

UNKNOWN_ROLE: RoleName = "Unknown"
"""The recipient of a post until its role has decided."""


_FAILED_STOPS = frozenset({"TaskFailure", "SecurityRisks"})
"""What a planner says of tasks that could not, or must not, be done."""


class AttachmentType(enum.Enum):
    """What an attachment holds."""

    # The planner's reply.
    init_plan = "init_plan"
    plan = "plan"
    current_plan_step = "current_plan_step"
    plan_reasoning = "plan_reasoning"
    stop = "stop"

    # The code interpreter: writing code, checking it, running it, trying again.
    thought = "thought"
    reply_type = "reply_type"
    reply_content = "reply_content"
    verification = "verification"
    code_error = "code_error"
    execution_status = "execution_status"
    execution_result = "execution_result"
    artifact_paths = "artifact_paths"
    revise_message = "revise_message"

    # Other roles.
    function = "function"
    web_exploring_plan = "web_exploring_plan"
    web_exploring_screenshot = "web_exploring_screenshot"
    web_exploring_link = "web_exploring_link"

    # Any role.
    invalid_response = "invalid_response"
    text = "text"
    shared_memory_entry = "shared_memory_entry"
    image_url = "image_url"


class AttachmentDict(TypedDict):
    """An attachment as it is written to files."""

    id: str
    type: str
    content: str
    extra: Any


class PostDict(TypedDict):
    """A post as it is written to files."""

    id: str
    message: str
    send_from: RoleName
    send_to: RoleName
    attachment_list: list[AttachmentDict]


class RoundDict(TypedDict):
    """A round as it is written to files."""

    id: str
    user_query: str
    state: RoundState
    post_list: list[PostDict]
    error: NotRequired[str]


@dataclass(slots=True)
class Attachment:
    """One typed part of a post: a plan, code, the result of running it."""

    id: AttachmentId
    type: AttachmentType
    content: str
    extra: Any = None
    """What the type needs beside the text; fit for JSON, or with a `to_dict` that is."""

    @staticmethod
    def create(
        type: AttachmentType | str, content: str, id: str | None = None, extra: object = None
    ) -> Attachment:
        """Make an attachment, with a new id unless one is given.

        Raises:
            ProtocolError: `type` names no attachment type.
        """
        try:
            attachment_type = AttachmentType(type)
        except ValueError as error:
            known = ", ".join(member.value for member in AttachmentType)
            raise ProtocolError(
                f"There is no attachment type {type!r}. Use one of: {known}."
            ) from error
        return Attachment(
            id=AttachmentId(_new_id("atta") if id is None else id),
            type=attachment_type,
            content=content,
            extra=extra,
        )

    def to_dict(self) -> AttachmentDict:
        """Return what `from_dict` takes."""
        extra = self.extra.to_dict() if hasattr(self.extra, "to_dict") else self.extra
        return {"id": self.id, "type": self.type.value, "content": self.content, "extra": extra}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Attachment:
        """Rebuild an attachment; `id` and `extra` may be missing, as in example files.

        Raises:
            ProtocolError: a field is missing, or the type is unknown.
        """
        _require(content, "attachment", "type", "content")
        return Attachment.create(
            type=content["type"],
            content=content["content"],
            id=content.get("id"),
            extra=content.get("extra"),
        )


@dataclass(slots=True)
class Post:
    """A message from one role to another; everything but its text is attached."""

    id: PostId
    send_from: RoleName
    send_to: RoleName
    message: str
    attachment_list: list[Attachment] = field(default_factory=list)

    @staticmethod
    def create(
        message: str | None,
        send_from: RoleName,
        send_to: RoleName = UNKNOWN_ROLE,
        attachment_list: Iterable[Attachment] | None = None,
        id: str | None = None,
    ) -> Post:
        """Make a post, with a new id unless one is given."""
        return Post(
            id=PostId(_new_id("post") if id is None else id),
            send_from=send_from,
            send_to=send_to,
            message=message or "",
            attachment_list=list(attachment_list or ()),
        )

    def add_attachment(self, attachment: Attachment) -> None:
        """Put `attachment` after the ones that are there."""
        self.attachment_list.append(attachment)

    def get_attachment(self, type: AttachmentType) -> list[Attachment]:
        """Return the attachments of one type, oldest first."""
        return [attachment for attachment in self.attachment_list if attachment.type is type]

    def del_attachment(self, type_list: Iterable[AttachmentType]) -> None:
        """Take away the attachments of the given types."""
        unwanted = set(type_list)
        self.attachment_list = [
            attachment for attachment in self.attachment_list if attachment.type not in unwanted
        ]

    def to_dict(self) -> PostDict:
        """Return what `from_dict` takes."""
        return {
            "id": self.id,
            "message": self.message,
            "send_from": self.send_from,
            "send_to": self.send_to,
            "attachment_list": [attachment.to_dict() for attachment in self.attachment_list],
        }

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Post:
        """Rebuild a post; it keeps its id, and gets one if it has none.

        Raises:
            ProtocolError: a field is missing, or an attachment cannot be rebuilt.
        """
        _require(content, "post", "message", "send_from", "send_to")
        return Post.create(
            message=content["message"],
            send_from=content["send_from"],
            send_to=content["send_to"],
            attachment_list=map(Attachment.from_dict, content.get("attachment_list") or ()),
            id=content.get("id"),
        )


@dataclass(slots=True)
class Round:
    """One question of the user and the posts it led to, oldest first."""

    id: RoundId
    user_query: str
    state: RoundState
    post_list: list[Post] = field(default_factory=list)
    error: str = ""
    """Why it failed, if it did."""

    @staticmethod
    def create(
        user_query: str,
        id: str | None = None,
        state: RoundState = "created",
        post_list: Iterable[Post] | None = None,
    ) -> Round:
        """Make a round, with a new id unless one is given."""
        return Round(
            id=RoundId(_new_id("round") if id is None else id),
            user_query=user_query,
            state=state,
            post_list=list(post_list or ()),
        )

    @property
    def is_done(self) -> bool:
        """Whether what was asked for was done, as far as the last post says.

        A round can be finished, with an answer, and the answer be that the task failed.
        """
        if self.state != "finished" or not self.post_list:
            return False
        last = self.post_list[-1]
        stops = {attachment.content for attachment in last.get_attachment(AttachmentType.stop)}
        runs = last.get_attachment(AttachmentType.execution_status)
        return (
            not stops & _FAILED_STOPS
            and not last.get_attachment(AttachmentType.invalid_response)
            and (not runs or runs[-1].content == "SUCCESS")
        )

    def add_post(self, post: Post) -> None:
        """Put `post` after the ones that are there."""
        self.post_list.append(post)

    def change_round_state(self, new_state: RoundState) -> None:
        """Say how the round goes or went."""
        self.state = new_state

    def to_dict(self) -> RoundDict:
        """Return what `from_dict` takes."""
        content: RoundDict = {
            "id": self.id,
            "user_query": self.user_query,
            "state": self.state,
            "post_list": [post.to_dict() for post in self.post_list],
        }
        if self.error:
            content["error"] = self.error
        return content

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Round:
        """Rebuild a round; it keeps its id, and gets one if it has none.

        Raises:
            ProtocolError: a field is missing, the state is unknown, or a post cannot be rebuilt.
        """
        _require(content, "round", "user_query", "state")
        states = get_args(RoundState)
        if content["state"] not in states:
            raise ProtocolError(
                f"A round cannot be {content['state']!r}. Use one of: {', '.join(states)}."
            )
        rebuilt = Round.create(
            user_query=content["user_query"],
            id=content.get("id"),
            state=content["state"],
            post_list=map(Post.from_dict, content.get("post_list") or ()),
        )
        rebuilt.error = content.get("error") or ""
        return rebuilt


def _new_id(prefix: str) -> str:
    """Return an id that sorts by time and is fit for a file name."""
    return f"{prefix}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def _require(content: object, kind: str, *names: str) -> None:
    """Refuse what is not a mapping with all of `names`."""
    if not isinstance(content, Mapping):
        raise ProtocolError(f"A {kind} must be a mapping, not {type(content).__name__}.")
    missing = [name for name in names if name not in content]
    if missing:
        raise ProtocolError(f"The {kind} has no {', '.join(missing)}.")
