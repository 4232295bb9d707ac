"""A real HTTP server that speaks the streaming protocols of OpenAI and Anthropic, from a script.

    with ModelServer([ScriptedAnswer("hello"), HttpFailure(429)]) as server:
        ...  # point a client at server.openai_url or server.anthropic_url
    assert server.requests[0].body["model"] == "m"

Each request takes the next entry of the script; an entry may also be a function
of the request. It can be slow, rude and wrong in the ways real servers are.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

WAIT_SECONDS = 60.0
"""No wait in this server is longer, whatever a test forgets."""

PING_SECONDS = 0.05

Ending: TypeAlias = Literal["proper", "cut", "drop", "reset", "stall", "ping", "junk", "error"]
"""How a reply ends: as it should; cleanly but without a reason to finish; with the connection
closed or reset; never, in silence or with keep-alives, until the client leaves; with bytes that are
no event; with an error event.
"""


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]

    @property
    def is_anthropic(self) -> bool:
        return self.path.startswith("/v1/messages")


@dataclass(frozen=True)
class ScriptedAnswer:
    """One streamed reply."""

    text: str
    thinking: str = ""
    finish_reason: str = "stop"
    """In OpenAI's words; translated for Anthropic."""
    ending: Ending = "proper"
    """What happens once the text is out."""
    piece_chars: int = 5
    wire_bytes: int = 0
    """Cut what is sent into pieces of so many bytes, whatever they mean; 0 for whole events."""
    stall_before_headers: bool = False
    has_usage: bool = True
    keep_alives: int = 0
    """Send so many comments or pings before the first event."""
    junk: str = "{this is no json"
    """Sent when `ending` is "junk"."""
    error: dict[str, Any] | str = field(
        default_factory=lambda: {"type": "overloaded_error", "message": "overloaded"}
    )
    """Sent when `ending` is "error"."""


@dataclass(frozen=True)
class HttpFailure:
    """An answer that is no stream, whatever its status."""

    status: int
    message: str = "something is wrong"
    headers: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    """More fields of the error object: `code`, `type`, `param`."""
    page: str = ""
    """Sent as HTML in place of the error object."""


@dataclass(frozen=True)
class HangUp:
    """No answer at all: the connection is closed once the request has been read."""


Answer: TypeAlias = ScriptedAnswer | HttpFailure | HangUp
ScriptEntry: TypeAlias = Answer | Callable[[RecordedRequest], Answer]


class ModelServer:
    """Serve the script on a loopback port for the length of a `with` block.

    Threads:
        One per connection, from the standard library; `_lock` guards the
        position in the script and `requests`.
    """

    def __init__(self, script: Sequence[ScriptEntry]) -> None:
        self.requests: list[RecordedRequest] = []
        self.client_left = threading.Event()
        """Set when a client closed its connection before its reply had ended."""
        self._script = list(script)
        self._lock = threading.Lock()
        self._arrived = threading.Semaphore(0)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model_server = self
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="test-model-server",
            daemon=True,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.url

    @property
    def unused_entries(self) -> int:
        return len(self._script) - len(self.requests)

    def wait_for_request(self) -> None:
        """Wait until one more request has arrived than this was called before."""
        assert self._arrived.acquire(timeout=WAIT_SECONDS), "no request arrived"

    def answer(self, request: RecordedRequest) -> Answer:
        """Record the request and return what the script has for it."""
        with self._lock:
            position = len(self.requests)
            self.requests.append(request)
        self._arrived.release()
        if position >= len(self._script):
            return HttpFailure(400, f"the script has only {len(self._script)} entries")
        entry = self._script[position]
        return entry(request) if callable(entry) else entry

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    model_server: ModelServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent: clients that leave in mid-reply are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    connection: socket.socket

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test output clean."""

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        request = RecordedRequest(
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=json.loads(self.rfile.read(length) or b"{}"),
        )
        answer = self.server.model_server.answer(request)
        match answer:
            case HangUp():
                self.close_connection = True
            case HttpFailure():
                self._fail(answer)
            case ScriptedAnswer():
                self._stream(answer, request)

    def _fail(self, failure: HttpFailure) -> None:
        error = {"message": failure.message, "type": "test_error", **failure.fields}
        body = failure.page.encode() or json.dumps({"type": "error", "error": error}).encode()
        self.send_response(failure.status)
        self.send_header("content-type", "text/html" if failure.page else "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in failure.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: ScriptedAnswer, request: RecordedRequest) -> None:
        if answer.stall_before_headers:
            self._wait_until_client_leaves()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        speak = _anthropic_events if request.is_anthropic else _openai_events
        try:
            for event in speak(answer):
                self._send(event, answer.wire_bytes)
        except OSError:
            self.server.model_server.client_left.set()
            self.close_connection = True
            return
        self._end(answer)

    def _send(self, event: bytes, wire_bytes: int) -> None:
        size = wire_bytes or len(event)
        for start in range(0, len(event), size):
            piece = event[start : start + size]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()

    def _end(self, answer: ScriptedAnswer) -> None:
        match answer.ending:
            case "stall":
                self._wait_until_client_leaves()
            case "ping":
                self._ping_until_client_leaves()
            case "drop":
                self.close_connection = True
            case "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True
            case _:
                self.wfile.write(b"0\r\n\r\n")

    def _ping_until_client_leaves(self) -> None:
        pings = int(WAIT_SECONDS / PING_SECONDS)
        for _ in range(pings):
            self._send(b": still here\n\n", 0)
            if select.select([self.connection], [], [], PING_SECONDS)[0]:
                self.server.model_server.client_left.set()
                break
        self.close_connection = True

    def _wait_until_client_leaves(self) -> None:
        readable, _, _ = select.select([self.connection], [], [], WAIT_SECONDS)
        if readable:
            self.server.model_server.client_left.set()
        self.close_connection = True


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _openai_events(answer: ScriptedAnswer) -> Iterator[bytes]:
    for _ in range(answer.keep_alives):
        yield b": still here\n\n"
    yield _openai_event({"role": "assistant", "content": None})
    for piece in _pieces(answer.thinking, answer.piece_chars):
        yield _openai_event({"reasoning_content": piece})
    for piece in _pieces(answer.text, answer.piece_chars):
        yield _openai_event({"content": piece})
    if answer.ending == "junk":
        yield f"data: {answer.junk}\n\n".encode()
    elif answer.ending == "error":
        yield _data({"error": answer.error})
    elif answer.ending == "proper":
        yield _openai_event({}, finish_reason=answer.finish_reason)
        if answer.has_usage:
            usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
            yield _data({**_CHUNK, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


_CHUNK = {"id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}


def _openai_event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _data({**_CHUNK, "choices": [choice]})


def _anthropic_events(answer: ScriptedAnswer) -> Iterator[bytes]:
    for _ in range(answer.keep_alives):
        yield _named("ping", {})
    usage = {"input_tokens": 11, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "usage": usage if answer.has_usage else None,
    }
    yield _named("message_start", {"message": message})
    blocks = (("thinking", answer.thinking), ("text", answer.text))
    for index, (kind, text) in enumerate(blocks):
        block = {"type": kind, kind: ""}
        yield _named("content_block_start", {"index": index, "content_block": block})
        for piece in _pieces(text, answer.piece_chars):
            delta = {"type": f"{kind}_delta", kind: piece}
            yield _named("content_block_delta", {"index": index, "delta": delta})
        yield _named("content_block_stop", {"index": index})
    if answer.ending == "junk":
        yield f"event: content_block_delta\ndata: {answer.junk}\n\n".encode()
    elif answer.ending == "error":
        yield _named("error", {"error": answer.error})
    elif answer.ending == "proper":
        reasons = {"stop": "end_turn", "length": "max_tokens"}
        delta = {"stop_reason": reasons.get(answer.finish_reason, answer.finish_reason)}
        total = {"output_tokens": 7} if answer.has_usage else None
        yield _named("message_delta", {"delta": delta, "usage": total})
        yield _named("message_stop", {})


def _named(kind: str, fields: dict[str, Any]) -> bytes:
    return f"event: {kind}\n".encode() + _data({"type": kind, **fields})


def _data(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + b"\n\n"
