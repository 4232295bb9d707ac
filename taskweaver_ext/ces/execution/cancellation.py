"""One execution's wish to be stopped, handed down from where it is accepted to what runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

OnCancel: TypeAlias = Callable[[float | None], object]
"""Stops something, from any thread and without waiting; told after how many seconds to kill it."""


class CancellationToken:
    """Made for one execution; what it is cancelled for can be nothing else.

    What can stop the execution at the moment (the line it waits in, the reader of its
    kernel, its program) says so with `on_cancel`. A wish that came earlier is not lost.

    Threads:
        Any thread may call any method. `_lock` guards all fields and is not held while
        something is stopped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._kill_after: float | None = None
        self._callbacks: list[OnCancel] = []

    @property
    def is_cancelled(self) -> bool:
        """Whether the execution shall stop, or not begin."""
        return self._is_cancelled

    def cancel(self, kill_after: float | None = None) -> None:
        """Stop the execution; once more, to have it killed.

        Args:
            kill_after: Seconds after which it is killed if it has not ended. None: never.
        """
        with self._lock:
            self._is_cancelled = True
            wanted = [s for s in (self._kill_after, kill_after) if s is not None]
            self._kill_after = min(wanted, default=None)
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            callback(kill_after)

    def on_cancel(self, callback: OnCancel) -> None:
        """Have a function called for each `cancel`, and at once if there has been one."""
        with self._lock:
            self._callbacks.append(callback)
            if not self._is_cancelled:
                return
        callback(self._kill_after)

    def forget(self, callback: OnCancel) -> None:
        """Do not call it any more, except for a `cancel` that is under way."""
        with self._lock:
            self._callbacks.remove(callback)
