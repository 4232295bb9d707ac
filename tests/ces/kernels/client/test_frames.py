"""Frames are understood however they are cut."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.output_runs import STREAMS
from taskweaver_ext.ces.inside.kernel.wire import (
    ENDED,
    HEADER,
    HELLO,
    MESSAGE,
    RUN_COUNT,
    RUNS,
    STDERR,
    STDOUT,
)
from taskweaver_ext.ces.kernels.client.frames import FrameReader
from taskweaver_ext.ces.kernels.client.host import (
    ExecutionEnded,
    InputWanted,
    MessageReceived,
    OutputReceived,
    Received,
    RunsReceived,
)
from taskweaver_ext.errors import ProtocolError

Said = tuple[int, int, str]

TEXT = st.text("aé€😀\n", max_size=12)
SAID = st.tuples(
    st.sampled_from([STDOUT, STDERR, MESSAGE, ENDED]),
    st.integers(1, 2),
    TEXT,
)


def _frame(kind: int, ordinal: int, text: str) -> bytes:
    payload = text.encode()
    if kind == MESSAGE:
        payload = b"display_data\n" + json.dumps({"text": text}).encode()
    if kind == ENDED:
        payload = json.dumps({"status": "error", "evalue": text}).encode()
    return HEADER.pack(kind, ordinal, len(payload)) + payload


def _feed(data: bytes, piece_bytes: int) -> list[Received]:
    reader = FrameReader()
    pieces = (data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes))
    return [received for piece in pieces for received in reader.feed(piece)]


def _with_joined_output(said: Iterable[Said]) -> list[Said]:
    """Make neighbours of one stream into one."""
    joined: list[Said] = []
    for kind, ordinal, text in said:
        is_output = kind in (STDOUT, STDERR)
        if is_output and not text:
            continue
        if is_output and joined and joined[-1][:2] == (kind, ordinal):
            joined[-1] = (kind, ordinal, joined[-1][2] + text)
        else:
            joined.append((kind, ordinal, text))
    return joined


def _as_said(received: Received) -> Said:
    match received:
        case OutputReceived():
            kind = STDOUT if received.stream == "stdout" else STDERR
            return kind, received.ordinal, received.data.decode()  # whole characters, always
        case MessageReceived():
            return MESSAGE, received.ordinal, received.content["text"]
        case ExecutionEnded():
            return ENDED, received.ordinal, received.reply.error_text
        case _:
            raise AssertionError(received)


@settings(max_examples=300, deadline=None)
@given(said=st.lists(SAID, max_size=12), piece_bytes=st.integers(1, 40))
def test_frames_say_the_same_at_every_chunk_size(said: list[Said], piece_bytes: int) -> None:
    data = b"".join(_frame(*each) for each in said)

    received = _feed(data, piece_bytes)

    assert _with_joined_output(map(_as_said, received)) == _with_joined_output(said)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=12), piece_bytes=st.integers(1, 40))
def test_runs_of_both_streams_keep_their_order(texts: list[str], piece_bytes: int) -> None:
    pieces = [text.encode() for text in texts]
    (received,) = _feed(
        _runs_frame(map(len, pieces), b"".join(pieces[::2] + pieces[1::2])), piece_bytes
    )

    assert isinstance(received, RunsReceived)
    assert list(received.runs) == [
        (STREAMS[index % 2], piece) for index, piece in enumerate(pieces) if piece
    ]


@pytest.mark.parametrize(
    "lengths", [[], [1], [3, 2, 1], [0xFFFFFFFF] * 3], ids=lambda lengths: str(lengths)[:12]
)
def test_runs_of_other_lengths_than_announced_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ProtocolError, match="runs of output"):
        _feed(_runs_frame(lengths, b"abcde"), 1000)


def test_more_runs_than_there_are_lengths_are_refused() -> None:
    payload = RUN_COUNT.pack(0xFFFFFFFF) + b"abc"

    with pytest.raises(ProtocolError, match="runs of output"):
        _feed(HEADER.pack(RUNS, 1, len(payload)) + payload, 1000)


def _runs_frame(lengths: Iterable[int], text: bytes) -> bytes:
    packed = [RUN_COUNT.pack(length) for length in lengths]
    payload = RUN_COUNT.pack(len(packed)) + b"".join(packed) + text
    return HEADER.pack(RUNS, 1, len(payload)) + payload


def test_neighbours_of_one_stream_come_as_one_piece() -> None:
    data = b"".join(_frame(STDOUT, 1, f"{number}\n") for number in range(1000))

    received = _feed(data, len(data))

    assert len(received) == 1


def test_output_is_given_before_its_frame_is_complete() -> None:
    frame = _frame(STDOUT, 1, "x" * 1000)

    (received,) = FrameReader().feed(frame[:-1])

    assert isinstance(received, OutputReceived)
    assert received.data == b"x" * 999


def test_a_question_is_understood() -> None:
    payload = b'input_request\n{"prompt": "name?", "password": true}'
    frame = HEADER.pack(MESSAGE, 1, len(payload)) + payload

    assert _feed(frame, 7) == [InputWanted("name?", True)]


def test_a_message_that_would_fill_our_memory_is_refused() -> None:
    with pytest.raises(ProtocolError, match="268,435,457 bytes"):
        _feed(HEADER.pack(MESSAGE, 1, (1 << 28) + 1), 100)


@pytest.mark.parametrize(
    "payload", [b"{", b"[" * 50_000, b"[]", b"\xff", b""], ids=lambda payload: str(payload[:5])
)
@pytest.mark.parametrize("kind", [MESSAGE, ENDED, HELLO])
def test_a_message_that_makes_no_sense_is_refused(kind: int, payload: bytes) -> None:
    content = b"display_data\n" + payload if kind == MESSAGE else payload

    with pytest.raises(ProtocolError, match="no JSON"):
        _feed(HEADER.pack(kind, 1, len(content)) + content, len(content) + HEADER.size)
