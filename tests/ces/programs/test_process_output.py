"""Bytes come in as they are read; whole characters go out."""

from __future__ import annotations

import os
import select
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.ces.programs.process_output import OutputPipe, ReadEnd
from tests.support.executions import LIMIT_SECONDS

SPLITS = st.lists(st.integers(min_value=1, max_value=7), min_size=1)


class Taken:
    """What a pipe passed on."""

    def __init__(self) -> None:
        self.text: list[bytes] = []
        self.binary: list[bytes] = []

    def take(self, _stream: StreamName, data: bytes) -> None:
        self.text.append(data)

    def on_binary(self, _stream: StreamName, data: bytes) -> None:
        self.binary.append(data)


def feed(data: bytes, sizes: list[int], *, replaces: bool) -> Taken:
    """Write bytes in pieces of these sizes, over and over, and read after each."""
    taken = Taken()
    receiver, sender = os.pipe()
    pipe = OutputPipe(
        ReadEnd(receiver), "stdout", taken.take, None if replaces else taken.on_binary
    )
    start = turn = 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        os.write(sender, data[start : start + size])
        pipe.read()
        start, turn = start + size, turn + 1
    os.close(sender)
    pipe.drain()
    assert not pipe.is_open
    return taken


@given(text=st.text("aé€😀\n"), sizes=SPLITS)
def test_text_arrives_in_whole_characters_wherever_it_is_split(text: str, sizes: list[int]) -> None:
    taken = feed(text.encode(), sizes, replaces=False)

    assert "".join(piece.decode() for piece in taken.text) == text
    assert taken.binary == []


@given(data=st.binary(), sizes=SPLITS)
def test_bytes_that_are_no_text_begin_where_the_text_ends(data: bytes, sizes: list[int]) -> None:
    taken = feed(data, sizes, replaces=False)

    assert b"".join(taken.text + taken.binary) == data
    for piece in taken.text:
        piece.decode()
    if taken.binary:
        with pytest.raises(UnicodeDecodeError) as raised:
            data.decode()
        assert len(b"".join(taken.text)) == raised.value.start


@given(data=st.binary(), sizes=SPLITS)
def test_bytes_that_are_no_text_can_be_replaced(data: bytes, sizes: list[int]) -> None:
    taken = feed(data, sizes, replaces=True)

    assert b"".join(taken.text).decode() == data.decode("utf-8", "replace")


def test_what_is_still_on_its_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken()
    receiver, sender = os.pipe()
    is_waiting = threading.Event()

    class Poll:
        """Tells when a reader waits: what is written before that need not be waited for."""

        def __init__(self) -> None:
            self._poll = poll()
            self.register = self._poll.register

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            is_waiting.set()
            return self._poll.poll(milliseconds)

    def write_late() -> None:
        if is_waiting.wait(LIMIT_SECONDS):
            for piece in (b"half ", b"and half"):
                os.write(sender, piece)

    poll = select.poll
    monkeypatch.setattr(select, "poll", Poll)
    pipe = OutputPipe(ReadEnd(receiver, lambda: 13), "stdout", taken.take)
    writer = threading.Thread(target=write_late)
    writer.start()

    pipe.drain()

    is_waiting.set()
    writer.join(LIMIT_SECONDS)
    os.close(sender)
    assert b"".join(taken.text) == b"half and half"
    pipe.close()


def test_a_line_that_breaks_is_the_end() -> None:
    taken = Taken()
    ours, theirs = socket.socketpair()
    pipe = OutputPipe(ReadEnd(ours.detach(), lambda: 10), "stdout", taken.take)
    theirs.send(b"only")
    theirs.close()

    pipe.drain()

    assert not pipe.is_open
    assert taken.text == [b"only"]
