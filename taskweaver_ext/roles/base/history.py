"""Make a conversation fit into a model's context, and say honestly what is missing.

Old rounds are summarised by the model itself; where that fails they are left out
with a notice. If what remains is still too long, its longest messages lose
their middle. The newest message is the last to be touched.

What a role no longer knows in full is told as `session_memory_update`, so that a session that is
continued by another process asks its model with the same history.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

from taskweaver_ext.config.settings import RoundCompressorConfig
from taskweaver_ext.conversation import Round, RoundId
from taskweaver_ext.errors import ModelError
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.events.extras import MemoryExtra
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.model_errors import ContextTooLongError
from taskweaver_ext.roles.base.model_caller import ModelCaller
from taskweaver_ext.roles.base.prompts import merged
from taskweaver_ext.roles.base.role import RoleMemory
from taskweaver_ext.roles.base.token_count import CHARACTERS_PER_TOKEN, estimate_tokens
from taskweaver_ext.text.truncation import shorten_middle

DEFAULT_CONTEXT_TOKENS = 32_000
"""What is assumed of a model that does not say how much it can take in."""
MAX_REPLY_TOKENS = 4096
SHORT_REPLY_TOKENS = 1024
MIN_MESSAGE_CHARS = 400
MAX_SHRINKS = 3

_Answer = TypeVar("_Answer")

Render: TypeAlias = Callable[[Sequence[Round]], list[Message]]
"""Rounds as one role sees them."""

_SUMMARISE = (
    "Below are earlier rounds of a conversation among a user, a planner and a worker that runs"
    " code. Write down in at most 200 words what later rounds need: what the user wants, what was"
    " found, and the names of files and variables that exist now. Write plain sentences."
)

_logger = logging.getLogger(__name__)


class History:
    """What one role is given of the conversation."""

    def __init__(
        self, caller: ModelCaller, settings: RoundCompressorConfig, *, is_eager: bool = False
    ) -> None:
        """Keep the history of one role.

        Args:
            settings: How many rounds to summarise at least, and how many to keep as they are.
            is_eager: Summarise as soon as there are rounds enough, not only for want of room.
        """
        self._caller = caller
        self._settings = settings
        self._is_eager = is_eager
        self._summary = ""
        self._covered: dict[RoundId, None] = {}
        """The rounds that the summary stands for, in the order in which they were covered."""
        self._room_share = 1.0
        self._told = RoleMemory()

    def restore(self, memory: RoleMemory) -> None:
        """Go on with what another process has told of this history."""
        self._told = memory
        self._summary = memory.summary
        self._covered = dict.fromkeys(memory.covered_rounds)
        self._room_share = memory.room_share

    def forget(self, rounds: Collection[RoundId]) -> None:
        """Let go of a summary of rounds that are no longer what they were."""
        if self._covered.keys() & set(rounds):
            self._summary, self._covered = "", {}

    @property
    def reply_tokens(self) -> int | None:
        """How long a reply may be: less where the model takes in less than was thought."""
        return None if self._room_share == 1.0 else SHORT_REPLY_TOKENS

    def ask_until_it_fits(self, ask: Callable[[], _Answer]) -> _Answer:
        """Call `ask`, with half as much room each time the model finds the messages too long.

        Providers count the reply as well, so its room becomes less, too.

        Raises:
            ContextTooLongError: They are too long also when hardly anything is left of them.
        """
        for _ in range(MAX_SHRINKS):
            try:
                return ask()
            except ContextTooLongError as error:
                _logger.warning("The model is given less: %s", error)
                self._room_share /= 2
        return ask()

    def messages(
        self, head: Sequence[Message], rounds: Sequence[Round], render: Render, post: PostEventProxy
    ) -> list[Message]:
        """Return what to send: the head (instructions, then examples), and what fits of the rounds.

        Raises:
            RoundCancelledError: The round was stopped while old rounds were summarised.
        """
        if estimate_tokens(head) > self._room_tokens // 2:
            head = head[:1]  # examples are the first to go
        if not self._covered.keys() & {one.id for one in rounds}:
            self._summary = ""  # what it was about has been forgotten on purpose
        current = [one for one in rounds if one.id not in self._covered]
        messages = self._assemble(head, current, render)
        retained = self._settings.rounds_to_retain
        old, kept = current[:-retained], current[-retained:]
        has_enough = len(old) >= self._settings.rounds_to_compress
        if old and (self._is_too_long(messages) or (self._is_eager and has_enough)):
            self._compact(old, render, post)
            messages = self._assemble(head, kept, render)
        while self._is_too_long(messages) and len(kept) > 1:
            self._leave_out(kept[:1])
            kept = kept[1:]
            messages = self._assemble(head, kept, render)
        self._tell(post)
        # The last message of the head may have been joined with the first of the rounds.
        return self._shortened(messages, len(head) - (head[-1].role == "user"))

    @property
    def _room_tokens(self) -> int:
        context = self._caller.model.context_tokens or DEFAULT_CONTEXT_TOKENS
        return int((context - min(MAX_REPLY_TOKENS, context // 4)) * self._room_share)

    def _is_too_long(self, messages: Sequence[Message]) -> bool:
        return estimate_tokens(messages) > self._room_tokens

    def _assemble(
        self, head: Sequence[Message], rounds: Sequence[Round], render: Render
    ) -> list[Message]:
        earlier = Message("user", f"What was said and done earlier, in short:\n{self._summary}")
        return merged([*head, *([earlier] if self._summary else []), *render(rounds)])

    def _compact(self, old: Sequence[Round], render: Render, post: PostEventProxy) -> None:
        post.update_status("summarising earlier rounds")
        text = "\n\n".join(f"{one.role}: {one.content}" for one in render(old))
        if self._summary:
            text = f"Still earlier: {self._summary}\n\n{text}"
        room = self._room_tokens * CHARACTERS_PER_TOKEN // 2
        request = [
            Message("system", _SUMMARISE),
            Message("user", shorten_middle(text, room)),
        ]
        try:
            summary = self._caller.ask(request, post, max_tokens=SHORT_REPLY_TOKENS).text.strip()
        except ModelError as error:
            _logger.warning("Earlier rounds could not be summarised: %s", error)
            summary = ""
        if not summary:
            self._leave_out(old)
            return
        self._summary = shorten_middle(summary, room // 4)
        self._covered.update(dict.fromkeys(one.id for one in old))

    def _leave_out(self, rounds: Sequence[Round]) -> None:
        self._covered.update(dict.fromkeys(one.id for one in rounds))
        queries = "; ".join(shorten_middle(one.user_query, 80) for one in rounds)
        notice = f"[{len(rounds)} earlier rounds are left out for want of room: {queries}]"
        self._summary = shorten_middle(f"{self._summary}\n{notice}".strip(), 4000)

    def _tell(self, post: PostEventProxy) -> None:
        """Say what the role knows now, unless that was said."""
        now = RoleMemory(self._summary, tuple(self._covered), self._room_share)
        if now == self._told:
            return
        self._told = now
        details: MemoryExtra = {
            "role": post.post.send_from,
            "covered_rounds": list(now.covered_rounds),
        }
        if now.room_share != 1.0:
            details["room_share"] = now.room_share
        kind = SessionEventType.session_memory_update
        post.emitter.emit_session_event(kind, now.summary, details)

    def _shortened(self, messages: list[Message], first: int) -> list[Message]:
        """Halve the longest message until all fit, or none can be shortened any more."""
        while self._is_too_long(messages):
            index = max(range(first, len(messages)), key=lambda one: len(messages[one].content))
            length = len(messages[index].content)
            if length <= MIN_MESSAGE_CHARS:
                break
            text = shorten_middle(messages[index].content, length // 2)
            messages[index] = Message(messages[index].role, text)
        return messages
