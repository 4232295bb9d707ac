"""The side socket: everything an execution says leaves the kernel here, in one order.

ZeroMQ's iopub drops messages when its reader is slow, and costs a thread
hand-over per message. A Unix stream socket does neither: its own blocking
is the backpressure, and the thread that writes is the thread that sends.
Where no socket file can be shared (a container in a virtual machine) it is a
TCP connection that the client opens, with a proof that it knows the key.

A frame is a header (kind, ordinal of the execution, length) and its payload. The other way
come questions, which are answered while code runs (`looks.py`).
"""

from __future__ import annotations

import array
import contextlib
import functools
import hashlib
import hmac
import json
import os
import secrets
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from .deferred_signals import DeferredSignals

HEADER = struct.Struct("!BII")
STDOUT, STDERR, MESSAGE, ENDED, HELLO, PIPES, RUNS, PIECE = range(8)

RUN_COUNT = struct.Struct("!I")
"""A frame of runs begins with how many there are, of stdout and stderr in turn, stdout's first;
then come their lengths, then all of stdout, then all of stderr."""
RUN_LENGTH = "I"
"""As `array` and, after "!", `struct` call the type of a run's length."""
MAX_RUNS_BYTES = 1 << 20
"""Of a frame of runs; what is larger comes as one frame for each run."""

CHALLENGE_BYTES = 32
PROOF_BYTES = 64

_BROKEN = b"broken\n{}"
_exit = os._exit
"""The system's own: the runtime replaces the name in `os`, and code may."""

_STILL_THERE_MILLISECONDS = 1000
_PROOF_SECONDS = 1.0
_MAX_RECEIVED_BYTES = 1 << 18
_TURN_SECONDS = 0.05
"""How long signals wait while another thread sends."""


def proof(key: str, challenge: bytes) -> bytes:
    """Return the answer to a challenge, which takes the key to compute."""
    return hmac.new(key.encode(), challenge, hashlib.sha256).hexdigest().encode()


def open_socket(address: str) -> socket.socket:
    """Connect to the socket at a path; or wait at tcp://KEY@HOST:PORT for a client with the key.

    "fd:NUMBER" is a connection that is open already.
    """
    if address.startswith("fd:"):
        return socket.socket(fileno=int(address[len("fd:") :]))
    if not address.startswith("tcp://"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(address)
        return connection
    key, _, place = address[len("tcp://") :].rpartition("@")
    host, _, port = place.rpartition(":")
    with socket.create_server((host, int(port))) as server:
        while True:
            connection, _ = server.accept()
            if _knows_the_key(connection, key):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            connection.close()


def _knows_the_key(connection: socket.socket, key: str) -> bool:
    challenge = secrets.token_hex(CHALLENGE_BYTES // 2).encode()
    connection.settimeout(_PROOF_SECONDS)
    try:
        connection.sendall(challenge)
        answer = receive_exactly(connection, PROOF_BYTES)
    except OSError:
        return False
    return hmac.compare_digest(answer, proof(key, challenge))


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer at the end; MSG_WAITALL does not wait where there is a timeout."""
    received = b""
    while len(received) < size and (data := connection.recv(size - len(received))):
        received += data
    return received


class FrameSender:
    """Send frames whole and in order, whichever thread asks and whatever interrupts it.

    Threads:
        `_lock` guards what is being sent and `_rest`; `_owner` is the thread that
        sends. What prints between having the one and being the other (a trace
        function, a finaliser) may send first, hence the re-entrant lock. A thread
        that is interrupted while it waits leaves the rest of its frames in
        `_rest`; the next send begins with it.
    """

    flushes_at_once = True
    """False where a message costs so much that also flushed text is sent in batches."""
    on_question: Callable[[dict[str, Any]], None]
    """Called with what the client asks, on the thread that hears it, which must not wait."""

    def __init__(self, signals: DeferredSignals) -> None:
        self._signals = signals
        self._lock = threading.RLock()
        self._owner = 0
        self._rest = memoryview(b"")

    def fileno(self) -> int:
        """A descriptor: readable means that there is something to `receive`."""
        raise NotImplementedError

    def receive(self) -> None:
        """Read what the client asks; this process ends if the client is gone."""

    def send_all(self, drain: Callable[[], bytes]) -> bool:
        """Send what `drain` gives; wait while there is no room.

        A signal handler or a finaliser may print in the middle of this: it
        comes here on the same thread, nothing is sent, and it is told so.
        """
        this_thread = threading.get_ident()
        if self._owner == this_thread:
            return False
        self._signals.hold()
        try:
            while not self._lock.acquire(timeout=_TURN_SECONDS):
                self._signals.release()  # for an interrupt that came while we waited
                self._signals.hold()
            try:
                self._owner = this_thread
                self._signals.hold()  # a print meanwhile has released them
                self._send_rest()
                self._rest = memoryview(drain())
                self._send_rest()
            finally:
                self._owner = 0
                self._lock.release()
        finally:
            self._signals.release()
        return True

    def send_pipes(self, ordinal: int, descriptors: list[int]) -> None:
        """Hand over the reading ends of an execution's pipes, where that is possible."""

    def settle(self, ending: dict[str, int]) -> None:
        """What was sent must arrive, even if this process now ends in this way."""

    def break_down(self) -> NoReturn:
        """End this process: code has broken what would go on."""
        _exit(1)

    def _send_rest(self) -> None:
        raise NotImplementedError

    def after_fork_in_child(self) -> None:
        """A forked child does not speak for its parent."""
        self._lock = threading.RLock()
        self._owner = 0
        self._rest = memoryview(b"")


class Wire(FrameSender):
    """Frames on a stream socket; when it is full, the writer waits."""

    def __init__(self, address: str, signals: DeferredSignals) -> None:
        super().__init__(signals)
        self._socket = open_socket(address)
        self._socket.setblocking(False)
        self._asked = b""
        last_words = HEADER.pack(MESSAGE, 0, len(_BROKEN)) + _BROKEN
        # Made now, when everything works.
        self._say_last_words = functools.partial(self._socket.send, last_words)

    def break_down(self) -> NoReturn:
        """Tell the client, and end this process."""
        try:
            if not self._rest:
                self._say_last_words()
        finally:
            super().break_down()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def receive(self) -> None:
        """Read questions, a line of JSON each; for one thread."""
        try:
            data = self._socket.recv(_MAX_RECEIVED_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            end_with_all_children()
        *lines, self._asked = (self._asked + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # code has read a part of it
                self.on_question(json.loads(line))

    def send_pipes(self, ordinal: int, descriptors: list[int]) -> None:
        """Hand over the reading ends of an execution's pipes: what is in them outlives us."""
        if self._socket.family != socket.AF_UNIX:
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        frame = [HEADER.pack(PIPES, ordinal, 0)]

        def drain() -> bytes:
            while frame:
                with contextlib.suppress(BlockingIOError):
                    sent = self._socket.sendmsg(frame, rights)
                    return frame.pop()[sent:]
                self._wait_until_writable()
            return b""

        self.send_all(drain)

    def _send_rest(self) -> None:
        while self._rest:
            try:
                self._rest = self._rest[self._socket.send(self._rest) :]
            except BlockingIOError:
                # Nothing is half done here, so an interrupt may come through.
                self._signals.release()
                self._wait_until_writable()
                self._signals.hold()
            except OSError:
                end_with_all_children()

    def _wait_until_writable(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT)
        poller.poll(_STILL_THERE_MILLISECONDS)

    def after_fork_in_child(self) -> None:
        """A forked child does not speak on its parent's socket."""
        self._socket.close()
        super().after_fork_in_child()


def end_with_all_children() -> None:
    """End this kernel and what it started: its client is gone."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
