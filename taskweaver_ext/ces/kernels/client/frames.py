"""Read the frames in which kernels say everything; `inside/kernel/wire.py` writes them."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Any

from taskweaver_ext.ces.execution.output_runs import STREAMS, OutputRuns
from taskweaver_ext.ces.inside.kernel.wire import (
    ENDED,
    HEADER,
    HELLO,
    MESSAGE,
    RUN_COUNT,
    RUN_LENGTH,
    RUNS,
    STDERR,
    STDOUT,
)
from taskweaver_ext.ces.kernels.client.host import (
    ExecutionEnded,
    InputWanted,
    MessageReceived,
    OutputReceived,
    Received,
    RunsReceived,
)
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.truncation import incomplete_bytes

_LONGEST_CHARACTER = 4
_MAX_FRAME_BYTES = 1 << 28
"""No honest frame is larger; a kernel that lies must not fill our memory."""


class FrameReader:
    """Make bytes, cut anywhere, into what they say.

    Output is given as far as it has come, up to its last whole character; a
    message when it is complete.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = 1
        self._kind = STDOUT
        self._ordinal = 0
        self._output_left = 0
        """How many bytes of the output of this kind and ordinal are still to come."""

    def feed(self, data: bytes) -> Iterator[Received]:
        """Read the next bytes and yield what they say; runs of one stream as one."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        buffer = b"".join(self._parts)  # the same object if there is one part only
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
            if size > _MAX_FRAME_BYTES:
                raise ProtocolError(f"A kernel announced a message of {size:,} bytes.")
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
                yield from _message(kind, ordinal, buffer[position : position + size])
                position += size
        yield from self._output(run)
        self._parts = [buffer[position:]] if position < end else []
        self._size = end - position

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


def _message(kind: int, ordinal: int, payload: bytes) -> Iterator[Received]:
    if kind == MESSAGE:
        message_type, _, content = payload.partition(b"\n")
        message = _parsed(content)
        if message_type == b"input_request":
            yield InputWanted(str(message.get("prompt", "")), bool(message.get("password")))
        else:
            yield MessageReceived(ordinal, message_type.decode("utf-8", "replace"), message)
    elif kind == ENDED:
        yield ExecutionEnded(ordinal, _parsed(payload))
    elif kind == RUNS:
        yield RunsReceived(ordinal, _runs(payload))
    elif kind == HELLO:
        yield MessageReceived(ordinal, "hello", _parsed(payload))


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


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"A kernel sent a message that is no JSON: {error}.") from error
    if not isinstance(message, dict):
        raise ProtocolError("A kernel sent a message that is no JSON object.")
    return message
