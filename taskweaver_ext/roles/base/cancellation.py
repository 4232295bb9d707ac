"""One wish to stop a round, heard by what is running at that moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from taskweaver_ext.ces.execution.cancellation import CancellationToken, OnCancel
from taskweaver_ext.errors import RoundCancelledError


class Cancellation:
    """Carry a wish to stop from any thread to what a session is doing.

    Threads:
        `request` and `stopping` are for any thread, the rest for the one that runs the round.
        `_lock` guards the fields and is not held while something is stopped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_active = False
        self._token = CancellationToken()
        """Of the round that is under way, or comes next."""

    def begin(self) -> CancellationToken:
        """Let wishes count from now on; return what stops this round, and no other."""
        with self._lock:
            self._is_active = True
            return self._token

    def end(self) -> None:
        """Let wishes count no longer."""
        with self._lock:
            self._is_active, self._token = False, CancellationToken()

    def request(self, *, kill: bool = False) -> bool:
        """Stop what is running; return whether there was anything."""
        with self._lock:
            token = self._token if self._is_active else None
        if token is not None:
            token.cancel(0.0 if kill else None)
        return token is not None

    @property
    def is_requested(self) -> bool:
        """Whether the round that is under way is to end."""
        return self._token.is_cancelled

    def check(self) -> None:
        """End the round here if that was asked for.

        Raises:
            RoundCancelledError: It was.
        """
        if self._token.is_cancelled:
            raise RoundCancelledError("Cancelled.")

    @contextmanager
    def stopping(self, stop: OnCancel) -> Iterator[None]:
        """Call `stop` for each wish to stop that comes while the block runs.

        Raises:
            RoundCancelledError: There was one before.
        """
        self.check()
        token = self._token
        token.on_cancel(stop)
        try:
            yield
        finally:
            token.forget(stop)
