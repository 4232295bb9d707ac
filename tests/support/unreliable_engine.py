"""A Docker engine that fails now and then: a proxy before a real one."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Failure:
    """How some requests fail."""

    path: str
    """What their path ends with."""
    times: int = 1
    status: int = 500
    message: str = "out of order"
    is_done_first: bool = False
    """Whether the engine does what it is asked for, and only its answer gets lost."""


@dataclass
class UnreliableEngine:
    """Where it is, and how it will fail."""

    url: str
    failures: list[Failure] = field(default_factory=list)

    def failure_of(self, request: bytes) -> Failure | None:
        """What happens to a request; None when nothing does."""
        path = request.split()[1].decode().partition("?")[0]
        for failure in self.failures:
            if failure.times > 0 and path.endswith(failure.path):
                failure.times -= 1
                return failure
        return None


@contextlib.contextmanager
def unreliable_engine(folder: Path, url: str) -> Iterator[UnreliableEngine]:
    """A proxy in a folder before the engine at an address."""
    path = folder / "engine"
    engine = UnreliableEngine(f"unix://{path}")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as target, contextlib.suppress(OSError):
                target.connect(url.removeprefix("unix://"))
                _pass_on(self.request, target, engine)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield engine
        finally:
            server.shutdown()
            thread.join()


def _pass_on(client: socket.socket, target: socket.socket, engine: UnreliableEngine) -> None:
    """Pass requests on, and answers back on a thread of its own."""
    returning = threading.Thread(target=_copy, args=(target, client), daemon=True)
    has_passed_one = False
    while request := _read_request(client):
        failure = engine.failure_of(request)
        if failure is None:
            target.sendall(request)
            if not has_passed_one:
                returning.start()
            has_passed_one = True
            continue
        if failure.is_done_first:
            target.sendall(request)
            target.recv(1)  # it has been done
        else:
            body = json.dumps({"message": failure.message}).encode()
            head = f"HTTP/1.1 {failure.status} Failed\r\nContent-Type: application/json\r\n"
            head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
        break
    for end in (client, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    if has_passed_one:
        returning.join()


def _read_request(client: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        if not (data := client.recv(65536)):
            return b""
        request += data
    head, _, body = request.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    missing = (int(length[1]) if length else 0) - len(body)
    while missing > 0:
        data = client.recv(missing)
        request += data
        missing -= len(data)
    return request


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
