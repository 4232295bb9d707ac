"""The numbers of code blocks: given once, in the order in which blocks begin, told as events.

Everything that shows a number reads it from `post_code_block` events, which the session tells
before the code itself. The events of earlier versions have none: passed through `numbered`, they
get the numbers that they would have had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from taskweaver_ext.ces.execution.events import DisplayProduced
from taskweaver_ext.ces.programs.languages import canonical_name
from taskweaver_ext.conversation import UNKNOWN_ROLE, AttachmentType, PostId, RoleName
from taskweaver_ext.events.extras import (
    AttachmentExtra,
    CodeBlockExtra,
    CodeExecExtra,
    NewPostExtra,
    RoleExtra,
    RoundStartExtra,
)
from taskweaver_ext.events.types import (
    EventScope,
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.roles.code_interpreter.shown_reply import TEXT
from taskweaver_ext.text.fences import code_fences


@dataclass(slots=True)
class _OpenPost:
    role: RoleName = UNKNOWN_ROLE
    language: str = ""
    numbers: dict[int, int] = field(default_factory=dict)
    """The number of each of its blocks, by part."""


class BlockNumbers:
    """Gives each block of code of one session its number.

    Threads:
        `announce` is called for one event at a time. `count` and `number_of` are for any thread.
    """

    def __init__(self, count: int = 0) -> None:
        """Go on after so many blocks."""
        self.count = count
        """The number of the newest block, 0 before the first."""
        self._posts: dict[PostId, _OpenPost] = {}
        self._repeats: int | None = None

    def number_of(self, post_id: PostId) -> int | None:
        """The number of the code that a post of this round runs; None where it has none."""
        post = self._posts.get(post_id)
        return post.numbers.get(0) if post else None

    def announce(self, event: TaskWeaverEvent) -> list[TaskWeaverEvent]:
        """Return the numbers that are to be told before an event."""
        match event.t:
            case PostEventType():
                return self._announce_code(event)
            case RoundEventType.round_new_post:
                return self._announce_fences(event, cast(NewPostExtra, event.extra))
            case RoundEventType.round_start:
                self._posts.clear()
                self._repeats = cast(RoundStartExtra, event.extra).get("repeats")
            case SessionEventType.session_start:
                self._posts.clear()
            case _:
                pass
        return []

    def _announce_code(self, event: TaskWeaverEvent) -> list[TaskWeaverEvent]:
        assert event.post_id is not None
        post = self._posts.setdefault(event.post_id, _OpenPost())
        if event.t is PostEventType.post_code_block:
            told = cast(CodeBlockExtra, event.extra)
            post.numbers[told["part"]] = told["number"]
            self.count = max(self.count, told["number"])
            return []
        if event.t is PostEventType.post_start:
            post.role = cast(RoleExtra, event.extra)["role"]
        if 0 in post.numbers or not _begins_code(post, event):
            return []
        by_person = post.role == USER
        repeats = self._repeats if by_person else None
        return [self._numbered(event, post, 0, post.language.strip() or "python", repeats=repeats)]

    def _announce_fences(
        self, event: TaskWeaverEvent, details: NewPostExtra
    ) -> list[TaskWeaverEvent]:
        """Number what an answer proposes, now that it is known what is left of the answer."""
        written = details.get("post")
        if written is None or written["send_to"] != USER or written["send_from"] == USER:
            return []
        post_id = PostId(written["id"])
        post = self._posts.setdefault(post_id, _OpenPost())
        return [
            self._numbered(event, post, part, fence.language, code=fence.code, post_id=post_id)
            for part, fence in enumerate(code_fences(written["message"]), 1)
            if part not in post.numbers
        ]

    def _numbered(
        self,
        event: TaskWeaverEvent,
        post: _OpenPost,
        part: int,
        language: str,
        *,
        code: str = "",
        post_id: PostId | None = None,
        repeats: int | None = None,
    ) -> TaskWeaverEvent:
        self.count += 1
        post.numbers[part] = self.count
        extra: CodeBlockExtra = {
            "number": self.count,
            "language": canonical_name(language),
            "by": "person" if post.role == USER else "agent",
            "part": part,
        }
        if repeats is not None:
            extra["repeats"] = repeats
        kind = PostEventType.post_code_block
        where = event.post_id or post_id
        return TaskWeaverEvent(EventScope.post, kind, event.round_id, where, code, extra)


def _begins_code(post: _OpenPost, event: TaskWeaverEvent) -> bool:
    """Whether an event shows code of a post, or what code does."""
    match event.t:
        case PostEventType.post_code_exec:
            panel = cast(CodeExecExtra, event.extra)
            if panel["sub_type"] != "code_exec.code" or not event.msg.strip():
                return False
            post.language = panel.get("language") or post.language
            return True
        case PostEventType.post_attachment_update:
            kind = cast(AttachmentExtra, event.extra)["type"]
            if kind is AttachmentType.reply_type:
                post.language += event.msg
            is_code = kind is AttachmentType.reply_content and post.language.strip() != TEXT
            return is_code and bool(event.msg.strip())
        case PostEventType.post_execution_output:
            return True
        case PostEventType.post_execution_event if "event" in event.extra:
            return isinstance(event.extra["event"], DisplayProduced)
        case _:
            return False


def numbered(events: Iterable[TaskWeaverEvent]) -> Iterator[TaskWeaverEvent]:
    """Give the events of a session from its first on, with the numbers that were never told."""
    numbers = BlockNumbers()
    for event in events:
        yield from numbers.announce(event)
        yield event


def count_blocks(events: Iterable[TaskWeaverEvent]) -> int:
    """Return the number of the newest block of a session."""
    numbers = BlockNumbers()
    for event in events:
        numbers.announce(event)
    return numbers.count
