"""One round at a time in a session, and an end that no caller waits for in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.errors import SessionError
from taskweaver_ext.roles.base.cancellation import Cancellation

STOP_SECONDS = 10.0
"""How long `stop` waits for a round to notice."""


class SessionTurns:
    """Give the session to one round at a time, until it is stopped.

    Threads:
        `stop` is for any thread. `_turn` is held by the thread that runs a round, which
        is `_holder`, and by the one that ends the session; `_has_ended` is taken once,
        for good.
    """

    def __init__(
        self, session_id: str, cancellation: Cancellation, end: Callable[[], None]
    ) -> None:
        """Prepare for the first round.

        Args:
            end: Called once, after the last round.
        """
        self._session_id = session_id
        self._cancellation = cancellation
        self._end = end
        self._turn = threading.Lock()
        self._holder = 0
        self._is_stopped = False
        self._has_ended = threading.Lock()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other rounds out for the length of this one.

        Raises:
            SessionError: Another round is under way, or the session was stopped.
        """
        self.reserve()
        with self.reserved():
            yield

    def reserve(self) -> CancellationToken:
        """Keep other rounds out until `reserved`, on whatever thread, has ended, or `release`.

        Returns:
            What stops this round, and no other.

        Raises:
            SessionError: Another round is under way, or the session was stopped.
        """
        if not self._turn.acquire(blocking=False):
            raise SessionError(
                f"Session {self._session_id!r} is busy. Wait for the round to end, or interrupt it."
            )
        token = self._cancellation.begin()
        if self._is_stopped:
            self.release()
            raise self._stopped()
        return token

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Use the turn that `reserve` has kept, on this thread.

        Raises:
            SessionError: The session was stopped.
        """
        self._holder = threading.get_ident()
        try:
            if self._is_stopped:  # asked once more: `stop` reaches a round that has begun
                raise self._stopped()
            yield
        finally:
            self._holder = 0
            self.release()

    def release(self) -> None:
        """Give the turn back."""
        self._cancellation.end()
        self._turn.release()
        if self._is_stopped:
            self._end_if_free()

    def require_open(self) -> None:
        """Refuse what makes no sense after the end.

        Raises:
            SessionError: The session was stopped.
        """
        if self._is_stopped:
            raise self._stopped()

    def stop(self, *, is_called_back: bool) -> None:
        """Cancel the round that is under way, and end the session after it.

        Args:
            is_called_back: Whether the round may be waiting for the thread that calls: then it
                is the round that ends the session, as it is when the round itself calls.
        """
        self._is_stopped = True
        self._cancellation.request(kill=True)
        if is_called_back or self._holder == threading.get_ident():
            self._end_if_free()
            return
        has_turn = self._turn.acquire(timeout=STOP_SECONDS)
        try:
            self._end_once()
        finally:
            if has_turn:
                self._turn.release()

    def _stopped(self) -> SessionError:
        return SessionError(f"Session {self._session_id!r} has been stopped. Start another one.")

    def _end_if_free(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self._end_once()
            finally:
                self._turn.release()

    def _end_once(self) -> None:
        if self._has_ended.acquire(blocking=False):
            self._end()
