"""Fold the events of a session, whatever their source, into blocks: oldest first, one at a time.

A block is told when it is complete, so that nothing but what is open is held in memory. What
comes later than its cell (late output, a display that other code changes) needs a look ahead:
`read_blocks` reads the events twice. `fold_blocks` reads once, and tells late output by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from taskweaver_ext.ces.execution.events import DisplayUpdated
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.conversation import UNKNOWN_ROLE, PostId
from taskweaver_ext.events.extras import (
    AnsweredExtra,
    FilesExtra,
    LateOutputExtra,
    MissedEventsExtra,
    NewPostExtra,
    NoticeExtra,
    QuestionExtra,
    RoleExtra,
    RoundEndExtra,
    RoundStartExtra,
)
from taskweaver_ext.events.types import (
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.session.blocks.numbers import BlockNumbers
from taskweaver_ext.session.blocks.outputs import MAX_OUTPUT_CHARS, OutputCollector
from taskweaver_ext.session.blocks.post import PostFold
from taskweaver_ext.session.blocks.types import (
    Block,
    Cell,
    LateText,
    Message,
    SessionNotice,
    TextOutput,
)
from taskweaver_ext.text.terminal import fold

MAX_LATE_CHARS = 20_000
"""How much of the late output of one cell is kept."""
MAX_REMEMBERED = 1_000
"""Of how many cells late output, and of how many displays changes, are known ahead."""
_FORGOTTEN = "From here on, the agent knows nothing of what was said before."
_RESUMED = "The session was continued by another process, on a fresh kernel."


@dataclass(slots=True)
class LookAhead:
    """What happens to cells after they have ended."""

    late: dict[ExecutionId, OutputCollector] = field(default_factory=dict)
    updates: dict[str, tuple[int, DisplayUpdated]] = field(default_factory=dict)
    """The last change of each display: its event's number, and what it shows then."""


def read_blocks(
    read: Callable[[], Iterable[TaskWeaverEvent]], *, max_chars: int = MAX_OUTPUT_CHARS
) -> Iterator[Block]:
    """Fold a session that can be read twice; everything is where it belongs.

    Args:
        read: Returns the events from the first on, anew each time.
        max_chars: How much of the output of a cell is kept.
    """
    return fold_blocks(read(), look_ahead(read()), max_chars=max_chars)


def look_ahead(events: Iterable[TaskWeaverEvent]) -> LookAhead:
    """Read what happens to cells after their end."""
    ahead = LookAhead()
    for event in events:
        if event.t is SessionEventType.session_late_output:
            late = cast(LateOutputExtra, event.extra)
            execution_id = late["execution_id"]
            if execution_id not in ahead.late and len(ahead.late) < MAX_REMEMBERED:
                ahead.late[execution_id] = OutputCollector(execution_id, MAX_LATE_CHARS)
            if execution_id in ahead.late:
                ahead.late[execution_id].write(late["stream"], event.msg, is_late=True)
        elif event.t is PostEventType.post_execution_event and "event" in event.extra:
            update = event.extra["event"]
            if isinstance(update, DisplayUpdated):
                ahead.updates.pop(update.display_id, None)
                ahead.updates[update.display_id] = (event.seq, update)
                if len(ahead.updates) > MAX_REMEMBERED:
                    del ahead.updates[next(iter(ahead.updates))]
    return ahead


def fold_blocks(
    events: Iterable[TaskWeaverEvent],
    ahead: LookAhead | None = None,
    *,
    max_chars: int = MAX_OUTPUT_CHARS,
) -> Iterator[Block]:
    """Fold events as they come; the blocks that are open when they end come last.

    Args:
        ahead: What is known to come later; without it, it is told when it comes.
        max_chars: How much of the output of a cell is kept.
    """
    session = _SessionFold(ahead or LookAhead(), max_chars)
    for event in events:
        yield from session.receive(event)
    yield from session.close("still open")


class _SessionFold:
    """The open posts of a session, and the numbers of its code blocks."""

    def __init__(self, ahead: LookAhead, max_chars: int) -> None:
        self._ahead = ahead
        self._max_chars = max_chars
        self._posts: dict[PostId, PostFold] = {}
        self._ended: PostFold | None = None
        self._numbers = BlockNumbers()
        self._has_started = False

    def receive(self, event: TaskWeaverEvent) -> Iterator[Block]:
        """Take an event, and tell what it completes."""
        for told in self._numbers.announce(event):  # events of earlier versions have no numbers
            self._receive_number(told)
        if event.t is PostEventType.post_code_block:
            self._receive_number(event)
            return
        if self._ended is not None:
            # The event after the end of a post says what is left of it, or nothing does.
            post, self._ended = self._ended, None
            if event.t is RoundEventType.round_new_post:
                post.settle(cast(NewPostExtra, event.extra))
            yield from self._told(post, "ended")
        if isinstance(event.t, PostEventType):
            self._receive_post(event)
        elif isinstance(event.t, RoundEventType):
            yield from self._receive_round(event)
        else:
            yield from self._receive_session(event)

    def close(self, how: Literal["ended", "lost", "still open"]) -> Iterator[Block]:
        """Tell what is open."""
        if self._ended is not None:
            post, self._ended = self._ended, None
            yield from self._told(post, "ended")
        posts, self._posts = self._posts, {}
        for post in posts.values():
            yield from self._told(post, how)

    def _receive_number(self, event: TaskWeaverEvent) -> None:
        if self._ended is not None and self._ended.post_id == event.post_id:
            self._ended.receive(event)
        else:
            self._receive_post(event)

    def _receive_post(self, event: TaskWeaverEvent) -> None:
        assert event.post_id is not None
        assert event.round_id is not None
        post = self._posts.get(event.post_id)
        if post is None:
            is_start = event.t is PostEventType.post_start
            role = cast(RoleExtra, event.extra)["role"] if is_start else UNKNOWN_ROLE
            post = PostFold(event.post_id, event.round_id, role, event.at, self._max_chars)
            self._posts[event.post_id] = post
        if event.t is PostEventType.post_end:
            self._ended = self._posts.pop(event.post_id)
        else:
            post.receive(event)

    def _receive_round(self, event: TaskWeaverEvent) -> Iterator[Block]:
        match event.t:
            case RoundEventType.round_start:
                yield from self._question_of(event, cast(RoundStartExtra, event.extra))
            case RoundEventType.round_error:
                yield from self.close("ended")
                yield self._notice("error", event.msg, event)
            case RoundEventType.round_end:
                yield from self.close("ended")
                if cast(RoundEndExtra, event.extra).get("state") == "cancelled":
                    yield self._notice("cancelled", "The round was cancelled.", event)
            case _:
                pass

    def _receive_session(self, event: TaskWeaverEvent) -> Iterator[Block]:
        match event.t:
            case SessionEventType.session_start:
                yield from self.close("lost")
                if self._has_started:
                    yield self._notice("resumed", _RESUMED, event)
                self._has_started = True
            case SessionEventType.session_question:
                question = cast(QuestionExtra, event.extra)
                if post := self._posts.get(PostId(question["execution_id"])):
                    post.ask(question)
            case SessionEventType.session_answered:
                for post in self._posts.values():
                    post.answer(cast(AnsweredExtra, event.extra))
            case SessionEventType.session_late_output:
                yield from self._late(event, cast(LateOutputExtra, event.extra))
            case SessionEventType.session_memory_update:
                yield self._notice("summary", event.msg or _FORGOTTEN, event)
            case SessionEventType.session_notice:
                about = cast(NoticeExtra, event.extra).get("about")
                yield replace(self._notice("notice", event.msg, event), about=about)
            case SessionEventType.session_files_added:
                files = tuple(cast(FilesExtra, event.extra)["files"])
                yield replace(self._notice("notice", event.msg, event), files=files)
            case SessionEventType.session_events_missed:
                missed = cast(MissedEventsExtra, event.extra)
                count = missed["last_seq"] - missed["first_seq"] + 1
                yield self._notice("missed", f"{count:,} events are no longer kept.", event)
            case _:
                pass

    def _question_of(self, event: TaskWeaverEvent, details: RoundStartExtra) -> Iterator[Block]:
        """What a person wants of a round, unless it is code, which has a post of its own."""
        assert event.round_id is not None
        if details.get("kind") != "message":
            return
        post = details.get("post")
        query = details.get("user_query", "")
        whole = post["message"] if post else query
        yield Message(
            role=USER,
            send_to=post["send_to"] if post else UNKNOWN_ROLE,
            text=query,
            round_id=event.round_id,
            at=event.at,
            context=whole.removesuffix(query).strip() if whole != query else "",
            files=tuple(details.get("files", ())),
        )

    def _late(self, event: TaskWeaverEvent, details: LateOutputExtra) -> Iterator[Block]:
        execution_id = details["execution_id"]
        if execution_id in self._ahead.late:
            return  # its cell has it
        if post := self._posts.get(PostId(execution_id)):
            post.outputs.write(details["stream"], event.msg, is_late=True)
            return
        text = fold(event.msg, keep_colors=True)
        output = TextOutput(stream=details["stream"], text=text, is_late=True)
        yield LateText(execution_id=execution_id, output=output, at=event.at)

    def _told(
        self, post: PostFold, how: Literal["ended", "lost", "still open"]
    ) -> Iterator[Message | Cell]:
        """Tell the blocks of a post, with what comes to its cell later."""
        for display_id in post.outputs.display_ids:
            if found := self._ahead.updates.get(display_id):
                post.outputs.update(found[1], found[0])
        for block in post.blocks(how):
            late = self._ahead.late.get(block.execution_id) if isinstance(block, Cell) else None
            if isinstance(block, Cell) and late is not None:
                block.outputs += late.outputs()
            yield block

    def _notice(
        self,
        kind: Literal["notice", "error", "cancelled", "resumed", "missed", "summary"],
        text: str,
        event: TaskWeaverEvent,
    ) -> SessionNotice:
        return SessionNotice(kind=kind, text=text, round_id=event.round_id, at=event.at)
