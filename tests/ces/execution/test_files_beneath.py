"""Files are reached beneath a folder only, whatever is put in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from taskweaver_ext.ces.execution import files_beneath
from taskweaver_ext.ces.execution.files_beneath import (
    list_files,
    open_beneath,
    regular_file_beneath,
)


def test_a_folder_exchanged_for_a_link_in_the_last_moment_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("secret")
    folder = tmp_path / "session"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file.txt").write_text("mine")
    look = files_beneath._refuse_link

    def look_and_exchange(status: os.stat_result, path: str) -> None:
        look(status, path)
        if (folder / "sub").is_dir() and not (folder / "sub").is_symlink():
            (folder / "sub").rename(folder / "moved")
            (folder / "sub").symlink_to(outside)

    monkeypatch.setattr(files_beneath, "_refuse_link", look_and_exchange)

    with pytest.raises(OSError, match="sub"):
        open_beneath(folder, "sub/file.txt")


def test_a_file_exchanged_for_a_pipe_in_the_last_moment_neither_opens_nor_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("mine")
    look = files_beneath._refuse_special

    def look_and_exchange(status: os.stat_result, name: str) -> None:
        look(status, name)
        if path.is_file():
            path.unlink()
            os.mkfifo(path)

    monkeypatch.setattr(files_beneath, "_refuse_special", look_and_exchange)
    descriptors_before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(OSError, match="no regular file"):
        open_beneath(tmp_path, "file.txt")

    assert len(os.listdir("/proc/self/fd")) == descriptors_before


def test_an_opened_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("content")

    with open(open_beneath(tmp_path, "a/b.txt"), encoding="utf-8") as file:
        assert file.read() == "content"


def test_without_descriptors_of_folders_links_are_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", set())
    (tmp_path / "file.txt").write_text("content")
    (tmp_path / "link.txt").symlink_to("file.txt")

    os.close(open_beneath(tmp_path, "file.txt"))
    with pytest.raises(OSError, match="through a link"):
        open_beneath(tmp_path, "link.txt")
    with pytest.raises(FileNotFoundError):
        open_beneath(tmp_path, "missing.txt")


def test_huge_and_deep_folders_are_listed_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_beneath, "MAX_LISTED_FILES", 5)
    deep = tmp_path / "deep"
    (deep / "/".join("d" * 40)).mkdir(parents=True)
    (deep / "/".join("d" * 40) / "x").touch()
    for number in range(6):
        (tmp_path / f"{number}").touch()

    listing = list_files(tmp_path)

    assert len(listing.files) == 5
    assert not listing.is_complete
    assert list_files(deep).files == {}
    assert list_files(tmp_path / "missing").files == {}


@pytest.mark.parametrize("path", ["file.txt", "./file.txt", "sub/../file.txt"])
def test_a_file_is_found_however_its_path_was_written(path: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file.txt").touch(mode=0)

    assert regular_file_beneath(tmp_path, path) == tmp_path / "file.txt"
    assert regular_file_beneath(tmp_path, str(tmp_path / path)) == tmp_path / "file.txt"


@pytest.mark.parametrize(
    "path", ["", ".", "..", "missing", "sub", "link.txt", "linked/file.txt", "pipe", "/etc/passwd"]
)
def test_what_is_no_file_of_the_folder_is_not_found(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file.txt").touch()
    (folder / "link.txt").symlink_to(folder / "sub" / "file.txt")
    (folder / "linked").symlink_to(folder / "sub")
    os.mkfifo(folder / "pipe")
    descriptors_before = len(os.listdir("/proc/self/fd"))

    assert regular_file_beneath(folder, path) is None
    assert len(os.listdir("/proc/self/fd")) == descriptors_before
