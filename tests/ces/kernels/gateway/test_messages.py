"""What comes from a gateway is of the right type, or an error with a sentence; nothing else."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from taskweaver_ext.ces.kernels.gateway.messages import (
    ExecuteReply,
    FramesPiece,
    GatewayMessages,
    KernelStatus,
    ShutdownReply,
    StreamText,
)
from taskweaver_ext.ces.kernels.gateway.websocket_messages import (
    BINARY,
    LARGEST_MESSAGE,
    LARGEST_SKIPPED_MESSAGE,
    PING,
    TEXT,
    WebsocketMessage,
    WebsocketReader,
)
from taskweaver_ext.errors import ProtocolError
from tests.support.growth import growth

NO_TEXTS: list[Any] = [None, True, -1, 1.5, [], {}, [{}], 10**30]
NO_OBJECTS: list[Any] = [None, True, -1, 1.5, "x", [], [{}], 10**30]


def text_message(message_type: object, content: object, parent: object | None = None) -> bytes:
    header = {"msg_type": message_type}
    parts = {"header": header, "parent_header": parent or {}, "content": content}
    return json.dumps(parts).encode()


def unpack_text(message_type: object, content: object, parent: object | None = None) -> object:
    return GatewayMessages().unpack(text_message(message_type, content, parent), is_text=True)


def frame(opcode: int, payload: bytes, *, is_last: bool = True, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    head = bytes([opcode | (0x80 if is_last else 0)])
    if size < 126:
        return head + bytes([size]) + payload
    if size < 1 << 16:
        return head + b"\x7e" + size.to_bytes(2, "big") + payload
    return head + b"\x7f" + size.to_bytes(8, "big") + payload


@pytest.mark.parametrize("is_old_protocol", [False, True])
def test_a_message_is_the_same_after_packing_and_unpacking(is_old_protocol: bool) -> None:
    messages = GatewayMessages()
    messages.is_old_protocol = is_old_protocol

    packed = messages.pack("shell", messages.header("stream"), {"name": "stderr", "text": "ü"}, {})

    assert messages.unpack(packed, is_text=is_old_protocol) == StreamText("stderr", "ü")


def test_old_protocols_buffers_are_found() -> None:
    messages = GatewayMessages()
    messages.is_old_protocol = True
    text = text_message("taskweaver_frames", {"start": 1})
    offsets = [12, 12 + len(text)]
    packed = b"".join(n.to_bytes(4, "big") for n in (2, *offsets)) + text + b"frames"

    assert messages.unpack(packed, is_text=False) == FramesPiece(start=1, data=b"frames")


def test_every_kind_of_message_is_understood() -> None:
    parent = {"msg_id": "7"}

    assert unpack_text("status", {"execution_state": "idle"}, parent) == KernelStatus("idle", "7")
    assert unpack_text("shutdown_reply", {}) == ShutdownReply()
    failed = {"status": "error", "ename": "NameError", "evalue": "x"}
    assert unpack_text("execute_reply", failed, parent) == ExecuteReply(
        "7", "error", "NameError: x"
    )
    assert unpack_text("comm_msg", {"data": 1}) is None


@pytest.mark.parametrize("wrong", [None, True, -1, 1.5, "x", [], {}, [{}]], ids=repr)
def test_a_place_in_the_output_is_a_number(wrong: object) -> None:
    with pytest.raises(ProtocolError, match="'start' is no number of bytes"):
        unpack_text("taskweaver_frames", {"start": wrong})


@pytest.mark.parametrize("wrong", NO_TEXTS, ids=repr)
@pytest.mark.parametrize(
    ("message_type", "content", "field"),
    [
        ("taskweaver_frames", {"start": 0}, "answers"),
        ("status", {"execution_state": "idle"}, "execution_state"),
        ("stream", {"name": "stdout", "text": "x"}, "text"),
        ("execute_reply", {"status": "ok"}, "status"),
        ("execute_reply", {"status": "ok"}, "evalue"),
    ],
)
def test_a_text_that_is_none_is_named(
    message_type: str, content: dict[str, Any], field: str, wrong: object
) -> None:
    with pytest.raises(ProtocolError, match=f"'{field}' is no text"):
        unpack_text(message_type, {**content, field: wrong})


@pytest.mark.parametrize("wrong", NO_OBJECTS, ids=repr)
def test_parts_of_the_wrong_type_are_an_error(wrong: object) -> None:
    for message in (
        wrong,
        {"header": wrong},
        {"header": {"msg_type": "status"}, "content": wrong},
        {
            "header": {"msg_type": "status"},
            "content": {"execution_state": "idle"},
            "parent_header": wrong,
        },
    ):
        with pytest.raises(ProtocolError):
            GatewayMessages().unpack(json.dumps(message).encode(), is_text=True)


@pytest.mark.parametrize("wrong", NO_TEXTS, ids=repr)
def test_how_code_says_that_it_ends_may_be_anything(wrong: object) -> None:
    piece = unpack_text("taskweaver_frames", {"start": 0, "ending": {"exit_code": wrong}})

    assert isinstance(piece, FramesPiece)
    assert piece.ending == ({"exit_code": wrong} if type(wrong) is int else {})


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\0" * 8,
        struct.pack("<Q", 1 << 63),
        struct.pack("<7Q", 6, 56, 57, 58, 59, 60, 1 << 63),
        struct.pack("<7Q", 6, 60, 59, 58, 57, 56, 55) + b"{}" * 9,
        struct.pack("<7Q", 6, 56, 156, 256, 356, 456, 556) + b"[" * 500,
        b"[" * 100_000,
    ],
    ids=range(7),
)
@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("is_old_protocol", [False, True])
def test_bytes_that_are_no_message_are_an_error(
    packed: bytes, is_text: bool, is_old_protocol: bool
) -> None:
    messages = GatewayMessages()
    messages.is_old_protocol = is_old_protocol

    with pytest.raises(ProtocolError):
        messages.unpack(packed, is_text=is_text)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_websocket_messages_are_read_at_every_size_of_piece(size: int) -> None:
    data = (
        frame(TEXT, b"one")
        + frame(BINARY, b"t" * 200, is_last=False)
        + frame(PING, b"in between")
        + frame(0, b"wo" * 70_000, is_last=False)
        + frame(0, b"")
        + frame(TEXT, b"")
    )
    reader = WebsocketReader()

    messages = [
        message
        for start in range(0, len(data), size)
        for message in reader.feed(data[start : start + size])
    ]

    assert messages == [
        WebsocketMessage(TEXT, b"one"),
        WebsocketMessage(PING, b"in between"),
        WebsocketMessage(BINARY, b"t" * 200 + b"wo" * 70_000),
        WebsocketMessage(TEXT, b""),
    ]
    assert reader.is_complete


@pytest.mark.parametrize("parts", [1, 3])
def test_a_large_message_is_read_over(parts: int) -> None:
    payload = b"x" * (LARGEST_MESSAGE // 2 + 1)
    pieces = [
        frame(BINARY if number == 0 else 0, payload * (3 // parts), is_last=number == parts - 1)
        for number in range(parts)
    ]
    reader = WebsocketReader()

    messages = reader.feed(b"".join(pieces) + frame(TEXT, b"and the next"))

    assert messages == [WebsocketMessage(TEXT, b"and the next")]


@pytest.mark.parametrize(
    "data",
    [
        frame(BINARY, b"", length=1 << 40),
        frame(BINARY, b"x", is_last=False) + frame(0, b"", length=LARGEST_SKIPPED_MESSAGE),
        frame(0, b"nothing to continue"),
        frame(TEXT, b"not", is_last=False) + frame(TEXT, b"continued"),
        frame(PING, b"x" * 126),
        frame(PING, b"x", is_last=False),
        b"\xf1\x00",
        b"\x81\x80",
        frame(0x3, b"of no kind"),
    ],
    ids=range(9),
)
def test_frames_that_no_server_sends_are_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        WebsocketReader().feed(data)


def test_a_message_in_small_pieces_costs_linear_time() -> None:
    def start() -> Any:  # noqa: ANN401 - a function that takes text
        reader = WebsocketReader()
        reader.feed(frame(BINARY, b"", length=LARGEST_MESSAGE))
        return lambda text: reader.feed(text.encode())

    assert growth(start, ["x" * 10] * 20_000, ["x" * 10] * 40_000) <= 2.5
