"""Folders of sessions are measured, and go when they are told to."""

from __future__ import annotations

import os
import time
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.session.folders import (
    SECONDS_PER_DAY,
    remove_old_folders,
    session_folders,
    size_of,
)
from taskweaver_ext.session.ownership import SessionLock


def _session(workspace: Path, name: str, age_days: float) -> Path:
    folder = workspace / "sessions" / name
    (folder / "cwd").mkdir(parents=True)
    (folder / "cwd" / "data").write_bytes(b"x" * 1000)
    _make_old(folder, age_days)
    return folder


def _make_old(folder: Path, age_days: float = 10) -> None:
    moment = time.time() - age_days * SECONDS_PER_DAY
    for place in (*folder.iterdir(), folder):
        os.utime(place, (moment, moment))


def test_only_what_was_not_used_for_long_enough_is_removed(tmp_path: Path) -> None:
    old = _session(tmp_path, "old", 10)
    young = _session(tmp_path, "young", 2)

    removed = remove_old_folders(tmp_path, 7)

    assert removed == [old]
    assert session_folders(tmp_path) == [young]


def test_the_folder_of_a_living_session_stays(tmp_path: Path) -> None:
    old = _session(tmp_path, "old", 10)
    lock = SessionLock(old)
    _make_old(old)

    kept = remove_old_folders(tmp_path, 7)
    lock.close()
    removed = remove_old_folders(tmp_path, 7)

    assert kept == []
    assert removed == [old]


def test_a_session_keeps_its_folder_from_other_programs(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path) as app:
        folder = app.get_session().session_dir
        _make_old(folder)
        workspace = app.config.workspace.workspace_path
        assert remove_old_folders(workspace, 7) == []

    _make_old(folder)
    assert remove_old_folders(workspace, 7) == [folder]


def test_nothing_is_removed_without_a_limit(tmp_path: Path) -> None:
    old = _session(tmp_path, "old", 1000)

    assert remove_old_folders(tmp_path, 0) == []
    assert session_folders(tmp_path) == [old]


def test_a_folders_size_does_not_count_what_links_lead_to(tmp_path: Path) -> None:
    folder = _session(tmp_path, "s", 0)
    (folder / "cwd" / "link").symlink_to("/bin/bash")

    assert 1000 <= size_of(folder) < 2000


def test_a_workspace_that_is_not_there_has_no_sessions(tmp_path: Path) -> None:
    assert session_folders(tmp_path / "nowhere") == []
