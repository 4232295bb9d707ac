"""A gateway that attacks gets a sentence in time, and little of our memory."""

from __future__ import annotations

import os
import threading
import time
import zlib
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.inside.kernel.iopub_sender import FRAMES
from taskweaver_ext.ces.inside.kernel.wire import ENDED, HEADER, MESSAGE, STDOUT
from taskweaver_ext.ces.kernels.gateway import channel
from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import KernelStartError
from tests.support.executions import MemoryWatch
from tests.support.hostile_gateway import (
    HELLO_FRAME,
    HostileGateway,
    Place,
    binary_message,
    json_answer,
    text_message,
    websocket_frame,
)
from tests.support.hostile_server import Attack, Send

MB = 1 << 20
MOST_GROWTH_BYTES = 64 * MB
START_SECONDS = 4.0
TIME_LIMIT = 40.0
"""For two starts on a busy machine; what does not end at a limit goes on for much longer."""
PIECE_SECONDS = 0.1
LARGEST_PIECE = 1 << 18

HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def saying(answer: bytes) -> Attack:
    return lambda send: send(answer)


def endlessly(first: bytes, piece: bytes) -> Attack:
    def attack(send: Send) -> None:
        send(first)
        while True:
            send(piece)

    return attack


def dripping(first: bytes, drop: bytes = b"x") -> Attack:
    def attack(send: Send) -> None:
        send(first)
        while True:
            send(drop)
            threading.Event().wait(PIECE_SECONDS)

    return attack


def gzip_bomb(send: Send) -> None:
    packer = zlib.compressobj(wbits=31)
    block = packer.compress(b"x" * MB) + packer.flush(zlib.Z_FULL_FLUSH)
    send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + block * 600)


HTTP_ATTACKS: list[tuple[str, Attack, str]] = [
    ("1 GB", endlessly(HTML, b"x" * MB), "more than 1,048,576 bytes"),
    ("1 GB of headers", endlessly(b"HTTP/1.1 200 OK\r\nx: ", b"x" * MB), "cannot be reached"),
    (
        "no end of headers",
        endlessly(b"HTTP/1.1 200 OK\r\n", b"x: x\r\n" * 9999),
        "cannot be reached",
    ),
    (
        "no end of interim answers",
        endlessly(b"", b"HTTP/1.1 100 Wait\r\n\r\n" * 99),
        "no whole answer",
    ),
    ("body by the byte", dripping(HTML), "no whole answer"),
    ("head by the byte", dripping(b"", b"H"), "no whole answer"),
    ("a gzip bomb", gzip_bomb, "compressed"),
    (
        "an encoding of its own",
        saying(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nx"),
        "compressed",
    ),
    (
        "a redirect",
        saying(b"HTTP/1.1 307 On\r\nLocation: /%s\r\n\r\n" % (b"x" * 9999)),
        "sends us on to",
    ),
    ("an error of 1 GB", endlessly(b"HTTP/1.1 400 Bad\r\n\r\n", b"x" * MB), "more than 1,048,576"),
    ("no HTTP", saying(b"SSH-2.0-OpenSSH_9.2\r\n"), "cannot be reached"),
    ("nested JSON", saying(HTML + b"[" * 500_000), "gateway"),
    ("many values", saying(HTML + b"[" + b"[]," * 300_000 + b"0]"), "gateway"),
]


def ids(cases: list[tuple[str, Attack, str]]) -> list[str]:
    return [name for name, _, _ in cases]


def settings_for(gateway: HostileGateway) -> GatewaySettings:
    return GatewaySettings(url=gateway.url, start_seconds=START_SECONDS, reconnect_seconds=3.0)


def start_error(place: Place, attack: Attack, folder: Path) -> str:
    """Try to start a kernel, in time and with little memory; return why that fails."""
    with HostileGateway(place, attack) as gateway:
        memory = MemoryWatch(os.getpid())
        began = time.monotonic()
        with (
            Environment(folder, EnvMode.Gateway, gateway=settings_for(gateway)) as environment,
            pytest.raises(KernelStartError) as error,
        ):
            environment.start_session("s1")
        seconds, growth = time.monotonic() - began, memory.growth()
    assert seconds < TIME_LIMIT
    assert growth < MOST_GROWTH_BYTES
    assert len(str(error.value)) < 2000
    return str(error.value)


@pytest.mark.parametrize(("name", "attack", "words"), HTTP_ATTACKS, ids=ids(HTTP_ATTACKS))
@pytest.mark.parametrize("place", ["kernelspecs", "start"])
def test_an_answer_ends_in_time_and_in_bounds(
    place: Place, name: str, attack: Attack, words: str, tmp_path: Path
) -> None:
    assert words in start_error(place, attack, tmp_path)


@pytest.mark.parametrize(
    "answer", [[], 5, None, {"kernelspecs": []}, {"kernelspecs": "python3"}, {"kernelspecs": None}]
)
def test_kernelspecs_of_the_wrong_type_are_no_gateways(answer: object, tmp_path: Path) -> None:
    message = start_error("kernelspecs", saying(json_answer(answer)), tmp_path)

    assert "is not a Jupyter gateway" in message


def test_kernelspecs_without_number_are_not_all_named(tmp_path: Path) -> None:
    names = {f"{number}-{'x' * 100}": {"spec": [number]} for number in range(5000)}
    message = start_error("kernelspecs", saying(json_answer({"kernelspecs": names})), tmp_path)

    assert "has no kernel 'python3'" in message
    assert "4,980 more" in message


@pytest.mark.parametrize(
    "kernel_id", ["../../x?y", "x/y", "x y", "x\r\nHost: y", "", ".", "x" * 9999, 5, ["x"], {}]
)
def test_a_kernel_id_that_is_none_goes_into_no_address(kernel_id: object, tmp_path: Path) -> None:
    message = start_error("start", saying(json_answer({"id": kernel_id})), tmp_path)

    assert "which cannot be the id of one" in message


HANDSHAKE_ATTACKS: list[tuple[str, Attack, str]] = [
    ("head by the byte", dripping(b"HTTP/1.1 101 Yes\r\nx: "), "no line to it"),
    ("1 GB of headers", endlessly(b"HTTP/1.1 101 Yes\r\nx: ", b"x" * MB), "of headers"),
    ("no end of headers", endlessly(b"HTTP/1.1 101 Yes\r\n", b"x: x\r\n" * 9999), "no line to it"),
    ("a redirect", saying(b"HTTP/1.1 302 On\r\nLocation: ws://127.0.0.1:9/\r\n\r\n"), "Redirect"),
    (
        "a body of 1 GB",
        endlessly(b"HTTP/1.1 500 No\r\nContent-Length: 1000000000\r\n\r\n", b"x" * MB),
        "no line to it",
    ),
    (
        "a wrong proof",
        saying(b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"),
        "no line to it",
    ),
    ("no HTTP", saying(b"SSH-2.0-OpenSSH_9.2\r\n"), "no line to it"),
]


@pytest.mark.parametrize(("name", "attack", "words"), HANDSHAKE_ATTACKS, ids=ids(HANDSHAKE_ATTACKS))
def test_a_channel_opens_in_time_and_in_bounds_or_not_at_all(
    name: str, attack: Attack, words: str, tmp_path: Path
) -> None:
    assert words in start_error("handshake", attack, tmp_path)


CHANNEL_ATTACKS: list[tuple[str, Attack, str]] = [
    (
        "1 TB announced",
        saying(websocket_frame(2, b"x", announced=1 << 40)),
        "1,099,511,627,776 bytes",
    ),
    (
        "1 GB in frames without end",
        endlessly(b"\x02\x00", b"\0\x7f" + MB.to_bytes(8, "big") + b"x" * MB),
        "a message of",
    ),
    ("no JSON", saying(websocket_frame(1, b"{")), "not Jupyter's"),
    ("nested JSON", saying(websocket_frame(1, b"[" * 1_000_000)), "not Jupyter's"),
    ("many values", saying(websocket_frame(1, b"[" + b"[]," * 300_000 + b"0]")), "not Jupyter's"),
    ("no frames", saying(b"\xff" * 100), "a frame as no server sends it"),
    ("a type that is none", saying(text_message(5, {})), "'msg_type' is no text"),
    (
        "a status that is none",
        saying(text_message("status", {"execution_state": []})),
        "'execution_state' is no text",
    ),
    ("output at no place", saying(text_message(FRAMES, {"start": -1})), "'start' is no number"),
    ("content that is none", saying(text_message(FRAMES, 5)), "no object"),
    (
        "frames that are none",
        saying(binary_message(FRAMES, {"start": 0}, b"\xff" * 9000)),
        "A kernel",
    ),
]


@pytest.mark.parametrize(("name", "attack", "words"), CHANNEL_ATTACKS, ids=ids(CHANNEL_ATTACKS))
def test_nonsense_instead_of_a_kernel_is_named(
    name: str, attack: Attack, words: str, tmp_path: Path
) -> None:
    assert words in start_error("hello", attack, tmp_path)


@pytest.mark.parametrize(
    "attack",
    [
        dripping(websocket_frame(2, b"", announced=MB)),
        dripping(b"", text_message("status", {"execution_state": "busy"})),
        endlessly(b"", text_message("stream", {"text": "x" * 1000})),
        endlessly(b"", text_message("execute_reply", {"status": "ok", "evalue": "x" * 100_000})),
        endlessly(b"", websocket_frame(9, b"ping")),
    ],
    ids=["by the byte", "slowly", "text", "replies", "pings"],
)
def test_a_kernel_that_never_says_hello_is_given_up(attack: Attack, tmp_path: Path) -> None:
    assert "was not ready after" in start_error("hello", attack, tmp_path)


def attacked(attack: Attack, folder: Path, timeout: float = TIME_LIMIT) -> ExecutionResult:
    """Run code on a kernel whose gateway attacks, in time and with little memory."""
    with HostileGateway("kernel", attack) as gateway:
        settings = settings_for(gateway)
        with Environment(folder, EnvMode.Gateway, gateway=settings) as environment:
            environment.start_session("s1")
            memory = MemoryWatch(os.getpid())
            began = time.monotonic()
            result = environment.execute_code(
                "s1", "1", on_event=lambda _: gateway.is_in_use.set(), timeout=timeout
            )
            seconds, growth = time.monotonic() - began, memory.growth()
    assert seconds < TIME_LIMIT
    assert growth < MOST_GROWTH_BYTES
    return result


USE_ATTACKS = [
    *(case for case in CHANNEL_ATTACKS if case[0] != "frames that are none"),
    ("a message by the byte", dripping(websocket_frame(2, b"", announced=MB)), "so slowly"),
    ("frames without end", dripping(b"\x02\x00", b"\0\0"), "so slowly"),
]


@pytest.mark.parametrize(("name", "attack", "words"), USE_ATTACKS, ids=ids(USE_ATTACKS))
def test_nonsense_from_a_kernel_in_use_ends_it_with_a_sentence(
    name: str, attack: Attack, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MESSAGE_SECONDS", 2.0)

    result = attacked(attack, tmp_path)

    assert result.status is ExecutionStatus.DIED
    assert words in (result.error or "")


HELLO_BYTES = len(HELLO_FRAME)


def forged(kind: int, payload: bytes, ordinal: int = 1) -> bytes:
    """A frame of a kernel, in messages that come after its hello."""
    frame = HEADER.pack(kind, ordinal, len(payload)) + payload
    return b"".join(
        binary_message(FRAMES, {"start": HELLO_BYTES + start}, frame[start : start + LARGEST_PIECE])
        for start in range(0, len(frame), LARGEST_PIECE)
    )


FORGED: list[tuple[str, Attack, str]] = [
    ("a usage", saying(forged(ENDED, b'{"status": "ok", "usage": 5}')), "'usage' is no object"),
    ("another's output", saying(forged(STDOUT, b"x", ordinal=9)), "was not asked for"),
    (
        "many values",
        saying(forged(MESSAGE, b'display_data\n{"data":[' + b"[]," * 3_000_000 + b"0]}")),
        "too much memory",
    ),
    (
        "a large message",
        saying(forged(MESSAGE, b"x" * (20 * MB))),
        "announced a message of 20,971,520",
    ),
]


@pytest.mark.parametrize(("name", "attack", "words"), FORGED, ids=ids(FORGED))
def test_forged_frames_end_a_kernel_behind_a_gateway_too(
    name: str, attack: Attack, words: str, tmp_path: Path
) -> None:
    result = attacked(attack, tmp_path)

    assert result.status is ExecutionStatus.DIED
    assert words in (result.error or "")


@pytest.mark.parametrize(
    "piece",
    [
        websocket_frame(9, b"ping"),
        text_message("status", {"execution_state": "busy"}),
        binary_message(FRAMES, {"start": HELLO_BYTES, "wants_receipt": True}, b""),
        binary_message(FRAMES, {"start": 1 << 40}, b"x"),
        text_message("stream", {"name": "stdout", "text": "IOPub message rate exceeded"}),
    ],
    ids=["pings", "statuses", "receipts wanted", "pieces that are missing", "rate limits"],
)
def test_a_time_limit_holds_while_a_gateway_talks_without_end(piece: bytes, tmp_path: Path) -> None:
    result = attacked(endlessly(b"", piece * 100), tmp_path, timeout=2.0)

    assert result.status is ExecutionStatus.TIMEOUT


@pytest.mark.parametrize(
    "attack",
    [dripping(HTML), endlessly(HTML, b"x" * MB), saying(b"HTTP/1.1 500 No\r\n\r\n"), gzip_bomb],
    ids=["by the byte", "1 GB", "refused", "gzip"],
)
def test_a_kernel_that_is_not_ended_holds_up_nobody(attack: Attack, tmp_path: Path) -> None:
    with HostileGateway("end", attack) as gateway:
        memory = MemoryWatch(os.getpid())
        with Environment(tmp_path, EnvMode.Gateway, gateway=settings_for(gateway)) as environment:
            environment.start_session("s1")
            began = time.monotonic()
        seconds = time.monotonic() - began

    assert seconds < TIME_LIMIT
    assert memory.growth() < MOST_GROWTH_BYTES


def test_a_kernel_that_talks_on_after_its_end_is_not_heard_out(tmp_path: Path) -> None:
    over, more = text_message("shutdown_reply", {}), text_message("stream", {"text": "x" * 1000})

    result = attacked(endlessly(over, more), tmp_path)

    assert result.status is ExecutionStatus.DIED
    assert "ended on the gateway, not by us" in (result.error or "")


def test_what_is_too_large_to_matter_is_read_over(tmp_path: Path) -> None:
    large = text_message("comm_msg", {"data": "x" * (3 * MB)})

    def attack(send: Send) -> None:
        send(large)
        send(text_message("shutdown_reply", {}))

    assert "ended on the gateway, not by us" in (attacked(attack, tmp_path).error or "")
