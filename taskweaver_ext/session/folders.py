"""The folders that sessions leave behind: how much room they take, and when they go."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from pathlib import Path
from typing import IO

from taskweaver_ext.machine.private_files import open_private

if sys.platform != "win32":
    import fcntl

SECONDS_PER_DAY = 86_400

_MARK = ".in_use"
"""A file that is locked while a session uses the folder: the lock ends with its process."""

_log = logging.getLogger(__name__)


class FolderInUse:
    """The folder of a living session: it is not taken for an old one until `close`."""

    def __init__(self, folder: Path) -> None:
        self._mark: IO[bytes] | None = None
        try:
            descriptor = open_private(folder / _MARK, os.O_WRONLY | os.O_APPEND)
            self._mark = open(descriptor, "ab")  # noqa: SIM115  closed by `close`
            if sys.platform != "win32":
                fcntl.flock(self._mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:  # a session can do without
            _log.warning("the folder %s cannot be marked as used: %s", folder, error)

    def close(self) -> None:
        """Leave the folder to those that remove old ones."""
        if self._mark is not None:
            self._mark.close()


def session_folders(workspace: Path) -> list[Path]:
    """The folders of all sessions of a workspace."""
    try:
        return sorted(path for path in (workspace / "sessions").iterdir() if path.is_dir())
    except OSError:
        return []


def size_of(folder: Path) -> int:
    """How many bytes the files in a folder take; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue  # it has just gone
    return total


def remove_old_folders(workspace: Path, keep_days: float) -> list[Path]:
    """Remove the folders of sessions that were last used so many days ago; 0 keeps them all."""
    if not keep_days:
        return []
    limit = time.time() - keep_days * SECONDS_PER_DAY
    removed = []
    for folder in session_folders(workspace):
        if last_used(folder) < limit and not is_in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)
            _log.info("removed the folder of an old session: %s", folder)
            removed.append(folder)
    return removed


def last_used(folder: Path) -> float:
    """When something was last made or removed in a session's folder."""
    places = [folder, folder / "cwd", folder / "ces"]
    return max((place.stat().st_mtime for place in places if place.exists()), default=0.0)


def is_in_use(folder: Path) -> bool:
    """Whether a living session works in a folder."""
    if sys.platform == "win32":
        return False
    try:
        with open(folder / _MARK, "rb") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # it was never marked
    return False
