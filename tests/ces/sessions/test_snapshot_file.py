"""A snapshot is loaded only if this user has written it, and nobody has changed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from taskweaver_ext.ces.sessions.snapshot_file import (
    SnapshotHeader,
    SnapshotPart,
    opened_snapshot,
    write_snapshot,
)
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.owner_key import read_owner_key

KEY = b"k" * 32
HEADER = SnapshotHeader(
    session_id="s1",
    mode="local",
    created_at=1.0,
    python="CPython 3.11",
    parts=(SnapshotPart(names=("a", "b"), size=5, has_code=False),),
    left_out={"c": "too large"},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "variables.snapshot"
    write_snapshot(path, HEADER, [b"ab", b"cde"], KEY)
    return path


def read(path: Path, key: bytes = KEY, *, trust: bool = False, max_bytes: int = 100) -> bytes:
    with opened_snapshot(path, key, trust=trust, max_bytes=max_bytes, folder=path.parent) as opened:
        assert opened.header == HEADER
        return b"".join(opened.pieces(2))


def test_what_was_written_is_read(path: Path) -> None:
    assert read(path) == b"abcde"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("at", range(0, 300, 7))
def test_a_changed_byte_is_noticed(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1
    path.write_bytes(content)

    with pytest.raises(SessionError):
        read(path)


@pytest.mark.parametrize("trust", [False, True])
def test_a_file_that_was_cut_is_refused_even_if_trusted(path: Path, trust: bool) -> None:
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SessionError):
            read(path, trust=trust)


def test_another_key_needs_trust(path: Path) -> None:
    with pytest.raises(SessionError, match="trust"):
        read(path, b"x" * 32)

    assert read(path, b"x" * 32, trust=True) == b"abcde"


def test_what_others_may_write_needs_trust(path: Path) -> None:
    path.chmod(0o660)

    with pytest.raises(SessionError, match="other users may write"):
        read(path)

    assert read(path, trust=True) == b"abcde"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(SessionError, match="no regular file"):
        read(tmp_path / "pipe", trust=True)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="missing"):
        read(tmp_path / "missing")


def test_a_failure_while_writing_leaves_what_was_there(path: Path) -> None:
    before = path.read_bytes()

    def failing() -> list[bytes]:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_snapshot(path, HEADER, (piece for _ in [1] for piece in failing()), KEY)

    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"

    key = read_owner_key(folder)

    assert len(key) == 32
    assert read_owner_key(folder) == key
    [file] = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_key_that_others_can_read_is_no_key(tmp_path: Path) -> None:
    read_owner_key(tmp_path)
    [file] = tmp_path.iterdir()
    file.chmod(0o644)

    with pytest.raises(OSError, match="remove it"):
        read_owner_key(tmp_path)
