"""What a person can change of a session while it lives; every change is an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from taskweaver_ext.approval import Approval, ApprovalRules
from taskweaver_ext.config.settings import ApprovalMode, ApprovalScope, AutoSend
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import SettingsExtra
from taskweaver_ext.events.types import SessionEventType


class SessionSettings:
    """The settings of one session; frontends change them, and all of them hear of it.

    Threads:
        Everything is safe from any thread.
    """

    def __init__(
        self,
        approval: Approval,
        auto_send: AutoSend,
        emitter: SessionEventEmitter,
        require_open: Callable[[], None],
    ) -> None:
        """Begin with the project's settings; `go_on_from` tells them.

        Args:
            require_open: Raises SessionError once the session has ended.
        """
        self._approval = approval
        self._auto_send: AutoSend = auto_send
        self._emitter = emitter
        self._require_open = require_open

    @property
    def facts(self) -> SettingsExtra:
        """All that holds now."""
        rules = self._approval.rules
        return {
            "approval": rules.mode,
            "approval_scope": rules.scope,
            "allowed_patterns": list(rules.patterns),
            "allowed_kinds": list(rules.kinds),
            "auto_send": self._auto_send,
        }

    @property
    def auto_send(self) -> AutoSend:
        """Whether what a person runs goes to the agent: off, with the next message, or at once."""
        return self._auto_send

    def set_auto_send(self, value: AutoSend) -> None:
        """Have what a person runs go to the agent from now on, or not.

        Raises:
            SessionError: The session was stopped.
        """
        self._require_open()
        if value != self._auto_send:
            self._auto_send = value
            self._tell()

    def set_approval(self, mode: ApprovalMode, scope: ApprovalScope = "shell") -> None:
        """Have code of the agent asked for, run or refused; an open question may be settled by it.

        Raises:
            SessionError: The session was stopped.
        """
        self._require_open()
        self._approval.set_level(mode, scope)

    def allow(self, pattern: str) -> None:
        """Let shell commands of a pattern run without asking.

        Raises:
            SessionError: The pattern is empty, or the session was stopped.
        """
        self._require_open()
        self._approval.allow_pattern(pattern)

    def forget_allowed(self, allowed: str | None = None) -> None:
        """Ask again about what was allowed: one pattern or kind, or all but the project's own.

        Raises:
            SessionError: Nothing like that is allowed, or the session was stopped.
        """
        self._require_open()
        self._approval.forget(allowed)

    def go_on_from(self, past: SettingsExtra | None) -> str:
        """Take over what an earlier process has left, and tell what holds now.

        A level that lets more run than the project's own settings was meant for the person who sat
        there: it does not come back by itself, and neither do kinds of code that were allowed.

        Returns:
            What did not come back, in a sentence; nothing if all did.
        """
        lost = ""
        if past is not None:
            self._auto_send = past["auto_send"]
            lost = self._restore_rules(past)
        self._approval.on_change = self._tell
        self._tell()
        return lost

    def close(self) -> None:
        """Tell nothing any more."""
        self._approval.on_change = lambda: None

    def _restore_rules(self, past: SettingsExtra) -> str:
        first = self._approval.first_rules
        patterns = dict.fromkeys((*first.patterns, *past["allowed_patterns"]))
        before = ApprovalRules(mode=past["approval"], scope=past["approval_scope"])
        level = first if before.is_laxer_than(first) else before
        now = replace(level, patterns=tuple(patterns), kinds=())
        self._approval.restore(now)
        if before.is_laxer_than(first):
            return (
                f"/approve {before.level} of this session does not outlast the program it was set"
                f" in: it is /approve {now.level} again."
            )
        if past["allowed_kinds"]:
            return "What the agent may run without asking was forgotten when the session was left."
        return ""

    def _tell(self) -> None:
        self._emitter.emit_session_event(SessionEventType.session_settings, "", self.facts)
