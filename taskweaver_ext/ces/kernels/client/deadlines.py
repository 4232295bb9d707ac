"""When a running execution is to be stopped and why, and when its kernel is to be killed for it."""

from __future__ import annotations

import time
from typing import Literal, TypeAlias

from taskweaver_ext.ces.execution.results import ExecutionStatus

NEVER = float("inf")
START_SECONDS = 1.0
"""How long an interrupt waits for the word that the code has started."""

StopReason: TypeAlias = Literal["timeout", "cancelled", "output_limit", "stopped"]


class Deadlines:
    """What one execution has time for; while it waits for an answer, its time limit stands still.

    Threads:
        For the reader's thread.
    """

    def __init__(self, timeout: float | None = None) -> None:
        """Begin with an execution that is sent now."""
        now = time.monotonic()
        self._timeout = timeout
        self._interrupt_at = NEVER if timeout is None else now + timeout
        self._started_by = now + START_SECONDS
        self._kill_at = NEVER
        self._asked_at: float | None = None
        self.has_started = False
        """Whether an interrupt takes effect: a signal that came earlier would be forgotten."""
        self.stop_reason: StopReason | None = None

    @property
    def next(self) -> float:
        """When there is something to do, if nothing happens before."""
        start = self._started_by if self._waits_to_interrupt else NEVER
        interrupt = NEVER if self.awaits_answer else self._interrupt_at
        return min(self._kill_at, start, interrupt)

    @property
    def awaits_answer(self) -> bool:
        """Whether a question of the code is open."""
        return self._asked_at is not None

    def ask(self) -> None:
        """The code waits for an answer from now on."""
        self._asked_at = time.monotonic()

    def settle_question(self) -> None:
        """The code does not wait for an answer any more."""
        if self._asked_at is not None:
            self._interrupt_at += time.monotonic() - self._asked_at
            self._asked_at = None

    def stop(self, reason: StopReason, kill_after: float | None) -> None:
        """The code is to end, and in so many seconds its kernel, if it has not."""
        self.stop_reason = reason
        if reason == "timeout":
            self._interrupt_at = NEVER
        if kill_after is not None:
            self._kill_at = min(self._kill_at, time.monotonic() + kill_after)

    def is_time_up(self) -> bool:
        """Whether the code has run for as long as it may."""
        return not self.awaits_answer and time.monotonic() >= self._interrupt_at

    def is_start_overdue(self) -> bool:
        """Whether an interrupt has waited long enough for the word that the code has started."""
        return self._waits_to_interrupt and time.monotonic() >= self._started_by

    def must_kill(self) -> bool:
        """Whether it is time to kill the kernel; once."""
        if time.monotonic() < self._kill_at:
            return False
        self._kill_at = NEVER
        return True

    def how_it_was_stopped(self) -> tuple[ExecutionStatus, str]:
        """Return how an execution ends that was stopped, and the sentence that says so."""
        if self.stop_reason == "timeout":
            return ExecutionStatus.TIMEOUT, f"The code was stopped after {self._timeout:g} s."
        if self.stop_reason == "output_limit":
            return ExecutionStatus.ERROR, (
                "The code was stopped because it wrote more than the limit (OUTPUT_LIMIT)."
            )
        if self.stop_reason == "stopped":
            return ExecutionStatus.CANCELLED, "The session was stopped while the code ran."
        return ExecutionStatus.CANCELLED, "The code was interrupted."

    @property
    def _waits_to_interrupt(self) -> bool:
        return self.stop_reason is not None and not self.has_started
