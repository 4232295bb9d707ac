"""Kernels that are started before they are asked for.

A spare hides even the fork: the session that claims it only has to send its
first request, which tells the kernel where it belongs. It costs its memory,
so how many there are is a setting.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from taskweaver_ext.ces.kernels.client.host import StartedKernel

_log = logging.getLogger(__name__)


class SpareKernels:
    """Keep so many started kernels at hand, and replace each that is claimed.

    Threads:
        Spares are started on a thread of their own, one after another.
        `_changed` guards the fields and is never held while a kernel starts.
    """

    def __init__(self, count: int, start: Callable[[], StartedKernel]) -> None:
        self._count = count
        self._start = start
        self._ready: deque[StartedKernel] = deque()
        self._changed = threading.Condition()
        self._is_wanted = True
        """False after a start that failed, until a kernel is asked for."""
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._keep_ready, name="taskweaver-spare-kernels", daemon=True
        )
        self._thread.start()

    @property
    def ready(self) -> Sequence[StartedKernel]:
        """Those that could be claimed now."""
        with self._changed:
            return tuple(self._ready)

    def claim(self) -> StartedKernel | None:
        """A kernel that is ready now, if there is one."""
        with self._changed:
            self._is_wanted = True
            self._changed.notify()
            while self._ready:
                kernel = self._ready.popleft()
                if kernel.host.death(wait_seconds=0.0) is None:
                    return kernel
                _put_away(kernel)
        return None

    def close(self) -> None:
        """End the thread and the kernels that were not claimed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        while self._ready:
            _put_away(self._ready.popleft())

    def _keep_ready(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_to_do)
                if self._is_closed:
                    return
            try:
                kernel = self._start()
            except Exception as error:  # noqa: BLE001 - the next session to start is told
                _log.warning("no spare kernel: %s", error)
                with self._changed:
                    self._is_wanted = False
            else:
                with self._changed:
                    self._ready.append(kernel)

    def _has_to_do(self) -> bool:
        return self._is_closed or (self._is_wanted and len(self._ready) < self._count)


def _put_away(kernel: StartedKernel) -> None:
    kernel.connection.close()
    kernel.host.stop()
