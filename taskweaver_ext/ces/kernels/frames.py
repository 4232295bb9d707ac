"""Read the frames in which kernels say everything; `kernel_runtime/wire.py` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from taskweaver_ext.ces.kernel_runtime.wire import ENDED, HEADER, HELLO, MESSAGE, STDERR
from taskweaver_ext.ces.kernels.host import (
    ExecutionEnded,
    InputWanted,
    MessageReceived,
    OutputReceived,
    Received,
)
from taskweaver_ext.ces.output_sink import STREAMS
from taskweaver_ext.errors import ProtocolError

_MAX_FRAME_BYTES = 1 << 28
"""No honest frame is larger; a kernel that lies must not fill our memory."""


class FrameReader:
    """Make bytes, cut anywhere, into what they say."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = HEADER.size

    def feed(self, data: bytes) -> Iterator[Received]:
        """Take the next bytes and give all frames that are complete; runs of one stream as one."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        buffer = b"".join(self._parts)  # the same object if there is one part only
        view = memoryview(buffer)
        position, end = 0, len(buffer)
        run_kind, run_ordinal = -1, -1
        run: list[memoryview] = []
        self._needed = HEADER.size
        while end - position >= HEADER.size:
            kind, ordinal, size = HEADER.unpack_from(buffer, position)
            start = position + HEADER.size
            if size > _MAX_FRAME_BYTES:
                raise ProtocolError(f"A kernel announced a message of {size:,} bytes.")
            if end - start < size:
                self._needed = HEADER.size + size
                break
            position = start + size
            if kind > STDERR:
                if run:
                    yield OutputReceived(run_ordinal, STREAMS[run_kind], b"".join(run))
                    run = []
                yield from _message(kind, ordinal, buffer[start:position])
                continue
            if kind != run_kind or ordinal != run_ordinal:
                if run:
                    yield OutputReceived(run_ordinal, STREAMS[run_kind], b"".join(run))
                run, run_kind, run_ordinal = [], kind, ordinal
            run.append(view[start:position])
        if run:
            yield OutputReceived(run_ordinal, STREAMS[run_kind], b"".join(run))
        self._parts = [buffer[position:]] if position < end else []
        self._size = end - position


def _message(kind: int, ordinal: int, payload: bytes) -> Iterator[Received]:
    if kind == MESSAGE:
        message_type, _, content = payload.partition(b"\n")
        message = json.loads(content)
        if message_type == b"input_request":
            yield InputWanted(message["prompt"], message["password"])
        else:
            yield MessageReceived(ordinal, message_type.decode(), message)
    elif kind == ENDED:
        yield ExecutionEnded(ordinal, json.loads(payload))
    elif kind == HELLO:
        yield MessageReceived(ordinal, "hello", json.loads(payload))
