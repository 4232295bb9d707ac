"""Whether a kernel that lives still works: code may have wrecked what would run the next.

It is asked once, a moment after each execution, by the way that executions go. Nothing
comes of it until a caller needs the kernel again: one that has not answered by then, in
all the time it may take, is replaced. So is one that does not begin with what it was sent.
While code runs nothing is asked: it may hold Python's lock for as long as it likes.
"""

from __future__ import annotations

import threading
import time

from taskweaver_ext.ces.execution.cancellation import CancellationToken

UNRESPONSIVE_SECONDS = 60.0
"""How long a kernel may take to answer, or to begin, on a machine that is busy."""

_IDLE_SECONDS = 1.0
"""How long after an execution the kernel is asked: one that follows at once asks by itself."""
_PATIENCE_SECONDS = 5.0
"""What a caller waits for an answer at least: we may have been stopped ourselves until now."""
_NEVER = float("inf")


class Liveness:
    """What a kernel was asked, and by when it has to answer.

    Threads:
        For the reader's thread, except `wait_for_answer`, which any may call, and
        `stop_waiting`. `_changed` guards `_asked_at` and `_is_over`.
    """

    def __init__(self, limit_seconds: float | None) -> None:
        """A kernel that has just said that it is ready; without a limit it is never asked."""
        self._limit_seconds = _NEVER if limit_seconds is None else limit_seconds
        self._patience_seconds = min(_PATIENCE_SECONDS, self._limit_seconds)
        self._ask_at = _NEVER
        self._begin_by = _NEVER
        self._changed = threading.Condition()
        self._asked_at: float | None = None
        self._is_over = False

    @property
    def next_deadline(self) -> float:
        """When there is something to do, if nothing happens before."""
        return min(self._ask_at, self._begin_by)

    def execution_sent(self) -> None:
        """The kernel was sent something to run."""
        self._ask_at = _NEVER
        self._begin_by = time.monotonic() + self._limit_seconds

    def execution_began(self) -> None:
        """It runs, for as long as it likes."""
        self._begin_by = _NEVER

    def execution_ended(self) -> None:
        """Nothing runs any more."""
        self._begin_by = _NEVER
        if self._limit_seconds != _NEVER:
            self._ask_at = time.monotonic() + _IDLE_SECONDS

    def must_ask(self) -> bool:
        """Whether it is time for the question, which is then asked now; once."""
        if time.monotonic() < self._ask_at:
            return False
        self._ask_at = _NEVER
        with self._changed:
            self._asked_at = time.monotonic()
        return True

    def answered(self) -> None:
        """The kernel has answered the question."""
        with self._changed:
            self._asked_at = None
            self._changed.notify_all()

    def has_failed_to_begin(self) -> bool:
        """Whether the kernel should have begun by now with what it was sent."""
        return time.monotonic() >= self._begin_by

    def why_it_is_given_up(self) -> str:
        """What its death is called."""
        what = "answer" if self._begin_by == _NEVER else "begin to run the code"
        return f"it was alive but did not {what} within {self._limit_seconds:g} s, and was killed"

    def wait_for_answer(self, token: CancellationToken) -> bool:
        """Wait until a question that was asked is answered; False when that takes too long.

        A cancelled token and the reader's end end the waiting.
        """
        with self._changed:
            if self._asked_at is None:
                return True
        token.on_cancel(self._look_again)
        try:
            with self._changed:
                asked_at = self._asked_at or 0.0
                now = time.monotonic()
                seconds = max(asked_at + self._limit_seconds - now, self._patience_seconds)
                return self._changed.wait_for(
                    lambda: self._asked_at is None or self._is_over or token.is_cancelled, seconds
                )
        finally:
            token.forget(self._look_again)

    def stop_waiting(self) -> None:
        """There will be no answer: the reader ends."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _look_again(self, _kill_after: float | None) -> None:
        with self._changed:
            self._changed.notify_all()
