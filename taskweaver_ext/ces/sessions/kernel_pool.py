"""Keep the number of kernels bounded, and put away those that have been idle for a while.

A session whose kernel was put away goes on existing: its next execution
starts a fresh one and says that variables are gone. A busy kernel is never
put away; a session that needs one while all are busy waits, until it gives up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.errors import ConfigError, KernelStartError, SessionError

WAIT_SECONDS = 60.0
"""How long a session waits for a kernel to become idle when all are busy."""

_SHORTAGES = (
    *map(os.strerror, (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)),
    "can't start new thread",
)
"""How running out of descriptors, processes or memory reads; also in a kernel's last words."""

_START_ERRORS = (OSError, RuntimeError, KernelStartError)

_T = TypeVar("_T")


class KernelNotWantedError(SessionError):
    """The session was stopped, or its execution interrupted, while it waited for a kernel."""


class KernelSlot:
    """The room that one session has for a kernel, and whether the kernel in it is idle.

    Threads:
        Any thread may call any method. `_lock` guards the fields.
    """

    def __init__(self, put_away: Callable[[str], bool]) -> None:
        self.put_away = put_away
        """Stops the kernel, for a reason, if it is idle; False when it is not."""
        self.is_taken = False
        """Whether a kernel lives here, or is about to start."""
        self.is_closed = False
        """Whether the session was stopped: then it waits for a kernel no longer."""
        self._lock = threading.Lock()
        self._use_count = 0
        self._used_at = time.monotonic()

    @property
    def idle_since(self) -> float | None:
        """Since when the kernel has nothing to do; None while it is busy, or there is none."""
        with self._lock:
            is_idle = self.is_taken and not self.is_closed and not self._use_count
            return self._used_at if is_idle else None

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Meanwhile the kernel is not idle."""
        with self._lock:
            self._use_count += 1
        try:
            yield
        finally:
            with self._lock:
                self._use_count -= 1
                self._used_at = time.monotonic()


class KernelPool:
    """Make room before a kernel starts, and tidy up as time goes by.

    Threads:
        A thread of its own puts idle kernels away, if there is a limit of
        time; it sleeps until the next one is due. `_changed` guards the
        other fields and is never held while a kernel stops. Only the first
        in `_line` makes room, so that two do not take the same.
    """

    def __init__(self, max_kernels: int | None, idle_seconds: float | None) -> None:
        if max_kernels is not None and max_kernels < 1:
            raise ConfigError(f"max_kernels is {max_kernels}; it must be 1 or more, or None.")
        if idle_seconds is not None and not idle_seconds >= 0:
            raise ConfigError(f"idle_seconds is {idle_seconds}; it must be 0 or more, or None.")
        self._max_kernels = max_kernels
        self._idle_seconds = idle_seconds
        self._slots: list[KernelSlot] = []
        self._changed = threading.Condition()
        self._changes = 0
        """How often something has changed that a session may have waited for."""
        self._line: deque[KernelSlot] = deque()
        """Those that wait for room, in the order they came."""
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if idle_seconds is not None:
            self._thread = threading.Thread(
                target=self._put_idle_away, name="taskweaver-kernel-pool", daemon=True
            )
            self._thread.start()

    def add(self, slot: KernelSlot) -> None:
        """Look after a session's slot."""
        with self._changed:
            self._slots.append(slot)
        self.look_again()

    def remove(self, slot: KernelSlot) -> None:
        """Forget a session's slot."""
        with self._changed:
            if slot in self._slots:
                self._slots.remove(slot)
        self.look_again()

    def look_again(self) -> None:
        """A kernel has nothing to do now, or is not waited for any more."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def start(self, asker: KernelSlot, start: Callable[[], _T], token: CancellationToken) -> _T:
        """Start a kernel for a session within the bound; once more with more room if it must.

        Raises:
            KernelStartError: There is no room, or too little of something else.
            KernelNotWantedError: The session was stopped, or what needs the kernel cancelled.
        """
        self._keep_room(asker, token)
        try:
            return start()
        except _START_ERRORS as error:
            if not (shortage := _shortage_behind(error)):
                raise
            reason = f"the machine ran out of resources ({shortage})"
            put_away = [slot.put_away(reason) for slot in self._others(asker)]
            if not any(put_away):
                raise _shortage_error(shortage, error) from error
        try:
            return start()
        except _START_ERRORS as error:
            if shortage := _shortage_behind(error):
                raise _shortage_error(shortage, error) from error
            raise

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _keep_room(self, asker: KernelSlot, token: CancellationToken) -> None:
        """Wait for room within the bound, in the order they came, and keep it for a session."""
        if self._max_kernels is None:
            asker.is_taken = True
            return
        deadline = time.monotonic() + WAIT_SECONDS
        with self._changed:
            self._line.append(asker)
        token.on_cancel(self._look_again_when_cancelled)
        try:
            while not asker.is_closed and not token.is_cancelled:
                seen = self._changes
                if self._line[0] is asker and self._has_made_room(asker, self._max_kernels):
                    asker.is_taken = True
                    return
                if not self._has_changed(seen, deadline):
                    raise KernelStartError(
                        f"All {self._max_kernels} kernels have been busy for {WAIT_SECONDS:g} s."
                        " Wait for one to end, stop a session, or allow more kernels."
                    )
        finally:
            token.forget(self._look_again_when_cancelled)
            with self._changed:
                self._line.remove(asker)
            self.look_again()
        raise KernelNotWantedError(
            "The session was stopped while it waited for a kernel. Start it again to use it."
        )

    def _look_again_when_cancelled(self, _kill_after: float | None) -> None:
        self.look_again()

    def _has_made_room(self, asker: KernelSlot, max_kernels: int) -> bool:
        """Put kernels away, idle longest first, until there is room; False when all are busy."""
        reason = f"at most {max_kernels} may live at once, and another session needed one"
        while self._count(asker) >= max_kernels:
            idle = [s for s in self._others(asker) if s.idle_since is not None]
            if not any(s.put_away(reason) for s in sorted(idle, key=lambda s: s.idle_since or 0)):
                return False
        return True

    def _has_changed(self, seen: int, deadline: float) -> bool:
        """Wait until there have been more changes than were seen; False when time is up."""
        with self._changed:
            seconds = max(0.0, deadline - time.monotonic())
            return self._changed.wait_for(lambda: self._changes != seen, seconds)

    def _count(self, asker: KernelSlot) -> int:
        return sum(slot.is_taken for slot in self._others(asker))

    def _others(self, asker: KernelSlot) -> list[KernelSlot]:
        with self._changed:
            return [slot for slot in self._slots if slot is not asker]

    def _put_idle_away(self) -> None:
        assert self._idle_seconds is not None
        reason = f"it had nothing to do for {self._idle_seconds:g} s"
        while True:
            with self._changed:
                if self._is_closed:
                    return
                slots = list(self._slots)
            now = time.monotonic()
            for slot in slots:
                since = slot.idle_since
                if since is not None and now - since >= self._idle_seconds:
                    slot.put_away(reason)
            with self._changed:
                if not self._is_closed:
                    self._changed.wait(self._seconds_to_next(self._slots))

    def _seconds_to_next(self, slots: Iterable[KernelSlot]) -> float | None:
        assert self._idle_seconds is not None
        idle = [since for slot in slots if (since := slot.idle_since) is not None]
        if not idle:
            return None
        return max(0.0, min(idle) + self._idle_seconds - time.monotonic())


def _shortage_behind(error: BaseException | None) -> str:
    """What the machine has run out of, if that is why something failed."""
    while error is not None:
        for shortage in _SHORTAGES:
            if shortage in str(error):
                return shortage
        error = error.__cause__ or error.__context__
    return ""


def _shortage_error(shortage: str, error: BaseException) -> KernelStartError:
    is_told = isinstance(error, KernelStartError)
    what_happened = str(error) if is_told else f"The kernel did not start: {error}."
    return KernelStartError(
        f"{what_happened}\nSomething has run out ({shortage}), and no kernel is idle that could be"
        " put away. Stop sessions or other programs, or raise the limit (memory_limit; ulimit -n"
        " for open files, ulimit -u for processes)."
    )
