"""Read the frames in which kernels say everything; `inside/kernel/wire.py` writes them."""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Any

from taskweaver_ext.ces.execution.output_runs import STREAMS, OutputRuns
from taskweaver_ext.ces.execution.results import Usage
from taskweaver_ext.ces.inside.kernel.display_parts import FORMS, PIECE_BYTES
from taskweaver_ext.ces.inside.kernel.message_cost import MAX_COST, MAX_MESSAGE_BYTES, message_cost
from taskweaver_ext.ces.inside.kernel.wire import (
    ENDED,
    HEADER,
    HELLO,
    MAX_RUNS_BYTES,
    MESSAGE,
    PIECE,
    PIPES,
    RUN_COUNT,
    RUN_LENGTH,
    RUNS,
    STDERR,
    STDOUT,
)
from taskweaver_ext.ces.kernels.client.checked_fields import CheckedFields
from taskweaver_ext.ces.kernels.client.host import (
    ExecutionEnded,
    ExecutionReply,
    InputWanted,
    MessageReceived,
    OutputReceived,
    PieceReceived,
    Received,
    RunsReceived,
)
from taskweaver_ext.ces.kernels.client.received_json import parse_json
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.truncation import incomplete_bytes

_LONGEST_CHARACTER = 4
_MESSAGE_TYPE = re.compile(rb"([A-Za-z0-9_.-]{1,100})\n")
_MAX_TYPE_BYTES = 101
_PIECE = re.compile(rb"([1-9][0-9]{0,9}) (%s)\n" % "|".join(FORMS).encode())
_MAX_PIECE_NAME_BYTES = 30
_SENDER = "A kernel"

_MAX_BYTES = {
    STDOUT: (1 << 32) - 1,  # it is not kept until it is complete
    STDERR: (1 << 32) - 1,
    MESSAGE: _MAX_TYPE_BYTES + MAX_MESSAGE_BYTES,
    ENDED: MAX_MESSAGE_BYTES,
    HELLO: 1 << 16,
    PIPES: 0,
    RUNS: MAX_RUNS_BYTES,
    PIECE: _MAX_PIECE_NAME_BYTES + PIECE_BYTES,
}
"""How large a frame of each kind is at most; a kernel that lies must not fill our memory."""


class FrameReader:
    """Make bytes, cut anywhere, into what they say.

    Output is given as far as it has come, up to its last whole character; a
    message when it is complete.
    """

    def __init__(self) -> None:
        self._unread = bytearray()
        self._needed = 1
        """How many bytes there must be before anything can be said."""
        self._kind = STDOUT
        self._ordinal = 0
        self._output_left = 0
        """How many bytes of the output of this kind and ordinal are still to come."""

    def feed(self, data: bytes) -> Iterator[Received]:
        """Read the next bytes and yield what they say; runs of one stream as one."""
        if self._unread or len(data) < self._needed:
            self._unread += data
            if len(self._unread) < self._needed:
                return
            data = bytes(self._unread)
            self._unread = bytearray()
        buffer = data
        view = memoryview(buffer)
        position, end = 0, len(buffer)
        run: list[memoryview] = []
        while True:
            size = self._size_of_output(buffer, position)
            run.append(view[position : position + size])
            position += size
            self._output_left -= size
            if self._output_left or end - position < HEADER.size:
                self._needed = end - position + 1
                break
            kind, ordinal, size = HEADER.unpack_from(buffer, position)
            if size > _MAX_BYTES.get(kind, -1):
                raise ProtocolError(f"A kernel announced a message of {size:,} bytes, kind {kind}.")
            is_output = kind <= STDERR
            if not is_output and end - position - HEADER.size < size:
                self._needed = HEADER.size + size
                break
            position += HEADER.size
            if kind != self._kind or ordinal != self._ordinal:
                yield from self._output(run)
                run = []
                self._kind, self._ordinal = kind, ordinal
            if is_output:
                self._output_left = size
            else:
                yield from _message(kind, ordinal, view[position : position + size])
                position += size
        yield from self._output(run)
        self._unread += view[position:]

    def _size_of_output(self, buffer: bytes, position: int) -> int:
        """How much of the output that is coming can be given: no part of a character."""
        available = len(buffer) - position
        if available >= self._output_left:
            return self._output_left
        return available - incomplete_bytes(
            buffer[max(position, len(buffer) - _LONGEST_CHARACTER) :]
        )

    def _output(self, run: list[memoryview]) -> Iterator[Received]:
        if data := b"".join(run):
            yield OutputReceived(self._ordinal, STREAMS[self._kind], data)


def _message(kind: int, ordinal: int, payload: memoryview) -> Iterator[Received]:
    if kind == MESSAGE:
        found = _MESSAGE_TYPE.match(payload)
        if found is None:
            raise ProtocolError("A kernel sent a message of a type that is none.")
        message_type = found[1].decode()
        message = _parsed(payload[found.end() :])
        if message_type == "input_request":
            fields = CheckedFields(message, _SENDER)
            yield InputWanted(fields.text("prompt", ""), fields.value("password") is True)
        else:
            yield MessageReceived(ordinal, message_type, message)
    elif kind == ENDED:
        yield ExecutionEnded(ordinal, _reply(CheckedFields(_parsed(payload), _SENDER)))
    elif kind == RUNS:
        yield RunsReceived(ordinal, _runs(bytes(payload)))
    elif kind == PIECE:
        yield _piece(ordinal, payload)
    elif kind == HELLO:
        yield MessageReceived(ordinal, "hello", _parsed(payload))


def _piece(ordinal: int, payload: memoryview) -> PieceReceived:
    found = _PIECE.match(payload)
    if found is None:
        raise ProtocolError("A kernel sent a piece of a display that belongs to none.")
    return PieceReceived(ordinal, int(found[1]), found[2].decode(), bytes(payload[found.end() :]))


def _reply(reply: CheckedFields) -> ExecutionReply:
    usage = reply.fields("usage")
    return ExecutionReply(
        is_ok=reply.text("status") == "ok",
        exit_code=reply.whole_number("exit_code"),
        usage=Usage(
            peak_memory_bytes=usage.whole_number("peak_memory_bytes"),
            cpu_seconds=usage.amount("cpu_seconds"),
        ),
        error_name=reply.text("ename", ""),
        error_text=reply.text("evalue", ""),
        traceback=tuple(reply.texts("traceback")),
    )


def _runs(payload: bytes) -> OutputRuns:
    try:
        (count,) = RUN_COUNT.unpack_from(payload)
        table_end = RUN_COUNT.size * (1 + count)
        lengths = array(RUN_LENGTH, payload[RUN_COUNT.size : table_end])
    except (struct.error, ValueError) as error:
        raise ProtocolError("A kernel sent runs of output without their lengths.") from error
    if sys.byteorder == "little":
        lengths.byteswap()
    stdout_end = table_end + sum(lengths[0::2])
    if not count or stdout_end + sum(lengths[1::2]) != len(payload):
        raise ProtocolError("A kernel sent runs of output of other lengths than it said.")
    return OutputRuns(lengths, (payload[table_end:stdout_end], payload[stdout_end:]))


def _parsed(payload: memoryview) -> dict[str, Any]:
    content = bytes(payload)
    if message_cost(content) > MAX_COST:
        raise ProtocolError("A kernel sent a message that takes too much memory to be read.")
    message = parse_json(content)
    if not isinstance(message, dict):
        raise ProtocolError("A kernel sent a message that is no JSON object.")
    return message
