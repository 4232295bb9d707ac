"""A model server that attacks gets a sentence in time, and little of our memory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import zlib
from dataclasses import dataclass

import pytest

from taskweaver_ext.llm.bounded_answer import LONGEST_EVENT
from tests.support.hostile_server import Attack, HostileServer, Send

MB = 1 << 20
MOST_GROWTH_BYTES = 64 * MB
WHOLE_SECONDS = 12
TIME_LIMIT = 2 * WHOLE_SECONDS
"""For a busy machine; what does not end at a limit goes on for much longer."""

ASK = """
import json, os, sys, time

from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.anthropic_model import AnthropicModel
from taskweaver_ext.llm.chat_model import Message
from taskweaver_ext.llm.model_settings import ModelSettings, TimeLimits
from taskweaver_ext.llm.openai_model import OpenAIModel

def ask(url, silence_seconds, whole_reply_seconds):
    limits = TimeLimits(
        connect_seconds=silence_seconds, first_token_seconds=silence_seconds,
        between_tokens_seconds=silence_seconds, whole_reply_seconds=whole_reply_seconds,
    )
    kind = AnthropicModel if sys.argv[1] == "anthropic" else OpenAIModel
    model = kind(ModelSettings(api_type=sys.argv[1], model="m", limits=limits), api_base=url)
    began = time.monotonic()
    try:
        with model.stream([Message("user", "Hello?")]) as events:
            for event in events:
                pass
        return "no error", "", time.monotonic() - began
    except ModelError as error:
        return type(error).__name__, str(error), time.monotonic() - began

def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

ask(sys.argv[2], 100, 100)  # politely answered: everything is imported now
before = resident("VmRSS")
kind, message, seconds = ask(sys.argv[2], 4, float(sys.argv[3]))
growth = resident("VmHWM") - before
print(json.dumps({"kind": kind, "message": message, "seconds": seconds, "growth": growth}))
sys.stdout.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class Outcome:
    kind: str
    message: str
    seconds: float
    growth: int


def outcome_of(protocol: str, attack: Attack) -> Outcome:
    asked = threading.Event()

    def answer(send: Send) -> None:
        if asked.is_set():
            attack(send)
        asked.set()
        send(STREAM + chunk(TOKEN[protocol]) + chunk(b""))

    with HostileServer(answer) as server:
        command = [sys.executable, "-c", ASK, protocol, server.url, str(WHOLE_SECONDS)]
        child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    return Outcome(**json.loads(child.stdout))


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = {
    "openai": b'data: {"id":"1","object":"chat.completion.chunk","created":0,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n',
    "anthropic": b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"word "}}\n\n',
}


def endless_line(send: Send) -> None:
    send(STREAM + chunk(b"data: "))
    for _ in range(1024):
        send(chunk(b"x" * MB))


def endless_event_of_short_lines(send: Send) -> None:
    send(STREAM)
    while True:
        send(chunk(b"data: x\n" * 8192))


def event_of_many_objects(send: Send) -> None:
    """As much as one event can hold, of what becomes the most objects."""
    room = LONGEST_EVENT - 1000
    objects = b",".join([b"{}"] * (room // 3))
    kind = b'"type":"message_start","message":{"content":[%s]}' % objects
    event = b'data: {%s,"choices":[%s]}\n\n'
    send(STREAM + chunk(event % (b'"id":"1"', objects)))
    send(chunk(b"event: message_start\n" + event % (kind, b"")))


def bomb_in(encoding: bytes, content: bytes) -> Attack:
    def attack(send: Send) -> None:
        head = b"content-type: text/event-stream\r\ncontent-encoding: " + encoding
        send(b"HTTP/1.1 200 OK\r\n%s\r\nconnection: close\r\n\r\n%s" % (head, content))

    return attack


def gzip_bomb() -> bytes:
    """Return 600 MB in 600 kB: each block packed by itself, so that one can be sent 600 times."""
    packer = zlib.compressobj(wbits=31)
    head = packer.compress(b"data: ") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"x" * MB) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * 600


def error_of_1_gb(send: Send) -> None:
    send(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\r\n")
    send(b'{"error": {"message": "no such thing')
    for _ in range(1024):
        send(b"!" * MB)


def page_of_1_gb(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<title>Log in</title>")
    for _ in range(1024):
        send(b"!" * MB)


def huge_header(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nx-header: ")
    for _ in range(1024):
        send(b"x" * MB)


def many_headers(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\n")
    while True:
        send(b"x-header: x\r\n" * 8192)


def endless_continue(send: Send) -> None:
    while True:
        send(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def redirect_loop(send: Send) -> None:
    send(b"HTTP/1.1 307 Again\r\nlocation: /\r\ncontent-length: 0\r\n\r\n")


def dripping(first: bytes, drop: bytes) -> Attack:
    def attack(send: Send) -> None:
        send(first)
        while True:
            send(drop)
            threading.Event().wait(0.2)

    return attack


@pytest.fixture(params=["openai", "anthropic"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("attack", "kind", "words"),
    [
        (endless_line, "BrokenStreamError", "one event"),
        (endless_event_of_short_lines, "BrokenStreamError", "one event"),
        (event_of_many_objects, "BrokenStreamError", "values as one event"),
        (bomb_in(b"gzip", gzip_bomb()), "RequestRefusedError", "compressed"),
        (bomb_in(b"br, zstd", b"x"), "RequestRefusedError", "compressed"),
        (error_of_1_gb, "RequestRefusedError", "no such thing"),
        (page_of_1_gb, "RequestRefusedError", "Log in"),
        (huge_header, "ModelUnreachableError", "hung up"),
        (many_headers, "ModelUnreachableError", "hung up"),
        (endless_continue, "ModelTimeoutError", "did not begin"),
        (redirect_loop, "RequestRefusedError", "sent us elsewhere"),
        (dripping(b"", b"H"), "ModelTimeoutError", "did not begin"),
        (dripping(STREAM, chunk(b"d")), "ModelTimeoutError", "did not begin"),
        (dripping(STREAM, chunk(b": still here\n\n")), "ModelTimeoutError", "did not begin"),
        (
            dripping(b"HTTP/1.1 500 Oh\r\ncontent-length: 999999\r\n\r\n", b"x"),
            "ModelTimeoutError",
            "did not begin",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_attack_ends_in_time_and_in_bounds_with_what_happened(
    protocol: str, attack: Attack, kind: str, words: str
) -> None:
    outcome = outcome_of(protocol, attack)

    assert outcome.kind == kind, outcome
    assert words in outcome.message
    assert outcome.growth < MOST_GROWTH_BYTES
    assert outcome.seconds < TIME_LIMIT


def test_a_reply_that_never_ends_is_ended_by_its_size(protocol: str) -> None:
    def endless_words(send: Send) -> None:
        send(STREAM)
        while True:
            send(chunk(TOKEN[protocol].replace(b"word ", b"word " * 1000) * 10))

    outcome = outcome_of(protocol, endless_words)

    assert outcome.kind == "BrokenStreamError", outcome
    assert "longer than" in outcome.message
    assert outcome.growth < MOST_GROWTH_BYTES
    assert outcome.seconds < TIME_LIMIT


def test_a_reply_that_drips_is_ended_by_its_time(protocol: str) -> None:
    outcome = outcome_of(protocol, dripping(STREAM, chunk(TOKEN[protocol])))

    assert outcome.kind == "ModelTimeoutError", outcome
    assert "llm.whole_reply_seconds" in outcome.message
    assert outcome.growth < MOST_GROWTH_BYTES
    assert WHOLE_SECONDS <= outcome.seconds < TIME_LIMIT
