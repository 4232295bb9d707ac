"""What a session remembers: all that was said, what the roles know of it, what they hear next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from taskweaver_ext.conversation import PostId, RoundId
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import ContextExtra
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.roles.base.role import Memory
from taskweaver_ext.session.known_rounds import (
    SharedBlock,
    codes_of,
    knows_code,
    without_code,
)
from taskweaver_ext.session.rebuilt import RebuiltSession


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownItem:
    """Something that the agent knows, or is told with the next message."""

    kind: Literal["request", "code", "note"]
    text: str
    """What was asked, the code, or the note."""
    round_id: RoundId | None = None
    post_id: PostId | None = None
    """Of the post that the code is in."""
    is_waiting: bool = False
    """Whether it goes to the agent with the next message."""


class SessionMemory:
    """Hold what was said, and tell listeners what becomes of it: a later process reads that."""

    def __init__(
        self,
        past: RebuiltSession,
        emitter: SessionEventEmitter,
        let_roles_forget: Callable[[set[RoundId]], None],
    ) -> None:
        """Begin with what an earlier process has left.

        Args:
            let_roles_forget: Called with rounds out of which a person has taken something.
        """
        self.rounds = past.rounds
        """All that was said and run, oldest first."""
        self.known = Memory(past.known_rounds)
        """What the roles know."""
        self.waiting = past.waiting
        """What goes to the agent with the next message."""
        self._emitter = emitter
        self._let_roles_forget = let_roles_forget

    @property
    def context_blocks(self) -> tuple[str, ...]:
        """What goes to the agent with the next message, as texts."""
        return tuple(block.text for block in self.waiting)

    def items(self) -> list[KnownItem]:
        """List what the agent knows, oldest first, then what it is told next."""
        found: list[KnownItem] = []
        for one in list(self.known.rounds):
            request = KnownItem(kind="request", text=one.user_query, round_id=one.id)
            shared, own = codes_of(one)
            found += (_code(post_id, code, one.id) for post_id, code in shared)
            found.append(request)
            found += (_code(post_id, code, one.id) for post_id, code in own)
        for block in self.waiting:
            if block.run is None:
                found.append(KnownItem(kind="note", text=block.text, is_waiting=True))
            else:
                found.append(
                    KnownItem(kind="code", text=block.code, post_id=block.run, is_waiting=True)
                )
        return found

    def share(self, texts: Iterable[str]) -> None:
        """Say what goes to the agent with the next message, in place of what did."""
        runs = {block.text: block for block in self.waiting}
        self._wait_with(tuple(runs.get(text, SharedBlock(text)) for text in texts))

    def share_run(self, block: SharedBlock) -> None:
        """Let what a person ran go to the agent with the next message, too."""
        self._wait_with((*self.waiting, block))

    def replace_note(self, old: str, new: str) -> None:
        """Let a note go to the agent with the next message; one that it corrects goes no more."""
        others = [text for text in self.context_blocks if text != old]
        self.share([*others, new])

    def drop(self, post_id: PostId) -> None:
        """Take the code of a post, and what came of it, out of what the agent knows.

        Raises:
            SessionError: The agent does not know it, or is at work with it.
        """
        changed = {one.id for one in self.known.rounds if knows_code(one, post_id)}
        waiting = tuple(block for block in self.waiting if block.run != post_id)
        if not changed and waiting == self.waiting:
            raise SessionError("The agent does not know this block.")
        self._refuse_while_at_work(changed)
        for index, one in enumerate(self.known.rounds):
            if one.id in changed:
                self.known.rounds[index] = without_code(one, post_id)
        self._wait_with(waiting, dropped=post_id)
        self._let_roles_forget(changed)

    def drop_round(self, round_id: RoundId) -> None:
        """Let the agent know nothing of a request and all that came of it.

        Raises:
            SessionError: The agent does not know it, or is at work with it.
        """
        if round_id not in [one.id for one in self.known.rounds]:
            raise SessionError("The agent does not know this request.")
        self._refuse_while_at_work({round_id})
        self._forget([round_id])
        self._let_roles_forget({round_id})

    def forget(self) -> None:
        """Let the roles know nothing of what was said so far."""
        self.share(())
        self._forget([one.id for one in self.known.rounds])

    def _forget(self, round_ids: list[RoundId]) -> None:
        self.known.rounds[:] = [one for one in self.known.rounds if one.id not in round_ids]
        self._emitter.emit_session_event(
            SessionEventType.session_memory_update, "", {"role": "", "covered_rounds": round_ids}
        )

    def _refuse_while_at_work(self, round_ids: set[RoundId]) -> None:
        for one in self.known.rounds:
            if one.id in round_ids and one.state == "created":
                raise SessionError(
                    "The agent is at work with it. Wait for the end of its answer, or stop it."
                )

    def _wait_with(
        self, waiting: tuple[SharedBlock, ...], *, dropped: PostId | None = None
    ) -> None:
        if waiting == self.waiting and dropped is None:
            return
        self.waiting = waiting
        details: ContextExtra = {
            "blocks": [block.text for block in waiting],
            "runs": [block.run or PostId("") for block in waiting],
            "codes": [block.code for block in waiting],
        }
        if dropped is not None:
            details["dropped"] = [dropped]
        self._emitter.emit_session_event(SessionEventType.session_context_update, "", details)


def _code(post_id: PostId, code: str, round_id: RoundId) -> KnownItem:
    return KnownItem(kind="code", text=code, round_id=round_id, post_id=post_id)
