"""A stream that is not text is kept whole: the text before its first odd byte, and all the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.programs.binary_record import BinaryRecord


@pytest.fixture
def record(tmp_path: Path) -> Iterator[BinaryRecord]:
    record = BinaryRecord(tmp_path, "run", max_bytes=10)
    yield record
    record.close()


@pytest.mark.parametrize("is_in_file", [False, True])
def test_the_text_that_came_first_is_put_before_the_rest(
    record: BinaryRecord, tmp_path: Path, is_in_file: bool
) -> None:
    (tmp_path / "text").write_bytes(b"text")
    record.leave_room("stdout", 4)
    record.write("stdout", b"\xff\x00")
    record.write("stdout", b"more")

    path = record.complete("stdout", tmp_path / "text" if is_in_file else b"text")

    assert path.read_bytes() == b"text\xff\x00more"
    assert record.streams == ["stdout"]


def test_what_is_beyond_the_limit_is_not_kept(record: BinaryRecord) -> None:
    record.write("stderr", b"\xff" * 11)
    assert record.limit_reached
    record.write("stderr", b"\xfe")

    assert record.complete("stderr", b"").read_bytes() == b"\xff" * 11


def test_nothing_is_written_through_a_link(record: BinaryRecord, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "run.stdout.bin").symlink_to(victim)

    record.write("stdout", b"\xff")

    with pytest.raises(OSError, match="symbolic links"):
        record.complete("stdout", b"")
    assert victim.read_bytes() == b"precious"
