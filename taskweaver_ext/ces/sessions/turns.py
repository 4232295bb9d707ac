"""Whose turn it is on a kernel or a shell, and which execution an interrupt is meant for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, TypeAlias

from taskweaver_ext.ces.execution.cancellation import CancellationToken

Purpose: TypeAlias = Literal["execution", "preparation", "upkeep"]
"""What a turn is wanted for: a caller's code, what a caller readies for it, the kernel itself."""


class Place:
    """A place in the line, and then the turn itself."""

    def __init__(self, purpose: Purpose, token: CancellationToken | None) -> None:
        self.purpose = purpose
        self.token = token or CancellationToken()
        """Cancelled, it waits no longer, and what it wants the turn for does not begin."""
        self.thread = threading.get_ident()
        self.asked_at = time.monotonic()


class Turns:
    """Let one thread at a time use the kernel, in the order in which they came.

    Threads:
        Any thread may call any method. `_changed` guards everything and is not held
        while a token is cancelled: a token is for one execution, whenever that is.
    """

    def __init__(self, on_free: Callable[[], None] = lambda: None) -> None:
        """`on_free` is called when a thread has given the turn back."""
        self._on_free = on_free
        self._changed = threading.Condition(threading.Lock())
        self._line: deque[Place] = deque()
        self._holder: Place | None = None
        self._running: CancellationToken | None = None

    @property
    def is_taken(self) -> bool:
        """Whether a thread has the turn."""
        with self._changed:
            return self._holder is not None

    @property
    def is_mine(self) -> bool:
        """Whether the thread that asks has the turn."""
        with self._changed:
            return self._holder is not None and self._holder.thread == threading.get_ident()

    @contextlib.contextmanager
    def place(
        self, purpose: Purpose, token: CancellationToken | None = None, *, is_first: bool = False
    ) -> Iterator[Place]:
        """A place in the line, or at its head; afterwards it is given back with the turn."""
        place = Place(purpose, token)
        with self._changed:
            if is_first:
                self._line.appendleft(place)
            else:
                self._line.append(place)
        stop = partial(self._stop, place)
        place.token.on_cancel(stop)
        try:
            yield place
        finally:
            place.token.forget(stop)
            with self._changed:
                had_turn = self._holder is place
                if had_turn:
                    self._holder = None
                else:
                    self._line.remove(place)
                self._changed.notify_all()
            if had_turn:
                self._on_free()

    def wait(self, place: Place, seconds: float | None = None) -> bool:
        """Wait until it is a place's turn; False when it was cancelled, or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: place.token.is_cancelled or self._is_due(place), seconds)
            if place.token.is_cancelled or not self._is_due(place):
                return False
            self._holder = self._line.popleft()
            return True

    def interrupt(self, kill_after: float | None) -> bool:
        """Cancel what has the turn for a caller or will have it, or else what runs; False if none.

        What runs for no caller is a step of ours, such as a startup script.
        """
        with self._changed:
            place = self._meant_place()
            token = self._running if place is None else place.token
        if token is not None:
            token.cancel(kill_after)
        return token is not None

    def cancel_what_has_not_begun(self, kill_after: float) -> bool:
        """Keep the code that has the turn from running; False if it runs, or there is none.

        It is killed after so many seconds should it begin just now.
        """
        with self._changed:
            holder = self._holder
            if holder is None or holder.purpose != "execution" or self._running is holder.token:
                return False
        holder.token.cancel(kill_after)
        return True

    @contextlib.contextmanager
    def running(self, token: CancellationToken, submit: Callable[[], None]) -> Iterator[None]:
        """Submit something for the thread that has the turn; it runs as long as the block does.

        `submit` may not wait: what is seen to run has been submitted.
        """
        with self._changed:
            self._running = token
            submit()
        try:
            yield
        finally:
            with self._changed:
                self._running = None

    def _stop(self, place: Place, kill_after: float | None) -> None:
        """A place was cancelled: it waits no longer, and the step of ours it waits for ends."""
        with self._changed:
            self._changed.notify_all()
            step = self._running if self._meant_place() is place else None
        if step is not None and step is not place.token:
            step.cancel(kill_after)

    def _is_due(self, place: Place) -> bool:
        return self._holder is None and self._line[0] is place

    def _meant_place(self) -> Place | None:
        """The caller who has the turn, or else waits for it first."""
        if self._holder is not None and self._holder.purpose != "upkeep":
            return self._holder
        return next((place for place in self._line if place.purpose != "upkeep"), None)
