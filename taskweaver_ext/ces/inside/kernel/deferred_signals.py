"""Hold signal handlers back while output is being handed over.

A Python signal handler runs between two instructions of the main thread and
may raise there (KeyboardInterrupt, a timeout of the user's own). Raised in
the middle of sending, it would tear a frame in two. Such handlers are made to
wait for the few microseconds that matters.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from typing import Any


class DeferredSignals:
    """Handlers wait between `hold` and `release`, which the main thread calls around a send."""

    def __init__(self) -> None:
        self._is_holding = False
        self._main_thread = threading.main_thread().ident
        self._held_back: dict[int, Callable[[], object]] = {}
        """One for each signal, as the system keeps them: the same signal twice is once."""
        self._running: set[int] = set()
        """Signals whose held back handlers run now; they may print, and so release the others."""
        self.on_interrupt: Callable[[int, Any], object] = signal.default_int_handler
        """What Python's own handler of SIGINT is here, with no difference to be seen."""

    def hold(self) -> None:
        """From here on handlers wait. Other threads run none, so nothing is held for them."""
        if threading.get_ident() == self._main_thread:
            self._is_holding = True

    def release(self) -> None:
        """Let the handlers run that came meanwhile; what they raise is raised here."""
        if threading.get_ident() == self._main_thread:
            self._is_holding = False
            if self._held_back:
                self._catch_up()

    def _catch_up(self) -> None:
        # A handler that prints comes here again. Running it within itself would go on for as
        # long as its signal comes faster than it prints, until the stack is full.
        while due := self._held_back.keys() - self._running:
            number = due.pop()
            self._running.add(number)
            try:
                self._held_back.pop(number)()
            finally:
                self._running.discard(number)

    def guard(self, handler: Callable[[int, Any], object]) -> Callable[[int, Any], object]:
        """Give a handler that behaves as `handler` does, but waits while signals are held."""
        called = self.on_interrupt if handler is signal.default_int_handler else handler

        @functools.wraps(handler, updated=())
        def guarded(number: int, frame: Any) -> object:
            if self._is_holding:
                self._held_back[number] = functools.partial(called, number, frame)
                return None
            return called(number, frame)

        guarded.taskweaver_handler = handler  # type: ignore[attr-defined]
        return guarded

    def install(self) -> None:
        """Guard every handler that is set from now on; `getsignal` still gives the plain one."""
        plain_signal, plain_getsignal = signal.signal, signal.getsignal

        @functools.wraps(plain_signal)
        def set_handler(number: int, handler: Any) -> Any:
            return _unguarded(
                plain_signal(number, self.guard(handler) if callable(handler) else handler)
            )

        @functools.wraps(plain_getsignal)
        def get_handler(number: int) -> Any:
            return _unguarded(plain_getsignal(number))

        signal.signal = set_handler  # type: ignore[assignment]
        signal.getsignal = get_handler  # type: ignore[assignment]


def _unguarded(handler: Any) -> Any:
    return getattr(handler, "taskweaver_handler", handler)
