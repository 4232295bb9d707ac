"""What is added to a watched folder is counted, however it is hidden."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from taskweaver_ext.ces.execution.files_beneath import opened_folder
from taskweaver_ext.ces.kernels.container import folder_watch
from taskweaver_ext.ces.kernels.container.folder_watch import FolderLimit, FolderSize, FolderWatch
from tests.support.executions import LIMIT_SECONDS


def test_the_watch_counts_what_is_added_and_not_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(bytes(3 << 20))
    reports: list[FolderSize] = []
    has_reported = threading.Event()

    def report(added: FolderSize) -> None:
        reports.append(added)
        has_reported.set()

    watch = FolderWatch(tmp_path, FolderLimit(2 << 20, None), report, "test")
    watch.start()
    watch.has_started.wait(LIMIT_SECONDS)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "after").write_bytes(bytes(4 << 20))
    has_come = has_reported.wait(LIMIT_SECONDS)
    watch.stop()

    assert has_come
    assert 4 << 20 <= reports[0].bytes < 5 << 20


def test_the_watch_follows_no_link_that_took_a_folders_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, elsewhere = tmp_path / "watched", tmp_path / "elsewhere"
    (watched / "folder" / "below").mkdir(parents=True)
    (elsewhere / "below").mkdir(parents=True)
    (elsewhere / "below" / "large").write_bytes(bytes(4 << 20))
    watch = FolderWatch(watched, FolderLimit(1 << 20, None), lambda _added: None, "test")

    def exchange(root: Path, parts: tuple[str, ...]) -> AbstractContextManager[int]:
        if parts == ("folder", "below"):
            (watched / "folder").rename(tmp_path / "taken")
            (watched / "folder").symlink_to(elsewhere)
        return opened_folder(root, parts)

    monkeypatch.setattr(folder_watch, "opened_folder", exchange)

    assert watch._measure().bytes < 1 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_that_code_has_closed_counts_as_what_the_disk_has_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = 10 << 20
    monkeypatch.setattr(FolderWatch, "_free", lambda _watch: FolderSize(free, 0))
    reported = threading.Event()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        for folder in ("closed before", "closed later"):
            (Path(name) / folder).mkdir()
        (Path(name) / "closed before").chmod(0)
        os.chmod(name, 0o755)
        watch = FolderWatch(
            Path(name), FolderLimit(5 << 20, None), lambda _added: reported.set(), "test"
        )
        os.seteuid(65534)  # on all threads
        try:
            watch.start()
            watch.has_started.wait(LIMIT_SECONDS)
            free -= 6 << 20
            is_our_doing = reported.wait(2 * folder_watch._LOOK_SECONDS)
        finally:
            os.seteuid(0)
        (Path(name) / "closed later").chmod(0)
        os.seteuid(65534)
        try:
            free -= 6 << 20
            is_noticed = reported.wait(LIMIT_SECONDS)
        finally:
            os.seteuid(0)
            watch.stop()

    assert not is_our_doing
    assert is_noticed


def test_a_tree_without_end_counts_as_too_large(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path, FolderLimit(1 << 20, None), lambda _added: None, "test")
    (tmp_path / "/".join("d" * 150)).mkdir(parents=True)

    assert watch._measure().bytes > 1 << 20


@pytest.mark.parametrize(
    ("limit", "added", "is_much"),
    [
        (FolderLimit(1 << 30, 1000), FolderSize(200 << 20, 10_000), False),
        (FolderLimit(1 << 30, 1000), FolderSize(300 << 20, 0), True),
        (FolderLimit(4 << 30, 1000), FolderSize(300 << 20, 0), False),
        (FolderLimit(None, 1000), FolderSize(9 << 30, 30_000), True),
        (FolderLimit(4 << 30, None), FolderSize(0, 1_000_000), False),
    ],
)
def test_what_code_adds_in_the_moment_before_it_is_stopped_is_not_much(
    limit: FolderLimit, added: FolderSize, is_much: bool
) -> None:
    assert limit.is_much(added) is is_much
