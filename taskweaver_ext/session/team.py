"""Those who work in a session: its roles, and what runs code for them and for the person."""

from __future__ import annotations

import logging

from taskweaver_ext.approval import Approval
from taskweaver_ext.closing import Closeable
from taskweaver_ext.conversation import RoundId
from taskweaver_ext.events.questions import Questions
from taskweaver_ext.roles.base.cancellation import Cancellation
from taskweaver_ext.roles.base.role import Role, RoleContext
from taskweaver_ext.roles.base.token_count import TokenCounter
from taskweaver_ext.session.parts import SessionParts, make_executor, make_roles
from taskweaver_ext.session.rebuilt import RebuiltSession
from taskweaver_ext.session.workplace import Workplace

_logger = logging.getLogger(__name__)


class Team(Closeable):
    """Owns the roles and the executor of one session, from its first round until after its last."""

    def __init__(
        self,
        session_id: str,
        parts: SessionParts,
        place: Workplace,
        cancellation: Cancellation,
        questions: Questions,
        approval: Approval,
    ) -> None:
        """Make all of them; nothing starts yet.

        Raises:
            ConfigError: A role is unknown, or they do not fit together.
        """
        self.usage = TokenCounter()
        """What models have cost in the whole session."""
        self.context = RoleContext(
            session_id=session_id,
            session_dir=place.path,
            emitter=place.emitter,
            config=parts.config,
            find_model=parts.find_model,
            cancellation=cancellation,
            usage=self.usage,
            redactor=parts.environment.redactor,
            traces=parts.traces,
            block_number=place.code_blocks.number_of,
        )
        self.executor = make_executor(parts, self.context, place.working.path, questions)
        self.roles = make_roles(parts, self.context, self.executor, approval)
        """By alias; the first of them hears the person."""

    def go_on_from(self, past: RebuiltSession) -> None:
        """Have the roles go on with what they knew, and had cost, in an earlier process."""
        for alias, memory in past.role_memories.items():
            if alias in self.roles:
                self.roles[alias].restore(memory)
        if past.usage is not None:
            self.usage.restore(past.usage)

    def forget(self, round_ids: set[RoundId]) -> None:
        """Have the roles let go of what they have made of rounds that are no longer the same."""
        for role in self.roles.values():
            role.forget(round_ids)

    def close(self) -> None:
        """Let go of the roles, then of all that runs."""
        for role in self.roles.values():
            _close(role)
        self.executor.close()


def _close(role: Role) -> None:
    try:
        role.close()
    except Exception:  # it may be a project's own, and the others are still to be closed
        _logger.exception("The role %s could not be closed", role.alias)
