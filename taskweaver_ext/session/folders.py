"""The folders that sessions leave behind: how much room they take, and when they go."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from pathlib import Path

from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.session.ownership import claimed_for_removal

SECONDS_PER_DAY = 86_400

_log = logging.getLogger(__name__)


def session_folders(workspace: Path) -> list[Path]:
    """The folders of all sessions of a workspace; links to others are none."""
    try:
        found = (workspace / "sessions").iterdir()
        return sorted(path for path in found if path.is_dir() and not path.is_symlink())
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
        if last_used(folder) < limit and remove_folder(folder):
            _log.info("removed the folder of an old session: %s", folder)
            removed.append(folder)
    return removed


def remove_folder(folder: Path) -> bool:
    """Remove the folder of a session unless a process has it open; say whether it was removed."""
    with claimed_for_removal(folder) as is_ours:
        if is_ours:
            shutil.rmtree(folder, ignore_errors=True)
        return is_ours


def last_used(folder: Path) -> float:
    """When a session last said something, or something was made or removed in its folder."""
    times = [0.0]
    for place in (folder, folder / "cwd", folder / "ces", folder / JOURNAL):
        with contextlib.suppress(OSError):  # it is not there, or has just gone
            times.append(place.stat().st_mtime)
    return max(times)
