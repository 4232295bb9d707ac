"""What a session knew, from the events that it told: an earlier process may have told them.

Pure: events in, state out. Posts come from `round_new_post`, where each is exactly as the roles
knew it. A post that never became part of the conversation, because its round failed or its
process was killed, is to be seen in the stream and nowhere else: half a reply would confuse the
model. Such a round is `failed`, which the model is told as of any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from taskweaver_ext.conversation import (
    AttachmentType,
    Post,
    PostDict,
    PostId,
    RoleName,
    Round,
    RoundId,
)
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.extras import (
    AnsweredExtra,
    CodeBlockExtra,
    CodeExecExtra,
    ContextExtra,
    MemoryExtra,
    NewPostExtra,
    NoticeExtra,
    QuestionExtra,
    QuestionId,
    RoleExtra,
    RoundEndExtra,
    RoundStartExtra,
    SettingsExtra,
    UsageDict,
)
from taskweaver_ext.events.types import (
    EventType,
    PostEventType,
    RoundEventType,
    SessionEventType,
    TaskWeaverEvent,
)
from taskweaver_ext.roles.base.role import USER, RoleMemory
from taskweaver_ext.roles.code_interpreter.result_text import NEVER_RUN
from taskweaver_ext.session.blocks import folder_of
from taskweaver_ext.session.known_rounds import SharedBlock, knows_code, without_code

CUT_OFF = "The program ended in the middle of this round."

VARIABLES_LOST = (
    "[Note: this session was interrupted and goes on with a new Python process and a new shell. The"
    " variables of earlier code are lost; define again what is needed. Files are still there.]"
)
"""Goes to the agent with the first message after a session was continued."""


FRESH_KERNEL = (
    "This session was continued: the variables and the shell of earlier code are lost, the"
    " conversation and files are there. The agent is told with your next request."
)
"""Told to people, once `VARIABLES_LOST` is on its way."""


_ATTACHMENT_TYPES = frozenset(kind.value for kind in AttachmentType)

NEEDED_KINDS: tuple[EventType, ...] = (
    SessionEventType.session_context_update,
    SessionEventType.session_memory_update,
    SessionEventType.session_folder,
    SessionEventType.session_notice,
    SessionEventType.session_settings,
    SessionEventType.session_question,
    SessionEventType.session_answered,
    RoundEventType.round_start,
    RoundEventType.round_new_post,
    RoundEventType.round_error,
    RoundEventType.round_end,
    PostEventType.post_start,
    PostEventType.post_end,
    PostEventType.post_code_exec,
    PostEventType.post_code_block,
)
"""The events that say something here; those of posts that grow, the most by far, do not."""


@dataclass(slots=True)
class RebuiltSession:
    """What the events of a session come to."""

    rounds: list[Round] = field(default_factory=list)
    """All that was said and run, oldest first."""
    known_rounds: list[Round] = field(default_factory=list)
    """Those that the roles know."""
    waiting: tuple[SharedBlock, ...] = ()
    """What goes to the agent with the next message."""
    settings: SettingsExtra | None = None
    """What a person had set; None where no process has told it."""
    role_memories: dict[RoleName, RoleMemory] = field(default_factory=dict)
    usage: UsageDict | None = None
    open_questions: dict[QuestionId, QuestionExtra] = field(default_factory=dict)
    open_round: Round | None = None
    """The round that was under way at the end, if one was."""
    open_post: PostId | None = None
    """Its post that was being written at the end, if one was."""
    folders: list[Path | None] = field(default_factory=lambda: [None])
    """Where code has worked, one folder after the other; None: in the session's own."""
    has_variables: bool = False
    """Whether code has run since people were last told that variables are lost."""
    block_count: int = 0
    """The number of the newest code block, 0 where none was told."""

    @staticmethod
    def of(events: Iterable[TaskWeaverEvent]) -> RebuiltSession:
        """Rebuild a session from its events, of which only `NEEDED_KINDS` matter."""
        rebuilt = RebuiltSession()
        for event in events:
            rebuilt.receive(event)
        return rebuilt

    def receive(self, event: TaskWeaverEvent) -> None:
        """Take the next event."""
        match event.t:
            case RoundEventType():
                self._receive_of_round(event.t, event)
            case PostEventType():
                self._receive_of_post(event.t, event)
            case SessionEventType():
                self._receive_of_session(event.t, event)

    def _receive_of_session(self, kind: SessionEventType, event: TaskWeaverEvent) -> None:
        match kind:
            case SessionEventType.session_context_update:
                self._receive_context(cast(ContextExtra, event.extra))
            case SessionEventType.session_settings:
                self.settings = cast(SettingsExtra, event.extra)
            case SessionEventType.session_notice:
                if cast(NoticeExtra, event.extra).get("about") == "fresh_kernel":
                    self.has_variables = False
            case SessionEventType.session_folder:
                self.folders.append(folder_of(event))
            case SessionEventType.session_memory_update:
                self._receive_memory(event)
            case SessionEventType.session_question:
                question = cast(QuestionExtra, event.extra)
                self.open_questions[question["question_id"]] = question
            case SessionEventType.session_answered:
                self.open_questions.pop(cast(AnsweredExtra, event.extra)["question_id"], None)
            case _:
                pass

    def _receive_context(self, details: ContextExtra) -> None:
        texts = details["blocks"]
        runs = details.get("runs", [PostId("")] * len(texts))
        codes = details.get("codes", [""] * len(texts))
        blocks = zip(texts, runs, codes, strict=False)
        self.waiting = tuple(SharedBlock(text, run or None, code) for text, run, code in blocks)
        for post_id in details.get("dropped", ()):
            self._drop(post_id)

    def _drop(self, post_id: PostId) -> None:
        """Take code out of what roles know, and their summaries of it."""
        changed = {one.id for one in self.known_rounds if knows_code(one, post_id)}
        self.known_rounds = [
            without_code(one, post_id) if one.id in changed else one for one in self.known_rounds
        ]
        self._drop_summaries_of(changed)

    def _drop_summaries_of(self, round_ids: set[RoundId]) -> None:
        for role, memory in list(self.role_memories.items()):
            if round_ids & set(memory.covered_rounds):
                self.role_memories[role] = RoleMemory(room_share=memory.room_share)

    def _receive_memory(self, event: TaskWeaverEvent) -> None:
        details = cast(MemoryExtra, event.extra)
        if details["role"]:
            self.role_memories[details["role"]] = RoleMemory.from_event(event)
            return
        forgotten = set(details["covered_rounds"])
        self.known_rounds = [one for one in self.known_rounds if one.id not in forgotten]
        self._drop_summaries_of(forgotten)

    def _receive_of_round(self, kind: RoundEventType, event: TaskWeaverEvent) -> None:
        match kind:
            case RoundEventType.round_start:
                self._start_round(event)
            case RoundEventType.round_new_post:
                self._add_post(cast(NewPostExtra, event.extra))
            case RoundEventType.round_error if self.open_round is not None:
                self.open_round.error = event.msg
            case RoundEventType.round_end:
                self._end_round(cast(RoundEndExtra, event.extra))
            case _:
                pass

    def _start_round(self, event: TaskWeaverEvent) -> None:
        details = cast(RoundStartExtra, event.extra)
        if self.open_round is not None:  # its end is missing, where a disk was full
            self.open_round.change_round_state("failed")
        started = Round.create(details["user_query"], id=event.round_id)
        self.rounds.append(started)
        self.open_round = started
        if details["kind"] == "message":
            self.known_rounds.append(started)
            self.waiting = ()  # it is in the person's post now
            self._add_post(details)

    def _add_post(self, details: RoundStartExtra | NewPostExtra) -> None:
        if self.open_round is None or "post" not in details:
            return
        try:
            post = Post.from_dict(_without_unknown(details["post"]))
        except ProtocolError:
            return
        self.open_round.add_post(post)
        runs = post.get_attachment(AttachmentType.execution_status)
        self.has_variables |= any(run.content not in NEVER_RUN for run in runs)

    def _end_round(self, details: RoundEndExtra) -> None:
        if self.open_round is not None:
            self.open_round.change_round_state(details["state"])
        self.usage = details.get("usage", self.usage)
        self.open_round = self.open_post = None

    def _receive_of_post(self, kind: PostEventType, event: TaskWeaverEvent) -> None:
        match kind:
            case PostEventType.post_start:
                self.open_post = event.post_id
                self.has_variables |= cast(RoleExtra, event.extra)["role"] == USER
            case PostEventType.post_end:
                self.open_post = None
            case PostEventType.post_code_block:
                number = cast(CodeBlockExtra, event.extra)["number"]
                self.block_count = max(self.block_count, number)
            case PostEventType.post_code_exec:
                payload = cast(CodeExecExtra, event.extra).get("payload")
                is_running = isinstance(payload, Mapping) and payload.get("status") == "exec"
                self.has_variables |= is_running
            case _:
                pass


def _without_unknown(post: PostDict) -> PostDict:
    """Leave out attachments of kinds that only a newer version knows; the rest was said too."""
    known = [one for one in post["attachment_list"] if one.get("type") in _ATTACHMENT_TYPES]
    return {**post, "attachment_list": known}
