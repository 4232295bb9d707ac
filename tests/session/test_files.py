"""Files given to a session: what is copied, and what is refused instead of waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from taskweaver_ext.errors import SessionError
from taskweaver_ext.session.files import SessionFile, place_file


def test_a_file_or_its_content_is_copied_under_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    (tmp_path / "table.csv").write_bytes(b"a,b\n")

    given: list[SessionFile] = [
        tmp_path / "table.csv",
        str(tmp_path / "table.csv"),
        {"name": "other.csv", "path": tmp_path / "table.csv"},
        {"name": "../../text.txt", "content": "täxt"},
        {"name": "empty"},
    ]
    names = [place_file(folder, file) for file in given]

    assert names == ["table.csv", "table.csv", "other.csv", "text.txt", "empty"]
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert contents == {
        "table.csv": b"a,b\n",
        "other.csv": b"a,b\n",
        "text.txt": "täxt".encode(),
        "empty": b"",
    }


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o644, 0o755])
def test_a_copy_can_be_read_by_no_more_users_than_the_file(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    (tmp_path / "private.csv").write_bytes(b"a,b\n")
    (tmp_path / "private.csv").chmod(mode)

    place_file(folder, tmp_path / "private.csv")

    copy_mode = (folder / "private.csv").stat().st_mode & 0o777
    assert copy_mode & ~(mode | 0o600) == 0
    assert copy_mode & 0o600 == 0o600


def test_a_file_of_the_folder_itself_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"a,b\n")

    place_file(tmp_path, tmp_path / "table.csv")

    assert (tmp_path / "table.csv").read_bytes() == b"a,b\n"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "missing"])
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    os.mkfifo(tmp_path / "pipe")
    sources = {
        "pipe": tmp_path / "pipe",
        "device": Path("/dev/zero"),
        "folder": folder,
        "missing": tmp_path / "nowhere",
    }

    with pytest.raises(SessionError, match="no ordinary file|No such file"):
        place_file(folder, sources[kind])

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "file",
    [
        {"content": b"without a name"},
        {"name": "..", "content": b""},
        {"name": "nul\0", "content": b""},
        {"name": "number", "content": 7},
        "nul\0",
        "x" * 300,
    ],
)
def test_what_cannot_be_a_file_is_refused(tmp_path: Path, file: SessionFile) -> None:
    with pytest.raises(SessionError):
        place_file(tmp_path, file)

    assert list(tmp_path.iterdir()) == []
