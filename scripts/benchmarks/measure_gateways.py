"""Kernels behind a gateway, against a bare websocket client of the same gateway."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import struct
import uuid
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import httpx
import websocket

from scripts.benchmarks.bench import Bench, SkippedError
from scripts.benchmarks.measure_kernels import milliseconds_to_execute
from scripts.benchmarks.measure_output import flushed_latencies, large_writes, speed_row
from scripts.benchmarks.peers import OnText, OurPeer, Peer, PeerError, ignore, started
from scripts.benchmarks.rows import RAW, Row, at_least, at_most, interleave
from taskweaver_ext import EnvMode
from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings
from taskweaver_ext.ces.kernels.gateway.shared_gateway import SharedGateway

_PROTOCOL = "v1.kernel.websocket.jupyter.org"
_SILENCE_SECONDS = 60.0
_MEGABYTES, _MEGABYTES_QUICK = 64, 16


def measure_gateway(bench: Bench) -> Iterator[Row]:
    """Round trip, latency and throughput."""
    if find_spec("kernel_gateway") is None:
        raise SkippedError("there is no gateway; pip install jupyter_kernel_gateway")
    gateway = SharedGateway(bench.folder / "gateway")
    settings = gateway.connect()
    try:
        with bench.make_environment(env_mode=EnvMode.Gateway, gateway=settings) as environment:
            peers: list[Peer] = [OurPeer(environment), BarePeer(settings)]
            with started(*peers):
                yield _execute_row(bench, peers)
                yield _latency_row(bench, peers)
                flood = large_writes(_MEGABYTES_QUICK if bench.sizes.is_quick else _MEGABYTES)
                yield speed_row(
                    "gateway", peers, flood, bench.sizes.repetitions, at_least(0.8, RAW)
                )
    finally:
        gateway.stop()


def _execute_row(bench: Bench, peers: Sequence[Peer]) -> Row:
    for peer in peers:
        peer.execute("pass", ignore)
    return Row(
        name="gateway",
        title="gateway: execute `pass`",
        unit="ms",
        samples=interleave(
            bench.sizes.small_repetitions,
            {peer.name: functools.partial(milliseconds_to_execute, peer) for peer in peers},
        ),
        goals=[at_most(1.5, RAW)],
    )


def _latency_row(bench: Bench, peers: Sequence[Peer]) -> Row:
    return Row(
        name="gateway",
        title="gateway: flushed print to callback",
        unit="ms",
        samples=flushed_latencies(bench, peers),
        goals=[at_most(1.5, RAW)],
    )


class BarePeer:
    """A stock kernel of the gateway, and the least that a websocket client can do with it."""

    name = RAW

    def __init__(self, settings: GatewaySettings) -> None:
        self._headers = {"Authorization": f"token {settings.token}"}
        self._http = httpx.Client(base_url=settings.url, headers=self._headers, trust_env=False)
        self._address = settings.url.replace("http", "ws", 1)
        self._session = uuid.uuid4().hex

    def start(self) -> None:
        """Start the kernel and wait for its first reply."""
        self._path = f"/api/kernels/{self._http.post('/api/kernels', json={}).json()['id']}"
        self._line: Any = websocket.create_connection(
            f"{self._address}{self._path}/channels?session_id={self._session}",
            header=self._headers,
            subprotocols=[_PROTOCOL],
            sockopt=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            skip_utf8_validation=True,
            timeout=_SILENCE_SECONDS,
        )
        self.execute("pass", ignore)

    def execute(self, code: str, on_text: OnText) -> None:
        """Send a request and read until its reply and the kernel's word that it is idle."""
        request = uuid.uuid4().hex
        self._line.send_binary(self._pack(request, code))
        awaited = {"reply", "idle"}
        while awaited:
            # Without this the kernel would wait for delayed acknowledgements, for 40 ms.
            self._line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            kind, parent, content = _unpack(self._line.recv())
            if parent != request:
                continue
            if kind == "stream":
                on_text(content["text"])
            elif kind == "status" and content["execution_state"] == "idle":
                awaited.discard("idle")
            elif kind == "execute_reply":
                awaited.discard("reply")
                if content["status"] != "ok":
                    raise PeerError(str(content.get("evalue")))

    def _pack(self, request: str, code: str) -> bytes:
        header = {
            "msg_id": request,
            "msg_type": "execute_request",
            "session": self._session,
            "username": "",
            "date": "",
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "allow_stdin": False}
        parts = [b"shell", *(json.dumps(part).encode() for part in (header, {}, {}, content))]
        offsets = [8 * (len(parts) + 2)]
        for part in parts:
            offsets.append(offsets[-1] + len(part))
        return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)

    def interrupt(self) -> None:
        """Ask the gateway to."""
        self._http.post(f"{self._path}/interrupt").raise_for_status()

    def stop(self) -> None:
        """End the kernel."""
        self._line.shutdown()
        with contextlib.suppress(httpx.HTTPError):
            self._http.delete(self._path)
        self._http.close()


def _unpack(data: bytes) -> tuple[str, str, dict[str, Any]]:
    """The kind of a message, the request it belongs to, and what it says."""
    (count,) = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from(f"<{count}Q", data, 8)
    header, parent, _metadata, content = (
        json.loads(data[offsets[i] : offsets[i + 1]]) for i in range(1, 5)
    )
    return header["msg_type"], parent.get("msg_id", ""), content
