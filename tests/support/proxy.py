"""A proxy between a client and a server that can be told to fail."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable


class FailingProxy:
    """Pass bytes on, until told otherwise.

    Threads:
        One accepts, two per connection pass bytes on. `_may_pass` holds them
        all up; `_lock` guards the list of connections.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._refuses = False
        self._holes: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.passed_bytes = 0
        """What the server has sent to clients so far."""
        self.connections = 0
        self.on_passed: Callable[[int], None] = lambda _total: None
        self._start(self._accept)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Break all connections; new ones work."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Pass nothing on, in old connections and new ones, without a sign."""
        self._may_pass.clear()

    def go_on(self) -> None:
        """Pass on what has waited."""
        self._may_pass.set()

    def swallow(self) -> None:
        """Old connections are a black hole from now on; new ones work."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        self._holes = [*self._holes, *(end for pair in pairs for end in pair)]

    def refuse(self) -> None:
        """Break all connections and accept no more."""
        self._refuses = True
        self.cut()

    def allow(self) -> None:
        """Accept connections again."""
        self._refuses = False

    def close(self) -> None:
        """End everything."""
        self._refuses = True
        self.go_on()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for end in self._holes:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

        for thread in self._threads:
            thread.join()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name="proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self._refuses:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                with self._lock:
                    self._pairs.append((client, server))
                for source, sink, counts in ((client, server, False), (server, client, True)):
                    self._start(functools.partial(self._pass, source, sink, counts))

    def _pass(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._may_pass.wait()
                if source in self._holes:
                    continue
                sink.sendall(data)
                if counts:
                    self.passed_bytes += len(data)
                    self.on_passed(self.passed_bytes)
        if source not in self._holes:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
        source.close()
