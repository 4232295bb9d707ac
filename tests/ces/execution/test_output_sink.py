"""The record is whole on disk, bounded in memory, and honest about what is missing."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import StreamName

MEMORY = 1000


def test_a_small_output_stays_in_memory(tmp_path: Path) -> None:
    sink = OutputSink(tmp_path / "output", "e1")
    sink.write("stdout", b"one\n")
    sink.write("stderr", b"two\n")

    record = sink.finish()

    assert (record.stdout, record.stderr) == (["one\n"], ["two\n"])
    assert record.full_output_paths == {}
    assert record.notices == []
    assert not (tmp_path / "output").exists()


def test_a_record_on_disk_has_each_piece_before_the_next_comes(tmp_path: Path) -> None:
    sink = OutputSink(tmp_path, "e1", memory_bytes=10, is_on_disk=True)
    written = ""
    for piece in ("a", "é", "long enough to be cut in memory", "b"):
        assert sink.write("stdout", piece.encode()) == len(written.encode())
        written += piece
        assert (tmp_path / "e1.stdout").read_text() == written

    assert sink.finish().full_output_paths == {"stdout": tmp_path / "e1.stdout"}


def test_a_short_record_on_disk_changes_nothing_in_the_result(tmp_path: Path) -> None:
    for folder in (tmp_path, Path("/dev/full")):
        sink = OutputSink(folder, "e1", is_on_disk=True)
        sink.write("stdout", b"one\n")

        record = sink.finish()

        assert (record.stdout, record.full_output_paths, record.notices) == (["one\n"], {}, [])


def test_a_large_output_is_whole_in_its_file_and_cut_at_lines_in_memory(tmp_path: Path) -> None:
    lines = [f"line {i}\n" for i in range(1000)]
    sink = OutputSink(tmp_path, "e1", memory_bytes=MEMORY)
    for line in lines:
        sink.write("stdout", line.encode())
    sink.write("stderr", b"warning\n")

    record = sink.finish()

    head, tail = record.stdout
    assert (tmp_path / "e1.stdout").read_text() == "".join(lines)
    assert record.full_output_paths == {"stdout": tmp_path / "e1.stdout"}
    assert "".join(lines).startswith(head)
    assert "".join(lines).endswith(tail)
    assert head.endswith("\n")
    assert tail.startswith("line ")
    assert len(head) + len(tail) <= MEMORY
    assert record.stderr == ["warning\n"]
    missing = len("".join(lines)) - len(head) - len(tail)
    (notice,) = record.notices
    assert notice.kind == "truncated"
    assert f"{missing:,} of {len(''.join(lines)):,} bytes of stdout" in notice.message
    assert str(tmp_path / "e1.stdout") in notice.message


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("aé😀\n", min_size=1)), max_size=60
    )
)
def test_nothing_is_lost_and_no_character_is_cut(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[StreamName, str]]
) -> None:
    folder = tmp_path_factory.mktemp("sink")
    sink = OutputSink(folder, "e1", memory_bytes=60)
    for stream, text in pieces:
        sink.write(stream, text.encode())

    record = sink.finish()

    kept_texts: dict[StreamName, list[str]] = {"stdout": record.stdout, "stderr": record.stderr}
    for stream, kept in kept_texts.items():
        whole = "".join(text for name, text in pieces if name == stream)
        path = folder / f"e1.{stream}"
        if "".join(kept) != whole:
            assert path.read_text() == whole
            assert record.full_output_paths[stream] == path
        assert "\ufffd" not in "".join(kept)
        if len(kept) == 2:
            assert whole.startswith(kept[0])
            assert whole.endswith(kept[1])
        elif kept:  # the head or the tail had no room for a character
            assert whole.startswith(kept[0]) or whole.endswith(kept[0])
    assert sum(len(text.encode()) for text in record.stdout + record.stderr) <= 60


def test_memory_does_not_grow_with_the_output(tmp_path: Path) -> None:
    sink = OutputSink(tmp_path, "e1", memory_bytes=1 << 16)
    piece = b"x" * 4096
    tracemalloc.start()
    for _ in range(5000):
        sink.write("stdout", piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sink.finish()

    assert (tmp_path / "e1.stdout").stat().st_size == 5000 * 4096
    assert peak < 1 << 19


def test_what_was_spilled_can_be_read_back(tmp_path: Path) -> None:
    sink = OutputSink(tmp_path, "e1", memory_bytes=10)
    offsets = [sink.write("stdout", f"piece {i};".encode()) for i in range(10)]

    assert sink.is_on_disk
    assert sink.read("stdout", offsets[7], 8) == b"piece 7;"
    sink.close()


def test_a_full_disk_is_reported_and_the_code_goes_on() -> None:
    sink = OutputSink(Path("/dev/full"), "e1", memory_bytes=100)
    for i in range(100):
        sink.write("stdout", f"line {i}\n".encode())

    record = sink.finish()

    assert record.full_output_paths == {}
    assert record.stdout[0].startswith("line 0\n")
    assert record.stdout[-1].endswith("line 99\n")
    kinds = [notice.kind for notice in record.notices]
    assert kinds == ["truncated", "record_failed"]
    assert "bytes are lost" in record.notices[1].message
    assert not sink.is_on_disk


def test_a_disk_that_fills_up_on_the_way_is_reported(tmp_path: Path) -> None:
    sink = OutputSink(tmp_path, "e1", memory_bytes=10)
    (tmp_path / "e1.stdout").symlink_to("/dev/full")  # refused: a record follows no link
    sink.write("stdout", b"more than ten bytes")

    record = sink.finish()

    assert record.notices[-1].kind == "record_failed"


def test_the_limit_is_noticed(tmp_path: Path) -> None:
    sink = OutputSink(tmp_path, "e1", max_bytes=10)
    sink.write("stdout", b"12345")
    before = sink.limit_reached
    sink.write("stderr", b"123456")
    after = sink.limit_reached

    assert (before, after) == (False, True)
    sink.close()


def test_files_are_private(tmp_path: Path) -> None:
    sink = OutputSink(tmp_path / "output", "e1", memory_bytes=1)
    sink.write("stdout", b"secret")
    sink.close()

    assert (tmp_path / "output").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "output" / "e1.stdout").stat().st_mode & 0o777 == 0o600
