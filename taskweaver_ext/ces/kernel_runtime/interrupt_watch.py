"""No interrupt is lost, not even one that comes just before a long system call.

Python notices a signal between two instructions. One that arrives after the
last look and before a call like `sleep` blocks is noticed only when that call
ends by itself. We learn of the signal at once, through the descriptor that
the interpreter writes to, and send it again until Python has heeded it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable

_FIRST_WAIT_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 1.0
_RECENTLY_SECONDS = 0.1


class InterruptWatch:
    """Send SIGINT to the main thread again when it did not take effect.

    Threads:
        A thread of its own waits for signals. `heeded` is called by the
        signal handler, on the main thread, and sets one field.
    """

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._heeded_at = 0.0
        self.loop: asyncio.AbstractEventLoop | None = None
        """Waits while a cell awaits; a signal does not wake it by itself."""
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._thread = threading.Thread(
            target=self._insist, name="taskweaver-interrupts", daemon=True
        )
        self._thread.start()

    def heeded(self) -> None:
        """Python's handler runs: the interrupt has been noticed."""
        self._heeded_at = time.monotonic()

    def let_go_in_child(self) -> None:
        """A forked child's signals are its own affair."""
        signal.set_wakeup_fd(-1)

    def _insist(self) -> None:
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        while signals := os.read(self._reader, 512):
            if signal.SIGINT not in signals:
                continue
            arrived_at = time.monotonic()
            wait_seconds = _FIRST_WAIT_SECONDS
            time.sleep(wait_seconds)
            if self.loop is not None:
                self.loop.call_soon_threadsafe(_look_around)
            while self._is_wanted() and self._heeded_at < arrived_at - _RECENTLY_SECONDS:
                signal.pthread_kill(main_thread, signal.SIGINT)
                time.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)


def _look_around() -> None:
    """Nothing: that it is called makes the loop see what the signal's handler left for it."""
