"""What a session remembers: all that was said, what the roles know of it, what they hear next."""

from __future__ import annotations

from collections.abc import Iterable

from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.roles.base.role import Memory
from taskweaver_ext.session.rebuilt import RebuiltSession


class SessionMemory:
    """Hold what was said, and tell listeners what becomes of it: a later process reads that."""

    def __init__(self, past: RebuiltSession, emitter: SessionEventEmitter) -> None:
        """Begin with what an earlier process has left."""
        self.rounds = past.rounds
        """All that was said and run, oldest first."""
        self.known = Memory(past.known_rounds)
        """What the roles know."""
        self.context_blocks = past.context_blocks
        """What goes to the agent with the next message; `share` changes it."""
        self._emitter = emitter

    def share(self, blocks: Iterable[str]) -> None:
        """Say what goes to the agent with the next message, in place of what did."""
        blocks = tuple(blocks)
        if blocks != self.context_blocks:
            self.context_blocks = blocks
            self._emitter.emit_session_event(
                SessionEventType.session_context_update, "", {"blocks": list(blocks)}
            )

    def forget(self) -> None:
        """Let the roles know nothing of what was said so far."""
        self.share(())
        known = [one.id for one in self.known.rounds]
        self.known.rounds.clear()
        self._emitter.emit_session_event(
            SessionEventType.session_memory_update, "", {"role": "", "covered_rounds": known}
        )
