"""Read websocket messages from bytes, cut anywhere; a server that lies fills no memory.

Pure: bytes in, messages out. Messages that are larger than any that matters to us
are read over, so that code may send what it likes to other clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskweaver_ext.errors import ProtocolError

LARGEST_MESSAGE = 1 << 20
"""Bytes; a piece of a kernel's output has 262,144, and a little around it."""

LARGEST_SKIPPED_MESSAGE = 1 << 28
"""Bytes that are read over; a server that announces more makes no sense."""

CONTINUATION, TEXT, BINARY = 0x0, 0x1, 0x2
CLOSE, PING, PONG = 0x8, 0x9, 0xA

_CONTROL = (CLOSE, PING, PONG)
_LARGEST_CONTROL = 125
_IS_LAST = 0x80
_RESERVED = 0x70
_IS_MASKED = 0x80
_LENGTH_BYTES = {126: 2, 127: 8}
"""How many bytes the length has, if it does not fit where it would be."""


@dataclass(frozen=True, slots=True)
class WebsocketMessage:
    """A message, whatever number of frames it came in; `opcode` says of which kind."""

    opcode: int
    data: bytes


class WebsocketReader:
    """Make bytes into messages; raises ProtocolError for what no server sends."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._frame_opcode = CONTINUATION
        self._frame_is_last = True
        self._frame_left: int | None = None
        """How many bytes of a frame are still to come; None where its head is."""
        self._control = bytearray()
        self._opcode = CONTINUATION
        """Of the message whose frames are coming; CONTINUATION between two messages."""
        self._message = bytearray()
        self._message_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether all that has begun to arrive has arrived to its end."""
        is_between = self._frame_left is None and self._opcode == CONTINUATION
        return is_between and not self._received

    def feed(self, data: bytes) -> list[WebsocketMessage]:
        """Read the next bytes and return the messages that are complete with them."""
        self._received += data
        messages: list[WebsocketMessage] = []
        while self._frame_left is not None or self._read_head():
            if not self._read_payload():
                break
            if self._frame_opcode in _CONTROL:
                messages.append(WebsocketMessage(self._frame_opcode, bytes(self._control)))
                self._control.clear()
            elif self._frame_is_last:
                messages += self._end_message()
        return messages

    def _read_head(self) -> bool:
        """Read how a frame begins; False when that is not there yet."""
        received = self._received
        if len(received) < 2:
            return False
        if received[0] & _RESERVED or received[1] & _IS_MASKED:
            raise _nonsense("a frame as no server sends it")
        length = received[1]
        head_bytes = 2 + _LENGTH_BYTES.get(length, 0)
        if len(received) < head_bytes:
            return False
        if head_bytes > 2:
            length = int.from_bytes(received[2:head_bytes], "big")
        self._frame_opcode = received[0] & 0x0F
        is_last = bool(received[0] & _IS_LAST)
        del received[:head_bytes]
        if self._frame_opcode in _CONTROL:
            if length > _LARGEST_CONTROL or not is_last:
                raise _nonsense(f"a control frame of {length:,} bytes")
        else:
            self._begin_frame(length)
            self._frame_is_last = is_last
        self._frame_left = length
        return True

    def _begin_frame(self, length: int) -> None:
        is_first = self._opcode == CONTINUATION
        if self._frame_opcode not in ((TEXT, BINARY) if is_first else (CONTINUATION,)):
            raise _nonsense(f"a frame of kind {self._frame_opcode} where there cannot be one")
        if is_first:
            self._opcode = self._frame_opcode
        self._message_bytes += length
        if self._message_bytes > LARGEST_SKIPPED_MESSAGE:
            raise _nonsense(f"a message of {self._message_bytes:,} bytes")
        if self._message_bytes > LARGEST_MESSAGE:
            self._message.clear()

    def _read_payload(self) -> bool:
        """Read what has come of a frame; False when more is to come."""
        assert self._frame_left is not None
        piece = self._received[: self._frame_left]
        del self._received[: self._frame_left]
        self._frame_left -= len(piece)
        if self._frame_opcode in _CONTROL:
            self._control += piece
        elif self._message_bytes <= LARGEST_MESSAGE:
            self._message += piece
        if self._frame_left:
            return False
        self._frame_left = None
        return True

    def _end_message(self) -> list[WebsocketMessage]:
        is_kept = self._message_bytes <= LARGEST_MESSAGE
        messages = [WebsocketMessage(self._opcode, bytes(self._message))] if is_kept else []
        self._opcode = CONTINUATION
        self._message.clear()
        self._message_bytes = 0
        return messages


def _nonsense(what: str) -> ProtocolError:
    return ProtocolError(f"The gateway sent {what} on the websocket.")
