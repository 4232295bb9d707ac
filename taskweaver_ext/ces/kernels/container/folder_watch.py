"""Watch what code adds to its working directory, whatever it does to hide it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from taskweaver_ext.ces.execution.files_beneath import opened_folder

_LOOK_SECONDS = 0.5
_QUICK_LOOK_SECONDS = 0.05
"""While the disk is being filled."""
_MEASURE_SECONDS = 10.0
_MAX_DEPTH = 100
"""Honest folders are not nested deeper, and a look takes longer the deeper they are."""


class FolderSize(NamedTuple):
    """How much room files take, and how many files and folders there are."""

    bytes: int
    files: int

    def plus(self, other: FolderSize) -> FolderSize:
        """Both together."""
        return FolderSize(self.bytes + other.bytes, self.files + other.files)

    def minus(self, other: FolderSize) -> FolderSize:
        """What this is more than the other; below zero where it is less."""
        return FolderSize(self.bytes - other.bytes, self.files - other.files)


_MOMENT = FolderSize(256 << 20, 20_000)


class FolderLimit(NamedTuple):
    """What may be added to a folder; None means no limit."""

    bytes: int | None
    files: int | None

    def share(self, size: FolderSize) -> float:
        """How much of the limit this is: above 1 is too much."""
        pairs = ((size.bytes, self.bytes), (size.files, self.files))
        return max((used / limit for used, limit in pairs if limit is not None), default=0.0)

    def is_much(self, size: FolderSize) -> bool:
        """Whether this is more than what code adds in the moment that it takes to be stopped."""
        moment = FolderLimit(
            None if self.bytes is None else max(self.bytes // 4, _MOMENT.bytes),
            None if self.files is None else max(self.files // 4, _MOMENT.files),
        )
        return moment.share(size) > 1


NO_LIMIT = FolderLimit(None, None)


class FolderWatch:
    """Watch how much is added to a folder, and call back when that is too much.

    Threads:
        A thread of its own, which ends with `stop`. `on_too_much` is called
        on it with what was added, each time that has grown past the limit.
    """

    def __init__(
        self,
        folder: Path,
        limit: FolderLimit,
        on_too_much: Callable[[FolderSize], None],
        name: str,
        *,
        unnamed_files: Callable[[int], FolderSize] | None = None,
    ) -> None:
        """A watch that has not begun.

        Args:
            unnamed_files: Says what files on a device take that are in no folder any more.
        """
        self._unnamed_files = unnamed_files
        self._folder = folder
        self._limit = limit
        self._on_too_much = on_too_much
        self._free_at_start = FolderSize(0, 0)
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
        self._free_at_start = free = seen = self._free()
        before = measured = self._measure()
        self._closed_at_start = self._closed
        measured_at, seconds = time.monotonic(), 0.0
        self.has_started.set()
        look_seconds = _LOOK_SECONDS
        while not self._is_stopped.wait(look_seconds):
            # Looking at the free space costs nothing; only a loss of it can be our growth.
            last_seen, seen = seen, self._free()
            is_filled = self._limit.share(last_seen.minus(seen)) > 0.01
            look_seconds = _QUICK_LOOK_SECONDS if is_filled else _LOOK_SECONDS
            room = max(0.0, 1.0 - self._limit.share(measured.minus(before)))
            has_room = self._limit.share(free.minus(seen)) < room / 2
            pause = max(_MEASURE_SECONDS, 10 * seconds) if has_room else seconds
            if time.monotonic() - measured_at < pause:
                continue
            started = time.monotonic()
            last, measured = measured, self._measure()
            free, measured_at = self._free(), time.monotonic()
            seconds = measured_at - started
            has_grown = self._limit.share(measured.minus(last)) > 0
            if has_grown and self._limit.share(measured.minus(before)) > 1:
                self._on_too_much(measured.minus(before))

    def _free(self) -> FolderSize:
        """What the folder's disk has left; some file systems do not count files."""
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return FolderSize(0, 0)
        return FolderSize(found.f_bavail * found.f_frsize, found.f_ffree)

    def _measure(self) -> FolderSize:
        """What the folder's files take; a tree too deep to measure counts as endless.

        Code may put a link in the place of a folder at any moment; it is never followed, or
        the watch would spend its time in other places. What is closed to us since we watch
        may hold all that the disk has lost.
        """
        total = FolderSize(0, 0)
        self._closed = frozenset[tuple[str, ...]]()
        waiting: list[tuple[str, ...]] = [()]
        while waiting and not self._is_stopped.is_set():
            parts = waiting.pop()
            if len(parts) > _MAX_DEPTH:
                total = total.plus(FolderSize(self._limit.bytes or 0, self._limit.files or 0))
                continue
            try:
                with opened_folder(self._folder, parts) as folder:
                    for name, size in self._entries(folder):
                        total = total.plus(FolderSize(size, 1))
                        if name:
                            waiting.append((*parts, name))
                    if not parts and self._unnamed_files is not None:
                        total = total.plus(self._unnamed_files(os.fstat(folder).st_dev))
            except PermissionError:
                self._closed |= {parts}
            except OSError:
                continue  # it is gone, or no folder any more
        if self._closed - self._closed_at_start:
            lost = self._free_at_start.minus(self._free())
            total = total.plus(FolderSize(max(0, lost.bytes), max(0, lost.files)))
        return total

    def _entries(self, folder: int) -> Iterator[tuple[str, int]]:
        """What is in an opened folder: its size, and its name if it is a folder itself."""
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    size = max(512, entry.stat(follow_symlinks=False).st_blocks * 512)
                    yield entry.name if entry.is_dir(follow_symlinks=False) else "", size
