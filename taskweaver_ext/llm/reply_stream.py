"""One reply, fetched by a thread of its own and handed to the thread that iterates.

The thread is what makes three promises hold for every provider: a wait ends
at the time limit, a cancel from another thread ends it at once, and a read that
blocks inside a vendor's library holds up nothing but that thread.
"""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol, Self, TypeAlias

from taskweaver_ext.closing import Closeable
from taskweaver_ext.llm.chat_model import Finished, ModelEvent, TextDelta, ThinkingDelta
from taskweaver_ext.llm.model_errors import (
    BrokenStreamError,
    ModelTimeoutError,
    ReplyCancelledError,
    ReplyInterruptedError,
)
from taskweaver_ext.llm.model_settings import TimeLimits

MAX_PENDING = 256
"""How many events may wait for the reader; then the provider waits."""

LONGEST_REPLY = 2_000_000
"""Characters, thoughts included; a server that sends more does not keep to any number of tokens."""

USAGE_SECONDS = 2.0
"""How long a complete reply waits for the count of its tokens."""

LEAVE_SECONDS = 0.1
"""How long leaving waits for the thread; a thread still connecting ends at its own limit."""


Deliver: TypeAlias = Callable[[ModelEvent | None], bool]
"""Take the next event, or None as a sign of life; return False when the reader wants no more."""


class ReplySource(Protocol):
    """One request to a provider.

    `ReplyStream` calls `run` once, on its own thread, and `cut` from any
    thread, any number of times, also before `run` has begun.
    """

    def run(self, deliver: Deliver) -> None:
        """Make the request, deliver what comes, and return when the reply has ended.

        `Finished` may be delivered again with more in it; the last one counts.

        Raises:
            ModelError: Whatever went wrong, in our words.
        """

    def cut(self) -> None:
        """Make `run` end soon, by force; do not wait for it."""


class ReplyStream(Closeable):
    """The `ModelStream` of every provider.

    Threads:
        `taskweaver-model` runs the source and fills `_pending`; the caller's
        thread empties it; `cancel` may come from anywhere. All they share is
        guarded by `_changed`, which is never held while calling out.
    """

    def __init__(self, source: ReplySource, *, model_name: str, limits: TimeLimits) -> None:
        self._source = source
        self._model_name = model_name
        self._limits = limits
        self._received = io.StringIO()
        self._delivered_chars = 0
        self._thread = threading.Thread(target=self._pump, name="taskweaver-model", daemon=True)
        self._changed = threading.Condition()
        self._pending: deque[ModelEvent] = deque()
        self._finished: Finished | None = None
        self._failure: Exception | None = None
        self._source_has_ended = False
        self._is_cancelled = False
        self._has_begun = False
        self._is_over = False
        self._began_at = 0.0
        self._last_sign_of_life = 0.0

    def __enter__(self) -> Self:
        self._began_at = time.monotonic()
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop the provider, and give the thread a moment to end."""
        self.cancel()
        self._thread.join(LEAVE_SECONDS)

    def __iter__(self) -> Iterator[ModelEvent]:
        if self._thread.ident is None:
            raise RuntimeError("a model stream is read inside its `with` block")
        while (event := self._next()) is not None:
            yield event

    def cancel(self) -> None:
        """Stop the reply; the thread that iterates gets `ReplyCancelledError` at once."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()
            is_running = not self._source_has_ended
        if is_running:
            self._source.cut()

    # The caller's thread

    def _next(self) -> ModelEvent | None:
        waiting_since = time.monotonic()
        with self._changed:
            if self._is_over:
                return None
            while not (self._is_cancelled or self._pending or self._source_has_ended):
                remaining = self._deadline(waiting_since) - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            if self._is_cancelled:
                raise self._interrupted(ReplyCancelledError("The reply was cancelled."))
            if self._pending and not self._has_taken_too_long():
                event = self._pending.popleft()
                self._changed.notify_all()
                if isinstance(event, TextDelta):
                    self._received.write(event.text)
                return event
            self._is_over = True
            failure, finished = self._failure, self._finished
            has_timed_out = not self._source_has_ended or self._has_taken_too_long()
        return self._last_event(finished, failure, has_timed_out=has_timed_out)

    def _deadline(self, waiting_since: float) -> float:
        if self._finished is not None:
            silence_ends = self._last_sign_of_life + USAGE_SECONDS
        else:
            silence_ends = max(waiting_since, self._last_sign_of_life) + self._silence_limit()
        return min(silence_ends, self._began_at + self._limits.whole_reply_seconds)

    def _has_taken_too_long(self) -> bool:
        return time.monotonic() >= self._began_at + self._limits.whole_reply_seconds

    def _silence_limit(self) -> float:
        if self._has_begun:
            return self._limits.between_tokens_seconds
        return self._limits.first_token_seconds

    def _last_event(
        self, finished: Finished | None, failure: Exception | None, *, has_timed_out: bool
    ) -> ModelEvent:
        # Once the model has said that it is done, the fate of the connection no longer matters.
        if finished is not None:
            return finished
        if has_timed_out:
            self._source.cut()
            raise self._interrupted(self._timeout_error())
        if isinstance(failure, ReplyInterruptedError):
            raise self._interrupted(failure)
        if failure is not None:
            raise failure
        raise self._interrupted(
            BrokenStreamError(
                f"The reply of {self._model_name} ended without a reason: the stream was cut off. "
                "Ask again."
            )
        )

    def _timeout_error(self) -> ModelTimeoutError:
        if self._has_taken_too_long():
            return ModelTimeoutError(
                f"{self._model_name} did not end its reply within"
                f" {self._limits.whole_reply_seconds:g} s. Ask again, or raise"
                " llm.whole_reply_seconds."
            )
        silence = f"{self._silence_limit():g} s"
        if self._has_begun:
            return ModelTimeoutError(
                f"{self._model_name} fell silent in the middle of its reply for {silence}. Ask "
                "again, or raise llm.between_tokens_seconds."
            )
        return ModelTimeoutError(
            f"{self._model_name} did not begin to reply within {silence}. Ask again, or raise "
            "llm.first_token_seconds."
        )

    def _interrupted(self, error: ReplyInterruptedError) -> ReplyInterruptedError:
        error.received = self._received.getvalue()
        return error

    # The stream's own thread

    def _pump(self) -> None:
        failure: Exception | None = None
        try:
            self._source.run(self._deliver)
        except Exception as error:  # noqa: BLE001  raised again on the caller's thread
            failure = error
        with self._changed:
            self._failure = failure
            self._source_has_ended = True
            self._changed.notify_all()

    def _deliver(self, event: ModelEvent | None) -> bool:
        with self._changed:
            self._last_sign_of_life = time.monotonic()
            if isinstance(event, Finished):
                self._finished = event
            elif event is not None:
                while len(self._pending) >= MAX_PENDING and not self._is_cancelled:
                    self._changed.wait()
                self._pending.append(event)
                if isinstance(event, TextDelta | ThinkingDelta):
                    self._has_begun = True
                    self._delivered_chars += len(event.text)
                    if self._delivered_chars > LONGEST_REPLY:
                        raise BrokenStreamError(
                            f"The reply of {self._model_name} is longer than {LONGEST_REPLY:,}"
                            " characters and was cut off. Ask again."
                        )
            self._changed.notify_all()
            return not self._is_cancelled
