"""The channels to a kernel in a container: sockets in a shared folder, or published ports.

In a shared folder we listen and the kernel connects, so that the folder can
be read-only to it. Published ports are the other way round: the kernel
listens, and the client that connects proves to know the key.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import zmq

from taskweaver_ext.ces.inside.kernel.plugin_api import ARTIFACT_MIME
from taskweaver_ext.ces.inside.kernel.wire import CHALLENGE_BYTES, proof, receive_exactly
from taskweaver_ext.ces.kernels.client.host import MessageReceived, Received
from taskweaver_ext.ces.kernels.client.jupyter_messages import MessageFormat
from taskweaver_ext.ces.kernels.client.notifying_connection import LimitsMet, NotifyingConnection
from taskweaver_ext.ces.kernels.client.wire import (
    CONTROL_PORT,
    HEARTBEAT_PORT,
    IOPUB_PORT,
    SHELL_PORT,
    STDIN_PORT,
    Waker,
    WireListener,
)
from taskweaver_ext.ces.kernels.container.description import (
    CHANNEL_PORTS,
    INSIDE_FOLDER,
    WIRE_PORT,
)

AttachChannel = Callable[["zmq.Socket[bytes]", int], None]
"""Binds or connects a channel that has one of the numbers of `client/wire.py`."""

_RETRY_SECONDS = 0.02


class KernelChannels(Protocol):
    """How one kernel is reached; made before its container, closed after it."""

    def kernel_settings(self) -> dict[str, Any]:
        """What the kernel must know of it."""

    def connection_file(self) -> dict[str, Any]:
        """Where Jupyter's channels are, as the kernel sees it."""

    def open_wire(self, published: Mapping[int, int], seconds: float, end: Waker) -> socket.socket:
        """Wait for the side socket; raises TimeoutError, or ConnectionError when `end` woke.

        Args:
            published: Where the container's ports are found on this machine.
        """

    def attach(self, channel: zmq.Socket[bytes], port: int, published: Mapping[int, int]) -> None:
        """Bind or connect one of our channels."""

    def close(self) -> None:
        """Let go of what it opened itself."""


class SharedFolderChannels:
    """Sockets in a folder that both sides see."""

    def __init__(self, folder: Path, chown: Callable[[Path], None]) -> None:
        """Listen in a folder.

        Args:
            chown: Lets the container's user own a socket there.
        """
        self._folder = folder
        self._chown = chown
        self._listener = WireListener(folder / "wire")
        try:
            chown(folder / "wire")
        except OSError:
            self._listener.close()
            raise

    def kernel_settings(self) -> dict[str, Any]:
        return {"socket_path": f"{INSIDE_FOLDER}/wire", "connects_channels": True}

    def connection_file(self) -> dict[str, Any]:
        return {
            "transport": "ipc",
            "ip": f"{INSIDE_FOLDER}/channel",
            "shell_port": SHELL_PORT,
            "iopub_port": IOPUB_PORT,
            "stdin_port": STDIN_PORT,
            "control_port": CONTROL_PORT,
            "hb_port": HEARTBEAT_PORT,
        }

    def open_wire(self, _published: Mapping[int, int], seconds: float, end: Waker) -> socket.socket:
        poller = select.poll()
        poller.register(self._listener.fileno(), select.POLLIN)
        poller.register(end.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll(seconds * 1000)}
        if self._listener.fileno() in ready:
            return self._listener.accept()
        raise ConnectionError if ready else TimeoutError

    def attach(self, channel: zmq.Socket[bytes], port: int, published: Mapping[int, int]) -> None:
        path = self._folder / f"channel-{port}"
        channel.bind(f"ipc://{path}")
        self._chown(path)

    def close(self) -> None:
        self._listener.close()


class PublishedPortChannels:
    """TCP ports of the container, published on this machine's 127.0.0.1."""

    def __init__(self, key: str) -> None:
        self._key = key

    def kernel_settings(self) -> dict[str, Any]:
        return {"socket_path": f"tcp://{self._key}@0.0.0.0:{WIRE_PORT}"}

    def connection_file(self) -> dict[str, Any]:
        return {
            "transport": "tcp",
            "ip": "0.0.0.0",
            "shell_port": CHANNEL_PORTS[SHELL_PORT],
            "stdin_port": CHANNEL_PORTS[STDIN_PORT],
            "control_port": CHANNEL_PORTS[CONTROL_PORT],
            "iopub_port": 0,
            "hb_port": 0,
        }

    def open_wire(self, published: Mapping[int, int], seconds: float, end: Waker) -> socket.socket:
        if WIRE_PORT not in published:
            raise ConnectionError("the engine has published no ports of the container")
        poller = select.poll()
        poller.register(end.fileno(), select.POLLIN)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if wire := connect_to_port(published[WIRE_PORT], self._key):
                return wire
            if poller.poll(_RETRY_SECONDS * 1000):
                raise ConnectionError
        raise TimeoutError

    def attach(self, channel: zmq.Socket[bytes], port: int, published: Mapping[int, int]) -> None:
        channel.connect(f"tcp://127.0.0.1:{published[CHANNEL_PORTS[port]]}")

    def close(self) -> None:
        pass


def connect_to_port(port: int, key: str, name: str = "") -> socket.socket | None:
    """Connect to a published port and prove to know the key; None until the kernel listens.

    Until then the engine's proxy accepts only to hang up.

    Args:
        name: What the connection calls itself, where it has to.
    """
    connection = socket.socket()
    connection.settimeout(1)
    try:
        connection.connect(("127.0.0.1", port))
        challenge = receive_exactly(connection, CHALLENGE_BYTES)
        if len(challenge) == CHALLENGE_BYTES:
            connection.sendall(proof(key, challenge) + name.encode())
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(None)
            return connection
    except OSError:
        pass  # not yet
    connection.close()
    return None


class ControlChannel:
    """Interrupt a kernel, from any thread.

    Threads:
        `_lock` guards the socket, which has no thread of its own.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], key: str, attach: AttachChannel
    ) -> None:
        self._lock = threading.Lock()
        self._format = MessageFormat(key)
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        try:
            attach(self._socket, CONTROL_PORT)
        except BaseException:
            self._socket.close()
            raise

    def request_interrupt(self, ordinal: int) -> None:
        """Ask the kernel to interrupt itself and its children, if this request is what it runs."""
        with self._lock, contextlib.suppress(zmq.Again):
            if self._socket.closed:
                return
            with contextlib.suppress(zmq.Again):
                while True:  # earlier replies, which tell nothing
                    self._socket.recv_multipart(zmq.NOBLOCK)
            meant = {"taskweaver": {"ordinal": ordinal}}
            message = self._format.pack("interrupt_request", {}, metadata=meant)
            self._socket.send_multipart(message, zmq.NOBLOCK)

    def close(self) -> None:
        """Close it; there is nothing to interrupt any more."""
        with self._lock:
            self._socket.close()


class ContainerConnection(NotifyingConnection):
    """A `NotifyingConnection` to a container.

    Threads:
        As its base; `interrupt` is safe from any thread.
    """

    def __init__(
        self,
        *,
        context: zmq.Context[zmq.Socket[bytes]],
        key: str,
        wire: socket.socket,
        attach: AttachChannel,
        control: ControlChannel,
        death_descriptor: int,
        limits_met: LimitsMet,
        paths: tuple[str, str] | None = None,
    ) -> None:
        """See the base class.

        Args:
            paths: The working directory inside and outside, where they differ.
        """
        self._attach_channel = attach
        super().__init__(
            context=context,
            address="",
            key=key,
            wire=wire,
            death_descriptor=death_descriptor,
            limits_met=limits_met,
        )
        self._control = control
        self._paths = paths
        self.kernel_pid = _pid_of_peer(wire)
        """The kernel's process as this machine numbers it, where that can be told."""

    def _attach(self, channel: zmq.Socket[bytes], port: int) -> None:
        self._attach_channel(channel, port)

    def interrupt(self) -> None:
        """Interrupt the execution that was requested last; not the next one, should it be late."""
        self._control.request_interrupt(self.latest_ordinal)

    def close(self) -> None:
        """Let go of everything."""
        self._control.close()
        super().close()

    def receive(self, timeout: float | None) -> Iterator[Received]:
        """As the base does, with paths of this machine."""
        for received in super().receive(timeout):
            if isinstance(received, MessageReceived) and self._paths is not None:
                _translate_path(received.content, *self._paths)
            yield received


def _pid_of_peer(wire: socket.socket) -> int | None:
    if wire.family != socket.AF_UNIX:
        return None
    credentials = wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid or None  # 0: it is none that we can see


def _translate_path(content: dict[str, Any], inside: str, outside: str) -> None:
    """Make the path of an announced file one of this machine; it is checked later."""
    bundle = content.get("data")
    announcement = bundle.get(ARTIFACT_MIME) if isinstance(bundle, dict) else None
    if isinstance(announcement, dict):
        path = str(announcement.get("path", ""))
        if path.startswith(f"{inside}/"):
            announcement["path"] = f"{outside}{path[len(inside) :]}"
