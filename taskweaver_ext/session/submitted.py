"""Something that was asked of a session and is done on a thread of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.conversation import RoundId

T = TypeVar("T")


class Submitted(Generic[T]):
    """A round under way: wait for what comes of it, or stop it.

    Threads:
        Everything is safe from any thread.
    """

    def __init__(self, id: RoundId, do: Callable[[], T], token: CancellationToken) -> None:
        """Begin at once.

        Args:
            id: Of the round; its events have it too.
            do: Called on a thread of its own.
            token: Stops this round, and no other.
        """
        self.id = id
        self._outcome: Future[T] = Future()
        self._token = token
        context = contextvars.copy_context()  # so that its spans are children of the caller's
        threading.Thread(
            target=context.run, args=(self._work, do), name=f"taskweaver-{id}", daemon=True
        ).start()

    @property
    def is_done(self) -> bool:
        """Whether the round has ended."""
        return self._outcome.done()

    def wait(self, timeout: float | None = None) -> T:
        """Return what came of it: a round, or the result of code.

        Raises:
            TimeoutError: It has not ended after `timeout` seconds; it goes on.
            TaskWeaverError: What the blocking call would have raised.
        """
        return self._outcome.result(timeout)

    def when_done(self, call: Callable[[], object]) -> None:
        """Have a function called once it has ended, on a thread of ours; at once if it has."""
        self._outcome.add_done_callback(lambda _outcome: call())

    def cancel(self, kill: bool = False) -> bool:
        """Stop this round, and no other; say whether it was still under way."""
        is_under_way = not self.is_done
        if is_under_way:
            self._token.cancel(0.0 if kill else None)
        return is_under_way

    def _work(self, do: Callable[[], T]) -> None:
        try:
            self._outcome.set_result(do())
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._outcome.set_exception(error)
