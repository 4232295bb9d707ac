"""Watch how much code adds to its working directory, whatever it does to hide it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from taskweaver_ext.ces.execution.files_beneath import opened_folder

_LOOK_SECONDS = 0.5
_MEASURE_SECONDS = 10.0
_MAX_DEPTH = 100
"""Honest folders are not nested deeper, and a look takes longer the deeper they are."""


class FolderWatch:
    """Watch how much is added to a folder, and call back when that is too much.

    Threads:
        A thread of its own, which ends with `stop`. `on_too_much` is called
        on it with the bytes added, each time they have grown past the limit.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int,
        on_too_much: Callable[[int], None],
        name: str,
        *,
        unnamed_bytes: Callable[[int], int] = lambda _device: 0,
    ) -> None:
        """A watch that has not begun.

        Args:
            unnamed_bytes: Says what files on a device take that are in no folder any more.
        """
        self._unnamed_bytes = unnamed_bytes
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._on_too_much = on_too_much
        self._free_at_start = 0
        self._closed = self._closed_at_start = frozenset[tuple[str, ...]]()
        """Folders that we may not look into."""
        self._is_stopped = threading.Event()
        self.has_started = threading.Event()
        """Set once it is known what the folder held before."""
        self._thread = threading.Thread(
            target=self._run, name=f"taskweaver-folder-{name}", daemon=True
        )

    def start(self) -> None:
        """Begin to watch; what is there already does not count."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching and wait for the thread."""
        self._is_stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        self._free_at_start = free = self._free_bytes()
        before = measured = self._measure()
        self._closed_at_start = self._closed
        measured_at, seconds = time.monotonic(), 0.0
        self.has_started.set()
        while not self._is_stopped.wait(_LOOK_SECONDS):
            # Looking at the free space costs nothing; only a loss of it can be our growth.
            room = max(0, before + self._limit_bytes - measured)
            has_room = free - self._free_bytes() < room / 2
            pause = max(_MEASURE_SECONDS, 10 * seconds) if has_room else seconds
            if time.monotonic() - measured_at < pause:
                continue
            started = time.monotonic()
            last, measured = measured, self._measure()
            free, measured_at = self._free_bytes(), time.monotonic()
            seconds = measured_at - started
            if measured - before > self._limit_bytes and measured > last:
                self._on_too_much(measured - before)

    def _free_bytes(self) -> int:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def _measure(self) -> int:
        """The bytes that the folder's files take; a tree too deep to measure counts as endless.

        Code may put a link in the place of a folder at any moment; it is never followed, or
        the watch would spend its time in other places. What is closed to us since we watch
        may hold all that the disk has lost.
        """
        total = 0
        self._closed = frozenset[tuple[str, ...]]()
        waiting: list[tuple[str, ...]] = [()]
        while waiting and not self._is_stopped.is_set():
            parts = waiting.pop()
            if len(parts) > _MAX_DEPTH:
                total += self._limit_bytes
                continue
            try:
                with opened_folder(self._folder, parts) as folder:
                    for name, size in self._entries(folder):
                        total += size
                        if name:
                            waiting.append((*parts, name))
                    if not parts:
                        total += self._unnamed_bytes(os.fstat(folder).st_dev)
            except PermissionError:
                self._closed |= {parts}
            except OSError:
                continue  # it is gone, or no folder any more
        if self._closed - self._closed_at_start:
            total += max(0, self._free_at_start - self._free_bytes())
        return total

    def _entries(self, folder: int) -> Iterator[tuple[str, int]]:
        """What is in an opened folder: its size, and its name if it is a folder itself."""
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    size = max(512, entry.stat(follow_symlinks=False).st_blocks * 512)
                    yield entry.name if entry.is_dir(follow_symlinks=False) else "", size
