"""Ctrl-C and polite requests to end, as calls on a thread of their own.

A signal handler runs between any two instructions of the main thread, maybe
while that holds a lock; a call that takes locks must not be made from there.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from taskweaver_ext.chat.exit_codes import EXIT_INTERRUPTED
from taskweaver_ext.closing import Closeable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_STUCK_SECONDS = 5.0
"""How long the cleaning up may take after a signal that came when no listener was set."""
_STDERR = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Listener:
    """The functions that are told of signals."""

    on_signal: Callable[[int], None]
    on_no_effect: Callable[[], None]
    no_effect_after_seconds: float


class SignalWatch(Closeable):
    """Take over the signals that mean "stop" for as long as the `with` block lasts.

    Until `pass_to` is called, the first signal raises KeyboardInterrupt in the
    main thread, and ends the program should the block not be left soon: an
    interrupt can come where nothing was prepared for it, such as between
    starting a kernel and noting that it runs. Afterwards all signals go to the
    function given there.

    Threads:
        The handlers run on the main thread and only put into `_arrived`; one
        thread takes from it and calls out.
    """

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._previous: dict[signal.Signals, Any] = {}
        self._listener: _Listener | None = None
        self._thread = threading.Thread(
            target=self._call_out, name="taskweaver-signals", daemon=True
        )
        self.count = 0
        """How many signals have come."""

    def pass_to(
        self,
        on_signal: Callable[[int], None],
        on_no_effect: Callable[[], None],
        no_effect_after_seconds: float,
    ) -> None:
        """Call `on_signal` for each signal from now on, on a thread of ours.

        `on_no_effect` is called once when nothing has ended the block so long after a signal.
        """
        self._listener = _Listener(on_signal, on_no_effect, no_effect_after_seconds)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        is_heard = self._listener is not None
        self._arrived.put(number)
        if not is_heard and self.count == 1:  # a second one must not cut short the cleaning up
            raise KeyboardInterrupt

    def _call_out(self) -> None:
        seconds: float | None = None
        on_no_effect: Callable[[], None] = _end_at_once
        while True:
            try:
                number = self._arrived.get(timeout=seconds)
            except queue.Empty:
                on_no_effect()
                seconds = None
                continue
            if number is None:
                return
            if (listener := self._listener) is None:
                seconds = _STUCK_SECONDS
            else:
                try:
                    listener.on_signal(number)
                except Exception:  # noqa: BLE001 - the next signal must still be heard
                    _log.exception("signal %d could not be acted on", number)
                seconds = listener.no_effect_after_seconds
                on_no_effect = listener.on_no_effect

    def __enter__(self) -> Self:
        self._thread.start()
        for number in SIGNALS:
            # A signal that our parent has set to be ignored (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def close(self) -> None:
        """Give the signals back."""
        self._arrived.put(None)
        self._thread.join()
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def _end_at_once() -> None:
    """End the program without waiting for anything; its kernels notice and end too."""
    os.write(_STDERR, b"[Cancelled] What was being started did not end and is left to itself.\n")
    os._exit(EXIT_INTERRUPTED)
