"""Clients that take nothing or ask for nothing, on a real server that is told to be impatient."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from taskweaver_ext.server.stalled_connections import StalledConnections
from tests.support.executions import wait_until
from tests.support.terminal_program import LIMIT_SECONDS

LARGE = 32 << 20


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    response = Response(bytes(LARGE)) if scope["path"] == "/large" else PlainTextResponse("small")
    await response(scope, receive, send)


class ImpatientServer(uvicorn.Server):
    port: int

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stalled = StalledConnections(1.0)

    async def on_tick(self, counter: int) -> bool:
        self.stalled.look(self.server_state.connections)
        return await super().on_tick(counter)


@pytest.fixture
def server() -> Iterator[ImpatientServer]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(answer, http="h11", log_config=None, lifespan="off")
        server = ImpatientServer(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        server.port = listening.getsockname()[1]
        yield server
        server.should_exit = True
        thread.join()


def is_ended(client: socket.socket) -> bool:
    """Whether the server ends a connection of which nothing more comes than was sent."""
    client.settimeout(LIMIT_SECONDS)
    with contextlib.suppress(ConnectionResetError):
        while client.recv(1 << 16):
            pass
    return True


@pytest.mark.parametrize("asked", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT"])
def test_a_client_that_asks_for_nothing_is_let_go(server: ImpatientServer, asked: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(asked)

        assert is_ended(client)


def test_a_client_that_takes_nothing_is_let_go_and_others_are_not(server: ImpatientServer) -> None:
    request = b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", server.port)) as dead,
        socket.create_connection(("127.0.0.1", server.port)) as living,
    ):
        for client in (dead, living):
            client.sendall(request)
        taken = 0
        while piece := living.recv(1 << 16):
            taken += len(piece)
        wait_until(lambda: not server.server_state.connections)
        rest = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := dead.recv(1 << 16):
                rest += len(piece)

    assert taken > LARGE
    assert rest < LARGE
