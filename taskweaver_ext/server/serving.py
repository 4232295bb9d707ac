"""A server at work on a socket: begun, said to be ready, ended in time."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.chat.protocol import MAX_LINE_BYTES
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.server.access import AccessRules, is_loopback
from taskweaver_ext.server.app import ServerApp
from taskweaver_ext.server.event_streams import STALLED_SECONDS
from taskweaver_ext.server.stalled_connections import StalledConnections

SESSION_SECONDS = 3.0
"""How long sessions may take to end when the server does."""
STREAM_SECONDS = 1
"""How long clients may take after that."""
BACKLOG = 1024
_TICKS_BETWEEN_LOOKS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen, and how clients are sure that it is us."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: a free one."""
    tls_cert: Path | None = None
    tls_key: Path | None = None


class Serving:
    """Serves the sessions of an application until it is told to end.

    Threads:
        `run` is called on the main thread, and is the event loop; `end_soon` is for any other.
    """

    def __init__(
        self, app: TaskWeaverApp, address: Address, token: str, cwd: Path | None = None
    ) -> None:
        """Listen.

        Args:
            token: What clients must bring; empty: nothing.
            cwd: Where new sessions work; None: as the project says.

        Raises:
            ConfigError: The address cannot be had, or would let everybody in.
        """
        if not token and not is_loopback(address.host):
            raise ConfigError(
                f"Without a token everybody who reaches {address.host} could run code here. Leave"
                " out --no-token, or listen at 127.0.0.1."
            )
        self._socket = _listening(address)
        port = self._socket.getsockname()[1]
        is_secure = address.tls_cert is not None
        self._app = ServerApp(
            app,
            AccessRules(
                token=token,
                host=address.host,
                port=port,
                allowed_hosts=app.config.server.allowed_hosts,
                is_secure=is_secure,
            ),
            cwd,
        )
        scheme = "https" if is_secure else "http"
        self.url = f"{scheme}://{_in_address(address.host)}:{port}/"
        """Without the token."""
        self.exposure = tuple(_exposure(address, port))
        """What a person should know about who can reach it, a line each."""
        self._ending = threading.Lock()
        try:
            config = uvicorn.Config(
                self._app,
                ssl_certfile=address.tls_cert,
                ssl_keyfile=address.tls_key,
                loop="asyncio",
                http="h11",
                ws="websockets-sansio",
                ws_max_size=MAX_LINE_BYTES,
                ws_per_message_deflate=False,
                log_config=None,
                access_log=False,  # addresses can have a token in them
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=STREAM_SECONDS,
            )
            config.load()
        except (OSError, ValueError) as error:  # of certificates
            self._socket.close()
            raise ConfigError(f"{address.tls_cert} cannot be used: {error}.") from error
        self._server = _Server(config)

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until `end_soon`; `on_ready` is called once clients can come."""
        self._server.on_ready = on_ready
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self._end_sessions()

    def end_soon(self) -> None:
        """End the sessions, then the streams of all clients, then `run`."""
        self._end_sessions()
        self._server.should_exit = True

    def _end_sessions(self) -> None:
        if self._app.sessions is not None and self._ending.acquire(blocking=False):
            self._app.sessions.close(SESSION_SECONDS)


class _Server(uvicorn.Server):
    """Says when it is ready, leaves signals to others, and ends what stalls."""

    on_ready: Callable[[], None]

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stalled = StalledConnections(STALLED_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        if counter % _TICKS_BETWEEN_LOOKS == 0:
            self._stalled.look(self.server_state.connections)
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept clients."""
        await super().startup(sockets)
        if self.started:
            self.on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals be: the command hears them."""
        yield


def _exposure(address: Address, port: int) -> Iterator[str]:
    if is_loopback(address.host):
        return
    yield (
        f"Everybody who can reach this machine at port {port} and has the token can run code here,"
        " read and change the files that such code can, and see all sessions of the project."
    )
    if address.tls_cert is None:
        yield (
            "Without --tls-cert and --tls-key, the token and all that is sent can be read on the"
            " way. Use them, or a tunnel, outside a network that you trust."
        )


def _listening(address: Address) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"There is no address {address.host!r} here: {error}.") from error
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(place)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise ConfigError(
            f"{address.host} port {address.port} cannot be listened at: {error.strerror}. Choose"
            " another with --port, or 0 for a free one."
        ) from error
    return opened


def _in_address(host: str) -> str:
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).version == 6:
            return f"[{host}]"
    return host
