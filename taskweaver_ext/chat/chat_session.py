"""What the console needs of a session, and what it is given to make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from taskweaver_ext.approval import Approval
from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.chat.kernel_names import KernelName
from taskweaver_ext.conversation import Round
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import SessionEventHandler
from taskweaver_ext.roles.base.role import Memory


class ChatSession(Protocol):
    """One conversation; `Session` is one.

    The console calls one method at a time, on its execution thread; `interrupt` on any.
    """

    @property
    def session_id(self) -> str:
        """Its name."""

    @property
    def emitter(self) -> SessionEventEmitter:
        """Where it says what happens."""

    shares_runs: bool
    """Whether what a person runs goes to the agent with the next message."""

    @property
    def context_blocks(self) -> list[str]:
        """What goes to the agent with the next message."""

    @property
    def memory(self) -> Memory:
        """What the agent knows of what was said."""

    @property
    def rounds(self) -> list[Round]:
        """All that was said and run, oldest first."""

    @property
    def session_dir(self) -> Path:
        """Where its files are."""

    @property
    def approval(self) -> Approval:
        """What may run without asking."""

    def send_message(
        self,
        message: str,
        event_handler: SessionEventHandler | None = None,
        files: Sequence[Any] | None = None,
        on_input: OnInput | None = None,
    ) -> Round:
        """Ask the agent."""

    def run_code(
        self,
        language: str,
        code: str,
        event_handler: SessionEventHandler | None = None,
        on_input: OnInput | None = None,
    ) -> ExecutionResult:
        """Run code of the user."""

    def interrupt(self, kill: bool = False) -> object:
        """Interrupt what runs; with `kill`, kill it, which costs the variables."""

    def stop(self) -> None:
        """End it, and everything it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSource:
    """How the console comes to its sessions, and what it may know of them."""

    create: Callable[[], ChatSession]
    create_demo: Callable[[], tuple[ChatSession, Callable[[], None]]]
    """One with a scripted model, and how to end all that belongs to it."""
    find_names: Callable[[ChatSession, str], Sequence[KernelName]]
    """Asks the session's kernel what fits at the end of some code."""
    describe: Callable[[ChatSession], list[tuple[str, str]]]
    """What `/info` shows: names and values."""
    describe_cost: Callable[[ChatSession], str]
    """What the models have used for the last request; empty when none was asked."""
    demo_request: str
