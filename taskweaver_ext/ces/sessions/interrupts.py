"""Whom an interrupt is meant for: also an execution that was asked for and has not begun."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from taskweaver_ext.ces.kernels.execution import Execution
from taskweaver_ext.ces.kernels.reader import KernelReader


class Interrupts:
    """Lead interrupts to the execution of one session that runs, or is about to.

    Threads:
        `interrupt` may be called from any thread, the rest by the one whose
        turn it is. `_lock` guards everything, and is not held while a reader
        is called.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[Execution, KernelReader] | None = None
        self._expected: Execution | None = None
        self._early: list[float | None] = []
        """What interrupts were told that came before the expected execution."""

    def interrupt(self, kill_after: float | None) -> None:
        """Interrupt what runs; remember it for what is about to run."""
        with self._lock:
            running = self._running
            if self._expected is not None:
                self._early.append(kill_after)
        if running is not None:
            execution, reader = running
            reader.interrupt(execution, kill_after)

    @contextlib.contextmanager
    def expecting(self, execution: Execution) -> Iterator[None]:
        """From now on interrupts are meant for this execution, though its kernel may not be up."""
        with self._lock:
            self._expected = execution
        try:
            yield
        finally:
            with self._lock:
                self._expected = None
                self._early.clear()

    def submit(self, execution: Execution, reader: KernelReader) -> None:
        """Have the execution run, and interrupted if somebody asked for that too early."""
        with self._lock:
            self._running = (execution, reader)
        reader.submit(execution)
        for kill_after in self._take_early(execution):
            reader.interrupt(execution, kill_after)

    def has_ended(self) -> None:
        """Nothing runs any more."""
        with self._lock:
            self._running = None

    def _take_early(self, execution: Execution) -> list[float | None]:
        with self._lock:
            if execution is not self._expected:
                return []
            self._expected = None
            early, self._early = self._early, []
            return early
