"""Whose turn it is on a session's kernel, who waits for theirs, whom an interrupt is meant for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from taskweaver_ext.ces.kernels.client.execution import Execution
from taskweaver_ext.ces.kernels.client.reader import KernelReader

Purpose: TypeAlias = Literal["execution", "preparation", "upkeep"]
"""What a turn is wanted for: a caller's code, what a caller readies for it, the kernel itself."""


class Place:
    """A place in the line, and then the turn itself; its fields are guarded by `Turns`."""

    def __init__(self, purpose: Purpose) -> None:
        self.purpose = purpose
        self.thread = threading.get_ident()
        self.asked_at = time.monotonic()
        self.has_begun = False
        """Whether its code was given to the kernel."""
        self.is_cancelled = False
        """Whether somebody interrupted it before that; then its code does not run."""


class Turns:
    """Let one thread at a time use the kernel, in the order in which they came.

    Threads:
        Any thread may call any method. `_changed` guards everything; a reader
        is only told under it, which takes no time, so that an interrupt
        never overtakes the execution that it is meant for.
    """

    def __init__(self, on_free: Callable[[], None]) -> None:
        """`on_free` is called when somebody has given the turn back."""
        self._on_free = on_free
        self._changed = threading.Condition(threading.Lock())
        self._line: deque[Place] = deque()
        self._holder: Place | None = None
        self._running: tuple[Execution, KernelReader] | None = None

    @property
    def is_taken(self) -> bool:
        """Whether somebody has the turn."""
        with self._changed:
            return self._holder is not None

    @property
    def is_mine(self) -> bool:
        """Whether the thread that asks has the turn."""
        with self._changed:
            return self._holder is not None and self._holder.thread == threading.get_ident()

    @property
    def is_cancelled(self) -> bool:
        """Whether whoever has the turn was interrupted before its code began."""
        with self._changed:
            return self._holder is not None and self._holder.is_cancelled

    @contextlib.contextmanager
    def place(self, purpose: Purpose, *, is_first: bool = False) -> Iterator[Place]:
        """A place in the line, or at its head; afterwards it is given back with the turn."""
        place = Place(purpose)
        with self._changed:
            if is_first:
                self._line.appendleft(place)
            else:
                self._line.append(place)
        try:
            yield place
        finally:
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
            self._changed.wait_for(lambda: place.is_cancelled or self._is_due(place), seconds)
            if place.is_cancelled or not self._is_due(place):
                return False
            self._holder = self._line.popleft()
            return True

    def interrupt(self, kill_after: float | None) -> None:
        """Interrupt what runs; what is about to run does not."""
        with self._changed:
            if self._running is not None:
                execution, reader = self._running
                reader.interrupt(execution, kill_after)
            if (next_one := self._about_to_run()) is not None:
                next_one.is_cancelled = True
                self._changed.notify_all()

    def cancel_what_has_not_begun(self) -> bool:
        """Keep the code of who has the turn from running; False if it does, or there is none."""
        with self._changed:
            holder = self._holder
            if holder is None or holder.purpose != "execution" or holder.has_begun:
                return False
            holder.is_cancelled = True
            return True

    def begin(self, execution: Execution, reader: KernelReader, place: Place | None = None) -> bool:
        """Have the kernel run something, until `end`: the code of a place, or a command of ours.

        False when the place was cancelled before; then nothing runs.
        """
        with self._changed:
            if place is not None:
                if place.is_cancelled:
                    return False
                place.has_begun = True
            self._running = (execution, reader)
            reader.submit(execution)
            return True

    def end(self) -> None:
        """Nothing runs any more."""
        with self._changed:
            self._running = None

    def _is_due(self, place: Place) -> bool:
        return self._holder is None and self._line[0] is place

    def _about_to_run(self) -> Place | None:
        """Whom a caller waits for and who comes next, unless another caller has the turn."""
        holder = self._holder
        if holder is not None and holder.purpose != "upkeep":
            return holder if holder.purpose == "execution" and not holder.has_begun else None
        return next((place for place in self._line if place.purpose != "upkeep"), None)
