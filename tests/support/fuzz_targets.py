"""What is fuzzed: any bytes make an ordinary result or a ProtocolError, and nothing else.

    scripts/campaign fuzz_frames fuzz_gateway           # at random, from inputs in tests/data
    python -m tests.support.fuzz_targets frames FOLDER  # guided by coverage, where atheris is

The first byte of an input says how the rest is cut and read.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.execution.artifacts import ArtifactStore
from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult
from taskweaver_ext.ces.kernels.client.execution import Execution
from taskweaver_ext.ces.kernels.client.frames import FrameReader
from taskweaver_ext.ces.kernels.client.host import (
    ExecuteRequest,
    KernelGone,
    Received,
)
from taskweaver_ext.ces.kernels.client.reader import KernelReader
from taskweaver_ext.ces.kernels.gateway.messages import FramesPiece, GatewayMessages
from taskweaver_ext.ces.kernels.gateway.websocket_messages import TEXT, WebsocketReader
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.event_json import event_to_json

_DATA = Path(__file__).parent.parent / "data"
_MOST_CHANGES = 5


def inputs_for(target: str) -> list[bytes]:
    """What reaches the most of a target's code, in few bytes; found by fuzzing."""
    lines = (_DATA / f"fuzz_{target}.txt").read_text().splitlines()
    return [base64.b64decode(line) for line in lines]


def changed(inputs: list[bytes], chance: random.Random) -> bytes:
    """Return one of the inputs with a few bytes added, removed, replaced or from another."""
    data = bytearray(chance.choice(inputs))
    for _ in range(chance.randint(1, _MOST_CHANGES)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 0, 1, 1, 4, 30)))
        other = chance.choice(inputs)
        cut = chance.randrange(len(other) + 1)
        new = chance.choice((b"", chance.randbytes(1), chance.randbytes(4), other[cut : cut + 30]))
        data[start:end] = new
    return bytes(data)


def pieces_of(data: bytes) -> Iterator[bytes]:
    """Cut an input as its first byte says."""
    size = 1 + (data[0] & 0x7F) if data else 1
    size = 1 << 20 if size == 128 else size
    return (data[start : start + size] for start in range(1, len(data), size))


class _FedKernel:
    """A kernel's host and connection at once: it says what it is given, and is gone."""

    pid = folder = programs = None
    is_over = False

    def __init__(self, data: bytes) -> None:
        self._pieces = pieces_of(data)
        self._frames = FrameReader()
        self._has_begun = False

    def execute(self, _request: ExecuteRequest) -> None:
        self._has_begun = True

    def receive(self, _timeout: float | None) -> Iterator[Received]:
        if not self._has_begun:
            return
        piece = next(self._pieces, None)
        if piece is None:
            yield KernelGone()
        else:
            yield from self._frames.feed(piece)

    def death(self, wait_seconds: float = 1.0) -> None:
        return None

    def _nothing(self, *_: object) -> None:
        """Neither interrupts, answers nor ends are of interest."""

    answer = request_shutdown = wake = close = interrupt = kill = stop = _nothing


class _Failures(logging.Handler):
    """Keeps what was logged as a failure of ours: the reader survives it, but must not meet it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def read_frames(data: bytes) -> ExecutionResult:
    """Let a kernel say this, from its first frame to the result of an execution."""
    with tempfile.TemporaryDirectory() as name:
        return _read_frames(data, Path(name))


def _read_frames(data: bytes, folder: Path) -> ExecutionResult:
    events: list[ExecutionEvent] = []
    execution = Execution(
        "",
        RunOptions(
            execution_id=ExecutionId("e1"),
            on_event=events.append,
            on_input=lambda _prompt, _password: "",
        ),
        sink=OutputSink(folder / "output", "e1"),
        artifacts=ArtifactStore(folder / "artifacts", folder),
        metadata={},
    )
    kernel: Any = _FedKernel(data)
    reader = KernelReader(kernel, kernel, lambda *_: None, "fuzzed")
    failures = _Failures()
    logging.getLogger("taskweaver_ext").addHandler(failures)
    reader.submit(execution)
    reader.start()
    result = execution.deliver()
    reader.stop()
    logging.getLogger("taskweaver_ext").removeHandler(failures)
    assert not failures.records, failures.records[0].exc_info
    for event in events:
        json.dumps(event_to_json(event), allow_nan=False, ensure_ascii=False).encode()
    return result


def read_gateway(data: bytes) -> None:
    """Let a gateway say this on a websocket, in whichever protocol."""
    messages = GatewayMessages()
    messages.is_old_protocol = bool(data and data[0] & 0x80)
    websocket = WebsocketReader()
    frames = FrameReader()
    with contextlib.suppress(ProtocolError):
        for piece in pieces_of(data):
            for received in websocket.feed(piece):
                message = messages.unpack(received.data, is_text=received.opcode == TEXT)
                if isinstance(message, FramesPiece):
                    list(frames.feed(message.data))
    with contextlib.suppress(ProtocolError):  # without the envelope, which few changes leave whole
        messages.unpack(data[2:], is_text=bool(data[1:2] and data[1] & 1))


TARGETS: dict[str, Callable[[bytes], object]] = {"frames": read_frames, "gateway": read_gateway}


def main() -> None:
    """Fuzz a target for as long as libFuzzer's options say."""
    atheris: Any = importlib.import_module("atheris")  # no dependency: only for this

    name = sys.argv.pop(1)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs_for(name)):
        (folder / str(number)).write_bytes(data)
    target = TARGETS[name]
    atheris.instrument_all()
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
