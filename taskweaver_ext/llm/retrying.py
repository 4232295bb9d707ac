"""Ask again when the provider is overloaded or out of reach, as long as nothing has been said.

Once a piece of the reply is out, asking again could contradict what was
already shown; from then on errors go to the caller.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.chat_model import (
    ChatModel,
    JsonSchema,
    Message,
    ModelEvent,
    ModelStream,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
)
from taskweaver_ext.llm.model_errors import (
    BrokenStreamError,
    ModelOverloadedError,
    ModelUnreachableError,
    ReplyCancelledError,
)

Wait: TypeAlias = Callable[[threading.Event, float], bool]
"""Wait for the event or for so many seconds; return whether the event is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently to ask again."""

    max_retries: int = 4
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0
    """A provider that asks for more patience than this is not asked again."""

    def wait_seconds(self, error: ModelError, retries_done: int) -> float | None:
        """Return how long to wait before asking again; None when it is of no use."""
        if retries_done >= self.max_retries or not _may_pass(error):
            return None
        asked = error.retry_after_seconds if isinstance(error, ModelOverloadedError) else None
        if asked is not None:
            return asked if asked <= self.longest_wait_seconds else None
        backoff = min(self.first_wait_seconds * 2.0**retries_done, self.longest_wait_seconds)
        # Spread, so that sessions which failed together do not come back together.
        return backoff * random.uniform(0.5, 1.0)


class RetryingModel:
    """Another model, asked again on failures that may pass."""

    def __init__(
        self,
        model: ChatModel,
        policy: RetryPolicy | None = None,
        *,
        wait: Wait = threading.Event.wait,
    ) -> None:
        self._model = model
        self._policy = policy or RetryPolicy()
        self._wait = wait

    @property
    def name(self) -> str:
        """Return the name of the model behind."""
        return self._model.name

    @property
    def context_tokens(self) -> int | None:
        """Return the context of the model behind."""
        return self._model.context_tokens

    def stream(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonSchema | None = None,
        max_tokens: int | None = None,
    ) -> ModelStream:
        """Prepare a reply; see `ChatModel.stream`."""

        def attempt() -> ModelStream:
            return self._model.stream(messages, schema=schema, max_tokens=max_tokens)

        return _RetryingStream(attempt, self._policy, self._wait)

    def close(self) -> None:
        """Close the model behind."""
        self._model.close()


class _RetryingStream(Closeable):
    """One stream after another, until one begins.

    Threads:
        `cancel` may come from any thread; `_lock` guards `_current`, so that
        it finds the stream of the moment.
    """

    def __init__(self, attempt: Callable[[], ModelStream], policy: RetryPolicy, wait: Wait) -> None:
        self._attempt = attempt
        self._policy = policy
        self._wait = wait
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._current: ModelStream | None = None

    def close(self) -> None:
        """Stop the reply."""
        self._cancelled.set()
        current = self._current
        if current is not None:
            current.__exit__(None, None, None)

    def __iter__(self) -> Iterator[ModelEvent]:
        retries_done = 0
        while True:
            has_begun = False
            try:
                for event in self._next_attempt():
                    has_begun = has_begun or isinstance(event, TextDelta | ThinkingDelta)
                    yield event
                return
            except ModelError as error:
                wait_seconds = self._policy.wait_seconds(error, retries_done)
                if has_begun or wait_seconds is None:
                    raise
                reason = str(error)
            retries_done += 1
            yield RetryScheduled(retries_done + 1, wait_seconds, reason)
            if self._wait(self._cancelled, wait_seconds):
                raise ReplyCancelledError("The reply was cancelled before it began.")

    def cancel(self) -> None:
        """Stop the reply, or the wait for another attempt."""
        self._cancelled.set()
        with self._lock:
            current = self._current
        if current is not None:
            current.cancel()

    def _next_attempt(self) -> ModelStream:
        if self._current is not None:
            self._current.__exit__(None, None, None)
        stream = self._attempt()
        with self._lock:
            self._current = stream
        if self._cancelled.is_set():
            raise ReplyCancelledError("The reply was cancelled before it began.")
        return stream.__enter__()


def _may_pass(error: ModelError) -> bool:
    return isinstance(error, ModelOverloadedError | ModelUnreachableError | BrokenStreamError)
