"""One wish to stop, heard by whatever is running at that moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from taskweaver_ext.errors import SessionError

Stop: TypeAlias = Callable[[bool], None]
"""Stops something that runs, from any thread; True asks to do so at any price."""


class RoundCancelledError(SessionError):
    """Somebody stopped the round; the session can go on."""


class Cancellation:
    """Carry a wish to stop from any thread to what a session is doing.

    Threads:
        `request` and `stopping` are for any thread, the rest for the one that runs the round.
        `_lock` guards all state and is not held while something is stopped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_active = False
        self._is_requested = False
        self._stops: list[Stop] = []

    @property
    def is_requested(self) -> bool:
        """Whether what is running shall stop."""
        return self._is_requested

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let wishes count for the length of a block, and no longer."""
        with self._lock:
            self._is_active, self._is_requested = True, False
        try:
            yield
        finally:
            with self._lock:
                self._is_active = self._is_requested = False

    def request(self, *, kill: bool = False) -> bool:
        """Stop whatever is running; return whether there was anything."""
        with self._lock:
            if not self._is_active:
                return False
            self._is_requested = True
            stops = list(self._stops)
        for stop in stops:
            stop(kill)
        return True

    def check(self) -> None:
        """End the round here if that was asked for.

        Raises:
            RoundCancelledError: It was.
        """
        if self._is_requested:
            raise RoundCancelledError("Cancelled.")

    @contextmanager
    def stopping(self, stop: Stop) -> Iterator[None]:
        """Call `stop` for each wish to stop that comes while the block runs.

        Raises:
            RoundCancelledError: There was one before.
        """
        with self._lock:
            if not self._is_requested:
                self._stops.append(stop)
        self.check()
        try:
            yield
        finally:
            with self._lock:
                self._stops = [other for other in self._stops if other is not stop]
