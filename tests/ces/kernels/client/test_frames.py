"""Frames are understood however they are cut."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.inside.kernel.wire import ENDED, HEADER, HELLO, MESSAGE, STDERR, STDOUT
from taskweaver_ext.ces.kernels.client.frames import FrameReader
from taskweaver_ext.ces.kernels.client.host import (
    ExecutionEnded,
    InputWanted,
    MessageReceived,
    OutputReceived,
    Received,
)
from taskweaver_ext.errors import ProtocolError

Said = tuple[int, int, str]

SAID = st.tuples(
    st.sampled_from([STDOUT, STDERR, MESSAGE, ENDED]),
    st.integers(1, 2),
    st.text("aé€😀\n", max_size=12),
)


def _frame(kind: int, ordinal: int, text: str) -> bytes:
    payload = text.encode()
    if kind == MESSAGE:
        payload = b"display_data\n" + json.dumps({"text": text}).encode()
    if kind == ENDED:
        payload = json.dumps({"text": text}).encode()
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
            return ENDED, received.ordinal, received.reply["text"]
        case _:
            raise AssertionError(received)


@settings(max_examples=300, deadline=None)
@given(said=st.lists(SAID, max_size=12), piece_bytes=st.integers(1, 40))
def test_frames_say_the_same_at_every_chunk_size(said: list[Said], piece_bytes: int) -> None:
    data = b"".join(_frame(*each) for each in said)

    received = _feed(data, piece_bytes)

    assert _with_joined_output(map(_as_said, received)) == _with_joined_output(said)


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
    "payload", [b"{", b"[" * 100_000, b"[]", b"\xff", b""], ids=lambda payload: str(payload[:5])
)
@pytest.mark.parametrize("kind", [MESSAGE, ENDED, HELLO])
def test_a_message_that_makes_no_sense_is_refused(kind: int, payload: bytes) -> None:
    content = b"display_data\n" + payload if kind == MESSAGE else payload

    with pytest.raises(ProtocolError, match="no JSON"):
        _feed(HEADER.pack(kind, 1, len(content)) + content, len(content) + HEADER.size)
