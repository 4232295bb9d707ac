"""How the client of a container's spawner reaches it: through a shared folder, or by a port.

Both sides send each other frames of JSON.
"""

from __future__ import annotations

import array
import contextlib
import errno
import hmac
import json
import os
import secrets
import select
import socket
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..kernel.wire import CHALLENGE_BYTES, PROOF_BYTES, proof, receive_exactly
from .copying import Copying

FRAME = struct.Struct("!I")
"""What comes before each message: how long it is."""
LONGEST_FRAME = (1 << 32) - 1
CONTROL = "control".ljust(32)
"""What the first connection calls itself; those for streams have names of the same length."""
MAX_ENDED_COPIES = 100
"""So many streams that have ended can still be asked about."""

_READ_BYTES = 1 << 18
_MAX_DESCRIPTORS = 8
_PROOF_SECONDS = 1.0
_STREAM_SECONDS = 10.0
_RETRY_SECONDS = 0.1
_MAX_REFUSED = 100


def pack_frame(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    content = json.dumps(message).encode()
    return FRAME.pack(len(content)) + content


def read_frames(unread: bytearray, max_bytes: int = LONGEST_FRAME) -> list[dict[str, Any]]:
    """Remove and return the messages that are whole; raises ValueError for what none of ours is."""
    found = []
    while len(unread) >= FRAME.size:
        (size,) = FRAME.unpack_from(unread)
        if size > max_bytes:
            raise ValueError("too long")
        if len(unread) < FRAME.size + size:
            break
        message = json.loads(bytes(unread[FRAME.size : FRAME.size + size]))
        if not isinstance(message, dict):
            raise ValueError("not a message")
        found.append(message)
        del unread[: FRAME.size + size]
    return found


class FolderChannel:
    """A socket in a folder that both sides see; the client's descriptors come through it."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._unread = bytearray()
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Readable when there is a request, or the client is gone."""
        return self._socket.fileno()

    def receive(self) -> list[dict[str, Any]] | None:
        """The requests that have come, with the descriptors that came along; None at the end."""
        requests = _receive(self._read, self._unread)
        for request in requests or ():
            count = len(request.get("streams", ()))
            request["descriptors"] = self._descriptors[:count]
            del self._descriptors[:count]
        return requests

    def _read(self) -> bytes:
        items = array.array("i")
        size = socket.CMSG_SPACE(_MAX_DESCRIPTORS * items.itemsize)
        data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, size)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                items.frombytes(content[: len(content) - len(content) % items.itemsize])
        for descriptor in items:
            os.set_inheritable(descriptor, False)
        self._descriptors += items
        return data

    def send(self, message: dict[str, Any]) -> None:
        """Send an answer or a report."""
        self._socket.sendall(pack_frame(message))

    def open_streams(self, request: dict[str, Any]) -> list[int]:
        """The descriptors of a process's streams, which came along."""
        descriptors: list[int] = request["descriptors"]
        return descriptors


class PortChannel:
    """A port on which the client opens one connection for requests and one for each stream.

    Threads:
        One more accepts connections; `_arrived` guards those that no
        request has named yet. Each stream is copied on a thread of its own.
    """

    def __init__(self, key: str, port: int) -> None:
        self._key = key
        self._server = socket.create_server(("0.0.0.0", port))
        self._arrived = threading.Condition()
        self._connections: dict[str, socket.socket] = {}
        self._refused: deque[str] = deque(maxlen=_MAX_REFUSED)
        """Names of connections that are closed, or will be when they come."""
        threading.Thread(target=self._accept, daemon=True).start()
        self._socket = self._claim(CONTROL, None)
        self._unread = bytearray()
        self._folder = tempfile.mkdtemp(prefix="taskweaver-")
        self._copies: dict[str, Copying] = {}

    def fileno(self) -> int:
        """Readable when there is a request, or the client is gone."""
        return self._socket.fileno()

    def receive(self) -> list[dict[str, Any]] | None:
        """The requests that have come; None at the end."""
        return _receive(lambda: self._socket.recv(_READ_BYTES), self._unread)

    def send(self, message: dict[str, Any]) -> None:
        """Send an answer or a report."""
        self._socket.sendall(pack_frame(message))

    def open_streams(self, request: dict[str, Any]) -> list[int]:
        """A descriptor for each stream of a process."""
        has_input = bool(request["with"].get("has_open_stdin"))
        unopened = deque(request["streams"])
        opened: list[int] = []
        try:
            while unopened:
                is_input = has_input and not opened
                opened.append(self._open(unopened.popleft(), is_input=is_input))
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            self._refuse(unopened)
            raise
        return opened

    def make_pipe(self, name: str) -> str:
        """Make a named pipe whose content goes to the connection of that name."""
        connection = self._claim(name)
        path = os.path.join(self._folder, name)
        with contextlib.ExitStack() as made:
            made.callback(connection.close)
            os.mkfifo(path, 0o600)
            made.callback(os.unlink, path)
            receiver = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            made.pop_all()
        self._keep(name, Copying(receiver, connection.detach(), path))
        return path

    def written_bytes(self, name: str) -> int:
        """How many bytes a stream's writers have written by now."""
        return self._copies[name].written_bytes()

    def _open(self, name: str, *, is_input: bool) -> int:
        """The end of a pipe for a process; the other one is copied to or from a connection."""
        connection = self._claim(name)
        try:
            receiver, sender = os.pipe()
        except OSError:
            connection.close()
            raise
        theirs = receiver if is_input else sender
        try:
            if is_input:
                Copying(connection.detach(), sender)
            else:
                self._keep(name, Copying(receiver, connection.detach()))
        except RuntimeError:
            os.close(theirs)
            raise
        return theirs

    def _keep(self, name: str, copying: Copying) -> None:
        """Remember a stream that the client may ask about, even after its end."""
        ended = [name for name, copying in self._copies.items() if copying.has_ended]
        for forgotten in ended[:-MAX_ENDED_COPIES]:
            del self._copies[forgotten]
        self._copies[name] = copying

    def _claim(self, name: str, seconds: float | None = _STREAM_SECONDS) -> socket.socket:
        with self._arrived:
            self._arrived.wait_for(
                lambda: name in self._connections or name in self._refused, seconds
            )
            if name in self._connections:
                return self._connections.pop(name)
            self._refused.append(name)
            raise TimeoutError(errno.ETIMEDOUT, f"the client has not opened {name}")

    def _refuse(self, names: Iterable[str]) -> None:
        """Close the connections of these names, also those that are still to come."""
        for name in names:
            with contextlib.suppress(TimeoutError):
                self._claim(name, 0).close()

    def _close_abandoned(self) -> None:
        """Close what the client has closed without asking for anything that uses it."""
        for name, connection in list(self._connections.items()):
            poller = select.poll()
            poller.register(connection, select.POLLRDHUP)
            if poller.poll(0):
                self._refused.append(name)
                self._connections.pop(name).close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # there may be no more descriptors just now
                time.sleep(_RETRY_SECONDS)
                continue
            self._authenticate(connection)

    def _authenticate(self, connection: socket.socket) -> None:
        """Keep a connection whose other side knows the key, by the name that it says."""
        challenge = secrets.token_hex(CHALLENGE_BYTES // 2).encode()
        connection.settimeout(_PROOF_SECONDS)
        try:
            connection.sendall(challenge)
            answer = receive_exactly(connection, PROOF_BYTES)
            if hmac.compare_digest(answer, proof(self._key, challenge)):
                name = receive_exactly(connection, len(CONTROL)).decode()
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._arrived:
                    self._close_abandoned()
                    if name not in self._refused:
                        self._connections[name] = connection
                        self._arrived.notify_all()
                        return
                    self._refused.remove(name)
        except (OSError, UnicodeDecodeError):
            pass
        connection.close()


def _receive(read: Callable[[], bytes], unread: bytearray) -> list[dict[str, Any]] | None:
    """Read once and return the messages that are whole; None at the end."""
    try:
        data = read()
    except OSError:
        return None
    if not data:
        return None
    unread += data
    return read_frames(unread)
