"""Those who work in a session: its roles, and what runs code for them and for the person."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from taskweaver_ext.approval import Approval
from taskweaver_ext.closing import Closeable
from taskweaver_ext.conversation import RoleName, RoundId
from taskweaver_ext.events.questions import Questions
from taskweaver_ext.roles.base.role import Role, RoleContext, RoleMemory
from taskweaver_ext.session.parts import SessionParts, make_executor, make_roles

_logger = logging.getLogger(__name__)


class Team(Closeable):
    """Owns the roles and the executor of one session, from its first round until after its last."""

    def __init__(
        self,
        parts: SessionParts,
        context: RoleContext,
        cwd: Path,
        questions: Questions,
        approval: Approval,
    ) -> None:
        """Make all of them; nothing starts yet.

        Raises:
            ConfigError: A role is unknown, or they do not fit together.
        """
        self.executor = make_executor(parts, context, cwd, questions)
        self.roles = make_roles(parts, context, self.executor, approval)
        """By alias; the first of them hears the person."""

    def restore(self, memories: Mapping[RoleName, RoleMemory]) -> None:
        """Have the roles go on with what they knew in an earlier process."""
        for alias, memory in memories.items():
            if alias in self.roles:
                self.roles[alias].restore(memory)

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
