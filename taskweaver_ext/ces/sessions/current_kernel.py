"""The kernel that a session has now, if it has one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.looks import RunningCode
from taskweaver_ext.ces.execution.results import KernelDeath
from taskweaver_ext.ces.kernels.client.host import StartedKernel
from taskweaver_ext.ces.kernels.client.reader import KernelReader, OnLateOutput
from taskweaver_ext.ces.programs.site import ProgramSite
from taskweaver_ext.ces.sessions.session_info import SessionInfo, SessionRecord
from taskweaver_ext.errors import SessionError


class CurrentKernel:
    """Open a kernel, look at it, stop it; one after another.

    Threads:
        `open` is for the thread whose turn it is, the rest for any. `_lock`
        guards all fields and is not held while a kernel starts or stops.
    """

    def __init__(
        self,
        session_id: str,
        start: Callable[[], StartedKernel],
        describe: Callable[[], SessionInfo],
        on_late_output: OnLateOutput,
        unresponsive_seconds: float | None,
    ) -> None:
        self._session_id = session_id
        self._start = start
        self._describe = describe
        self._on_late_output = on_late_output
        self._unresponsive_seconds = unresponsive_seconds
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        """Tells that there is a kernel, or that there will be none."""
        self._kernel: StartedKernel | None = None
        self._reader: KernelReader | None = None
        self._record: SessionRecord | None = None
        self._program_count = 0
        self._is_closed = False
        self._was_there = False

    def open(self) -> None:
        """Start a kernel and its reader; raises KernelStartError, or SessionError when closed."""
        if self.is_closed:
            raise self._closed_error()
        kernel = self._start()
        reader = KernelReader(
            kernel.host,
            kernel.connection,
            self._on_late_output,
            self._session_id,
            self._unresponsive_seconds,
        )
        try:
            reader.start()
        except BaseException:  # the machine may have no thread left for it, or Ctrl-C came
            kernel.host.stop()
            raise
        record = SessionRecord(self._describe(), pid=kernel.host.pid, folder=kernel.host.folder)
        with self._lock:
            self._kernel, self._reader, self._record = kernel, reader, record
            self._was_there = True
            self._changed.notify_all()
        if self._is_closed:  # while it started
            self.stop()
            raise self._closed_error()

    def stop(self, *, unless_programs_run: bool = False) -> bool:
        """Stop the kernel, if there is one; return whether there is none now."""
        with self._lock:
            if unless_programs_run and self._program_count:
                return False
            kernel, reader, record = self._kernel, self._reader, self._record
            self._kernel = self._reader = self._record = None
        if record is not None:
            record.remove()
        if reader is not None:
            reader.stop()
        if kernel is not None:
            kernel.host.stop()
        return True

    def close(self) -> None:
        """Stop the kernel, and any that is being started."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
        self.stop()

    @property
    def is_closed(self) -> bool:
        """Whether there will be no kernel any more."""
        with self._lock:
            return self._is_closed

    def get(self) -> tuple[StartedKernel, KernelReader]:
        """The kernel and its reader; raises SessionError when there is none."""
        with self._lock:
            if self._kernel is None or self._reader is None:
                raise self._closed_error()
            return self._kernel, self._reader

    def wait_until_alive(self, seconds: float) -> KernelReader | None:
        """Wait until there is a kernel that lives; None when there is none in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._is_alive(), seconds)
            return self._reader if self._is_alive() else None

    @property
    def cwd_to_enter(self) -> str:
        """Where a kernel that was started in advance goes when it first runs code; or empty."""
        with self._lock:
            return "" if self._kernel is None else str(self._kernel.metadata.get("cwd", ""))

    @property
    def running(self) -> RunningCode | None:
        """What runs on the kernel now, as far as that is known outside of it."""
        with self._lock:
            return None if self._reader is None else self._reader.running

    def _is_alive(self) -> bool:
        return self._kernel is not None and not self._has_died()

    @property
    def is_there(self) -> bool:
        """Whether there is a kernel, alive or dead."""
        with self._lock:
            return self._kernel is not None

    @property
    def was_there(self) -> bool:
        """Whether there has ever been one."""
        with self._lock:
            return self._was_there

    def works(self, token: CancellationToken) -> bool:
        """Whether there is a kernel that lives and answers, as far as it was asked."""
        with self._lock:
            reader = None if self._has_died() else self._reader
        return reader is not None and reader.answers(token) and not self.is_dead

    @property
    def is_dead(self) -> bool:
        """Whether the kernel that is there has died."""
        with self._lock:
            return self._has_died()

    @property
    def death(self) -> KernelDeath | None:
        """How the kernel died; None while it lives, or when there is none."""
        with self._lock:
            kernel, reader = self._kernel, self._reader
        if kernel is None or reader is None:
            return None
        return reader.death or (kernel.host.death() if kernel.host.is_over else None)

    @property
    def pid(self) -> int | None:
        """The kernel's process, where it is one of this machine and lives."""
        with self._lock:
            return None if self._kernel is None or self._has_died() else self._kernel.host.pid

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Meanwhile other processes that look see that the kernel has something to do."""
        if (record := self._record) is not None:  # which `stop` may take away meanwhile
            record.begin_use()
        try:
            yield
        finally:
            if (record := self._record) is not None:
                record.end_use()

    def begin_programs(self) -> ProgramSite | None:
        """Where programs run beside the kernel, if there is such a place and it has not ended.

        Until `end_programs` the kernel is not stopped because it is idle.
        """
        with self._lock:
            if self._kernel is None or self._has_died():
                return None
            site = self._kernel.host.programs
            self._program_count += site is not None
            return site

    def end_programs(self) -> None:
        """Programs do not run any more."""
        with self._lock:
            self._program_count -= 1

    def _has_died(self) -> bool:
        kernel, reader = self._kernel, self._reader
        # A host may know before its reader does.
        return (reader is not None and reader.death is not None) or (
            kernel is not None and kernel.host.is_over
        )

    def _closed_error(self) -> SessionError:
        return SessionError(
            f"Session {self._session_id!r} has been stopped. Start it again to use it."
        )
