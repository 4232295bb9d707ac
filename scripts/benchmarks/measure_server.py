"""What a server adds: from `print` to a client of its WebSocket, and much output through it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

from scripts.benchmarks.bench import Bench
from scripts.benchmarks.measure_output import (
    PRINT_THE_CLOCK,
    SLEEP,
    WARM_UP,
    ClockReader,
    short_prints,
)
from scripts.benchmarks.peers import PeerError
from scripts.benchmarks.rows import LOCAL, OURS, Row, at_most, interleave
from taskweaver_ext import RemoteSession

_WAIT_SECONDS = 120.0


class _Client:
    """One client on the WebSocket of a session of a server of its own."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def execute(self, code: str, on_text: Callable[[str], None]) -> None:
        """Run code, and pass on its output as it arrives."""
        self._connection.send(json.dumps({"command": "run_code", "code": code, "id": 1}))
        while True:
            event: dict[str, Any] = json.loads(self._connection.recv(timeout=_WAIT_SECONDS))
            if event.get("event") == "post_execution_output":
                on_text(event["msg"])
            elif event.get("reply") in ("done", "refused"):
                if event["reply"] == "refused" or event["outcome"]["state"] != "finished":
                    raise PeerError(str(event))
                return


@contextlib.contextmanager
def _connected(bench: Bench) -> Iterator[_Client]:
    folder = bench.folder / "server"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "taskweaver_ext.cli", "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url, _, token = server.stdout.readline().strip().partition("?token=")
            with RemoteSession(f"{url}?token={token}") as session:
                place = f"api/v1/sessions/{session.session_id}/events"
                with connect(
                    url.replace("http", "ws", 1) + place,
                    additional_headers={"authorization": f"Bearer {token}"},
                    max_size=None,
                    proxy=None,
                    compression=None,
                ) as connection:
                    client = _Client(connection)
                    client.execute(WARM_UP, lambda _text: None)
                    yield client
        finally:
            server.terminate()


def measure_server(bench: Bench) -> Iterator[Row]:
    """The same code with its output to a client of a server, and to a callback here."""
    flood = short_prints(bench.sizes.prints)
    code = PRINT_THE_CLOCK.format(samples=bench.sizes.latency_samples, wait=SLEEP, flush="")
    received, called = ClockReader(), ClockReader()
    peer = bench.our_peer()
    peer.start()
    try:
        with _connected(bench) as client:
            peer.execute(WARM_UP, lambda _text: None)
            for _ in range(bench.sizes.repetitions):
                client.execute(code, received)
                peer.execute(code, called)

            def seconds_of(execute: Callable[[str, Callable[[str], None]], None]) -> float:
                pieces: list[int] = []
                began = time.monotonic()
                execute(flood.code, lambda text: pieces.append(len(text)))
                if sum(pieces) != flood.characters:
                    raise PeerError("some output is missing")
                return time.monotonic() - began

            actions = {
                OURS: lambda: seconds_of(client.execute),
                LOCAL: lambda: seconds_of(peer.execute),
            }
            samples = interleave(2 * bench.sizes.repetitions, actions)
    finally:
        peer.stop()
    yield Row(
        name="server",
        title="print to a client of a server's WebSocket",
        unit="ms",
        samples={OURS: received.milliseconds, LOCAL: called.milliseconds},
        goals=[at_most(5, LOCAL)],
        notes=["`local` is print to callback in the same run"],
    )
    yield Row(
        name="server",
        title=f"{flood.title} to a client of a server's WebSocket",
        unit="s",
        samples=samples,
        goals=[at_most(3, LOCAL)],
        notes=["`local` is the same to a callback, without a server"],
    )
