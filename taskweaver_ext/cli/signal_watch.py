"""Ctrl-C and polite requests to end, as calls on a thread of their own.

A signal handler runs between any two instructions of the main thread, maybe
while that holds a lock; a call that takes locks must not be made from there.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalWatch:
    """Take over the signals that mean "stop" for as long as the `with` block lasts.

    Until `pass_to` is called, the first signal raises KeyboardInterrupt in the
    main thread. Afterwards all go to the function given there.

    Threads:
        The handlers run on the main thread and only put into `_arrived`; one
        thread takes from it and calls out.
    """

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._previous: dict[signal.Signals, Any] = {}
        self._thread: threading.Thread | None = None
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

        def call_out() -> None:
            seconds: float | None = None
            while True:
                try:
                    number = self._arrived.get(timeout=seconds)
                except queue.Empty:
                    on_no_effect()
                    seconds = None
                    continue
                if number is None:
                    return
                on_signal(number)
                seconds = no_effect_after_seconds

        self._thread = threading.Thread(target=call_out, name="taskweaver-signals", daemon=True)
        self._thread.start()

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._thread is not None:
            self._arrived.put(number)
        elif self.count == 1:  # a second one must not cut short the cleaning up
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # A signal that whoever started us has set to be ignored (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._arrived.put(None)
            self._thread.join()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
