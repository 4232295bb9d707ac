"""Turn many small pieces of output into few events, without delaying the first of them.

The first piece after quiet goes out at once. What follows within `interval` is
collected and goes out together when the interval is over, one call of `emit` per
run of one stream; more than `max_chars` goes out at once. Nothing is lost,
doubled or reordered, and an idle batcher does nothing at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import ConfigError

_Run: TypeAlias = tuple[StreamName, list[str]]

_logger = logging.getLogger(__name__)


class OutputBatcher(Closeable):
    """Collect output and pass it on in order, at most once per interval.

    `emit(stream, text)` is called by the thread that adds, flushes or closes, or
    by the timer that sends what is left; never by two at once. If it
    raises, the first failure is logged and the rest is still passed on.

    Threads:
        Everything is safe from any thread. `_lock` guards all state and is never held
        while `emit` runs: `_emitting` is the thread whose turn it is to call it. A thread
        that adds more than `max_chars` during another's turn waits for its own, which
        holds back a writer that is faster than `emit`. The timer starts when something
        must wait for the first time and ends with `close`.
    """

    def __init__(
        self,
        emit: Callable[[StreamName, str], None],
        interval: float = 0.1,
        max_chars: int = 65536,
    ) -> None:
        """Collect for `emit`.

        Args:
            interval: seconds that have to pass between two flushes.
            max_chars: as much waiting text is passed on without regard to the interval.

        Raises:
            ConfigError: the interval is negative, or `max_chars` is not positive.
        """
        if interval < 0 or max_chars < 1:
            raise ConfigError(
                f"Output cannot be collected for {interval} s or {max_chars} characters: "
                "the interval must not be negative, the number of characters must be positive."
            )
        self._emit = emit
        self._interval = interval
        self._max_chars = max_chars
        self._lock = threading.Lock()
        self._timer_wanted = threading.Condition(self._lock)
        self._turn_ended = threading.Condition(self._lock)
        self._pending: deque[_Run] = deque()
        self._pending_chars = 0
        self._open_stream: StreamName | None = None
        """The stream of the run at the end of `_pending`, while it may grow."""
        self._open_pieces: list[str] = []
        self._next_flush_at = 0.0
        self._emitting: int | None = None
        self._timer: threading.Thread | None = None
        self._timer_is_idle = True
        self._is_closed = False
        self._has_failed = False
        self._has_dropped = False

    def add(self, stream: StreamName, text: str) -> None:
        """Take the next piece of output. After `close` it is dropped, with one warning."""
        if not text:
            return
        with self._lock:
            if stream == self._open_stream:
                self._open_pieces.append(text)
                self._pending_chars += len(text)
                if self._pending_chars < self._max_chars:
                    return
                is_taken = True
            else:
                is_taken = not self._is_closed
                if is_taken and not self._begin_run(stream, text):
                    return
        if is_taken:
            self.flush()
        elif not self._has_dropped:
            self._has_dropped = True
            _logger.warning("Output came after its batcher was closed and is not shown.")

    def flush(self) -> None:
        """Pass on what was added so far; it is out when this returns.

        Called from inside `emit` it does nothing: the text follows within the interval.
        """
        with self._lock:
            if self._emitting == threading.get_ident():
                if self._pending:
                    self._want_timer()
                return
            while self._emitting is not None:
                self._turn_ended.wait()
            if not self._pending:
                return
            runs = self._begin_turn()
        self._use_turn(runs)

    def close(self) -> None:
        """Pass on what was added so far, and nothing ever after.

        Called from inside `emit`, what is left goes out as soon as that call returns.
        """
        with self._lock:
            self._is_closed = True
            self._open_stream = None
            timer = self._timer
            self._timer_wanted.notify()
            self._turn_ended.notify_all()
        self.flush()
        if timer is not None and timer is not threading.current_thread():
            timer.join()

    def _begin_run(self, stream: StreamName, text: str) -> bool:
        """Take a piece that does not go on the last run; say whether it must go out now."""
        is_first = not self._pending
        self._open_stream, self._open_pieces = stream, [text]
        self._pending.append((stream, self._open_pieces))
        self._pending_chars += len(text)
        if self._pending_chars >= self._max_chars:
            return True
        if is_first and self._emitting is None and time.monotonic() >= self._next_flush_at:
            return True
        if is_first:
            self._want_timer()
        return False

    def _want_timer(self) -> None:
        if self._timer is None:
            timer = threading.Thread(
                target=self._run_timer, name="taskweaver-output-batcher", daemon=True
            )
            timer.start()
            self._timer = timer
        elif self._timer_is_idle:  # otherwise it looks again by itself
            self._timer_wanted.notify()

    def _begin_turn(self) -> deque[_Run]:
        runs, self._pending, self._pending_chars = self._pending, deque(), 0
        self._open_stream = None
        # Counted from the start of the turn: what is added during a slow `emit` is due after it.
        self._next_flush_at = time.monotonic() + self._interval
        self._emitting = threading.get_ident()
        return runs

    def _use_turn(self, runs: deque[_Run]) -> None:
        """Emit `runs` and end the turn."""
        try:
            while runs:
                stream, pieces = runs.popleft()
                self._call_emit(stream, "".join(pieces))
                if not runs:
                    runs = self._left_by_close()
        finally:
            with self._lock:
                self._emitting = None
                if runs:  # interrupted (Ctrl-C): what was not tried goes out later
                    self._pending.extendleft(reversed(runs))
                    self._pending_chars = sum(len(text) for _, run in self._pending for text in run)
                    self._want_timer()
                self._turn_ended.notify_all()

    def _left_by_close(self) -> deque[_Run]:
        """Return what `close`, called inside `emit`, could not pass on itself."""
        with self._lock:
            return self._begin_turn() if self._is_closed else deque()

    def _call_emit(self, stream: StreamName, text: str) -> None:
        try:
            self._emit(stream, text)
        except Exception:  # whatever it is, the rest is still passed on
            if not self._has_failed:
                _logger.exception(
                    "Output could not be passed on to %r; it goes on being tried, and further "
                    "failures are not logged.",
                    self._emit,
                )
            self._has_failed = True

    def _run_timer(self) -> None:
        while True:
            with self._lock:
                runs = self._wait_until_due()
            if not runs:
                return
            self._use_turn(runs)

    def _wait_until_due(self) -> deque[_Run]:
        """Sleep until something has waited long enough and take the turn; nothing means closed."""
        while not self._is_closed:
            if not self._pending:
                self._timer_is_idle = True
                self._timer_wanted.wait()
                self._timer_is_idle = False
            elif self._emitting is not None:
                self._turn_ended.wait()
            elif (seconds_left := self._next_flush_at - time.monotonic()) > 0:
                self._timer_wanted.wait(seconds_left)
            else:
                return self._begin_turn()
        return deque()
