"""A late caller hears everything, in order, and costs no memory for being late."""

from __future__ import annotations

import threading
import tracemalloc
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.delivery import Delivery, OutputTexts
from taskweaver_ext.ces.execution.events import DisplayProduced, OutputCleared
from taskweaver_ext.ces.execution.output_runs import STREAMS, OutputRuns
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName


class Line:
    """A delivery over a record, fed as the reader feeds it."""

    def __init__(self, folder: Path, *, is_on_disk: bool = False) -> None:
        self.sink = OutputSink(folder, "e1", is_on_disk=is_on_disk)
        self.delivery = Delivery(self.sink)

    def write(self, stream: StreamName, text: str) -> None:
        self.write_bytes(stream, text.encode())

    def write_bytes(self, stream: StreamName, data: bytes) -> None:
        offsets = self.sink.sizes
        self.sink.write(stream, data)
        self.delivery.put_output(stream, data, offsets)

    def write_runs(self, runs: OutputRuns) -> None:
        offsets = self.sink.sizes
        for stream, data in zip(STREAMS, runs.data, strict=True):
            self.sink.write(stream, data)
        self.delivery.put_runs(runs, offsets)

    def take(self, timeout: float = 1) -> list[object]:
        """What is received next: an event, or pieces of text as (stream, text)."""
        item = self.delivery.receive(timeout)
        if not isinstance(item, OutputTexts):
            return [item]
        pieces = list(item)
        if self.sink.is_on_disk:
            for stream, text, offset, size in pieces:
                assert self.sink.read(stream, offset, size).decode("utf-8", "replace") == text
        return [(stream, text) for stream, text, _, _ in pieces]

    def take_all(self) -> list[object]:
        self.delivery.finish()
        taken: list[object] = []
        while not self.delivery.is_drained:
            taken += self.take()
        return taken


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path)
    yield line
    line.delivery.close()
    line.sink.close()


def _runs(taken: Iterable[object]) -> list[tuple[str, str]]:
    """Join neighbouring pieces of one stream."""
    runs: list[tuple[str, str]] = []
    for item in taken:
        assert isinstance(item, tuple)
        stream, text = item
        if runs and runs[-1][0] == stream:
            runs[-1] = (stream, runs[-1][1] + text)
        else:
            runs.append((stream, text))
    return runs


def _output_runs(*pieces: str) -> OutputRuns:
    """Texts of stdout and stderr in turn."""
    encoded = [piece.encode() for piece in pieces]
    data = b"".join(encoded[0::2]), b"".join(encoded[1::2])
    return OutputRuns(array("I", map(len, encoded)), data)


def test_pictures_that_wait_take_no_memory_and_keep_their_place(line: Line) -> None:
    def picture(number: int) -> DisplayProduced:
        bundle = {"image/png": str(number % 10) * (1 << 22)}
        return DisplayProduced(execution_id=ExecutionId("e1"), bundle=bundle)

    tracemalloc.start()
    try:
        for number in range(40):
            line.delivery.put(picture(number), 1 << 22)
            line.write("stdout", f"{number}\n")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    line.delivery.finish()
    for number in range(40):
        assert line.take() == [picture(number)]
        assert line.take() == [("stdout", f"{number}\n")]

    assert line.delivery.is_drained
    assert held < 32 << 20  # of 160 MB


def test_output_and_events_keep_their_order(line: Line) -> None:
    cleared = OutputCleared(execution_id=ExecutionId("e1"))
    line.write("stdout", "a")
    line.delivery.put(cleared)
    line.write("stdout", "b")

    assert line.take_all() == [("stdout", "a"), cleared, ("stdout", "b")]


def test_a_late_caller_is_fed_from_the_record(line: Line) -> None:
    expected: list[tuple[str, str]] = []
    for i in range(400):
        stream: StreamName = "stdout" if i % 2 else "stderr"
        text = f"{i}:" + "é" * 9000
        line.write(stream, text)
        expected.append((stream, text))

    assert _runs(line.take_all()) == expected


def test_being_late_costs_no_memory(line: Line) -> None:
    piece = "x" * 4096
    for _ in range(600):  # fills what may be held
        line.write("stdout", piece)
    tracemalloc.start()
    for _ in range(5000):
        line.write("stdout", piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 4 << 20
    assert sum(len(text) for _, text in _runs(line.take_all())) == 5600 * 4096


def test_many_changes_of_stream_cost_little_memory_while_late(line: Line) -> None:
    for _ in range(600):
        line.write("stdout", "x" * 4096)
    tracemalloc.start()
    for _ in range(50_000):
        line.write("stdout", "a")
        line.write("stderr", "b")
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    runs = _runs(line.take_all())
    assert current < 6 << 20
    assert runs[1:11] == [("stderr", "b"), ("stdout", "a")] * 5
    assert len(runs) == 100_000


def test_runs_join_what_waits_before_them(line: Line) -> None:
    line.write("stderr", "a")
    line.write_runs(_output_runs("", "b", "c"))
    line.write_runs(_output_runs("d", "e"))
    line.write_runs(_output_runs("f"))
    line.write("stderr", "g")

    assert line.take_all() == [
        ("stderr", "ab"),
        ("stdout", "cd"),
        ("stderr", "e"),
        ("stdout", "f"),
        ("stderr", "g"),
    ]


def test_what_was_not_given_yet_is_counted(line: Line) -> None:
    line.write_runs(_output_runs("a", "bé", "ccc"))

    texts = line.delivery.receive(1)

    assert isinstance(texts, OutputTexts)
    assert [(piece.text, texts.left_bytes) for piece in texts] == [("a", 6), ("bé", 3), ("ccc", 0)]


def test_half_a_character_in_the_record_does_not_hold_up_a_late_caller(line: Line) -> None:
    for _ in range(600):
        line.write("stdout", "x" * 4096)
    line.write_bytes("stderr", "é".encode()[:1])
    line.write("stdout", "end")

    assert line.take_all()[-2:] == [("stderr", "\N{REPLACEMENT CHARACTER}"), ("stdout", "end")]


def test_beyond_what_is_remembered_only_the_order_is_lost(line: Line) -> None:
    for _ in range(600):
        line.write("stdout", "x" * 4096)
    pieces = ["a", "b"] * 30_000
    for _ in range(18):
        line.write_runs(_output_runs("", *pieces))
    line.write("stdout", "c")

    runs = _runs(line.take_all())

    assert len(runs) < 1_200_000
    assert sum(len(text) for stream, text in runs if stream == "stdout") == 600 * 4096 + 540_001
    assert sum(len(text) for stream, text in runs if stream == "stderr") == 540_000


def test_a_place_in_the_record_is_right_after_bytes_that_are_no_text(tmp_path: Path) -> None:
    line = Line(tmp_path, is_on_disk=True)
    line.write_bytes("stdout", b"a\xff\xfe")
    first = line.take()
    line.write_bytes("stdout", b"\xffb")  # `take` compares with the record

    assert first + line.take_all() == [("stdout", "a\ufffd\ufffd"), ("stdout", "\ufffdb")]
    line.sink.close()


@settings(max_examples=50, deadline=None)
@given(
    is_on_disk=st.booleans(),
    pieces=st.lists(
        st.tuples(
            st.sampled_from(["stdout", "stderr"]), st.integers(1, 200_000), st.sampled_from("aé😀")
        ),
        max_size=40,
    ),
    takes=st.lists(st.integers(0, 3), max_size=40),
)
def test_whenever_the_caller_comes_it_hears_all(
    tmp_path_factory: pytest.TempPathFactory,
    is_on_disk: bool,
    pieces: list[tuple[StreamName, int, str]],
    takes: list[int],
) -> None:
    line = Line(tmp_path_factory.mktemp("delivery"), is_on_disk=is_on_disk)
    taken: list[object] = []
    written: list[tuple[str, str]] = []
    for index, (stream, count, character) in enumerate(pieces):
        if index % 3 == 2:
            other = pieces[index - 1][2]
            runs = (character * count, other, character, other * 3)
            line.write_runs(_output_runs(*runs))
            written += zip(STREAMS * 2, runs, strict=True)
        else:
            line.write(stream, character * count)
            written.append((stream, character * count))
        for _ in range(takes[index] if index < len(takes) else 0):
            taken += [item for item in line.take(0) if item is not None]
    taken += line.take_all()
    line.sink.close()

    assert _runs(taken) == _runs(written)
    assert line.delivery.waiting_bytes == 0


def test_a_waiting_caller_is_woken(line: Line) -> None:
    taken: list[object] = []
    caller = threading.Thread(target=lambda: taken.extend(line.take(30)))
    caller.start()

    line.write("stdout", "now")
    caller.join(30)

    assert taken == [("stdout", "now")]


def test_the_end_wakes_a_waiting_caller(line: Line) -> None:
    taken: list[object] = []
    caller = threading.Thread(target=lambda: taken.append(line.delivery.receive(30)))
    caller.start()

    line.delivery.finish()
    caller.join(30)

    assert taken == [None]
    assert line.delivery.is_drained
