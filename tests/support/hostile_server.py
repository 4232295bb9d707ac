"""A server that answers every HTTP request with whatever bytes an attack sends.

    with HostileServer(lambda send: send(b"HTTP/1.1 200 OK\\r\\n\\r\\n" + b"x" * 10**9)) as server:
        ...                                 # point a client at server.url

An attack is over when the client has left: `send` then raises `OSError`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

Send: TypeAlias = Callable[[bytes], None]
Attack: TypeAlias = Callable[[Send], None]

ATTACK_SECONDS = 60.0
"""No attack waits longer for a client that does not read."""


class HostileServer:
    """Serve one attack on a loopback port for the length of a `with` block.

    Threads:
        One accepts; each connection has one, which ends when its client or the server does.
    """

    def __init__(self, attack: Attack) -> None:
        self.stopped = threading.Event()
        self.client_left = threading.Event()
        self.attack = attack
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, name="test-hostile", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(ATTACK_SECONDS)
            try:
                request = _read_request(connection)
            except ValueError:
                return  # no client: a ZeroMQ socket that had this port for another's
            try:
                self.answer(request, connection.sendall)
            except OSError:
                self.client_left.set()

    def answer(self, request: Request, send: Send) -> None:
        self.attack(send)


@dataclass(frozen=True)
class Request:
    """The beginning of a request, such as "GET /api", and its headers by their small names."""

    line: str
    headers: dict[str, str]


def _read_request(connection: socket.socket) -> Request:
    headers: dict[str, str] = {}
    with connection.makefile("rb") as request:  # it keeps the connection open until it is closed
        first = request.readline().decode()
        while (line := request.readline()).strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        request.read(int(headers.get("content-length", 0)))
    return Request(first, headers)
