"""The channel to the process that starts programs in a container (`inside/spawner/spawner.py`).

Code in the container runs as the same user as that process and may take its
place: what comes from it is checked, bounded, and never more than numbers and texts.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import queue
import select
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from taskweaver_ext.ces.inside.spawner.spawner_channels import CONTROL, pack_frame, read_frames
from taskweaver_ext.ces.kernels.client.checked_fields import CheckedFields
from taskweaver_ext.ces.kernels.client.wire import WireListener
from taskweaver_ext.ces.kernels.container.connection import connect_to_port
from taskweaver_ext.ces.kernels.container.description import INSIDE_FOLDER, PROGRAMS_PORT
from taskweaver_ext.errors import ProtocolError

PAUSED_SECONDS = 0.5
"""How long a paused container is waited for: it may be resumed this moment."""
ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 20.0
_RETRY_SECONDS = 0.02
_SEND_SECONDS = 10
"""A spawner that reads nothing for so long is gone."""
_MAX_FRAME_BYTES = 1 << 20
"""What it says of some thousand processes is less."""
_MOST = 1 << 31
_MOST_ANSWERS = 2
"""To one request: the answer, and the end of what was started."""
_MAX_ERROR_CHARACTERS = 1000
_READ_BYTES = 1 << 18


def answer_seconds(*, is_paused: bool) -> float:
    """How long to wait for an answer."""
    return PAUSED_SECONDS if is_paused else ANSWER_SECONDS


class SpawnerLostError(Exception):
    """The spawner will never answer."""


class SpawnerSilentError(Exception):
    """The spawner has not answered in time."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of a process: the end that is ours, and what its other side is called."""

    descriptor: int
    name: str
    theirs: int | None = None
    """The other end, if it is to be sent along."""


class SpawnerChannel(Protocol):
    """How the spawner of one container is reached; made before its container, closed after it."""

    address: str | int
    """Where the spawner finds us, or waits for us."""

    def connect(self, published: Mapping[int, int], is_over: Callable[[], bool]) -> socket.socket:
        """Open the connection for requests; raises SpawnerLostError or SpawnerSilentError.

        Args:
            published: Where the container's ports are found on this machine.
        """

    def open_stream(self, published: Mapping[int, int], *, is_input: bool = False) -> Stream:
        """A stream for a process that is about to be started.

        Raises OSError or SpawnerSilentError.
        """

    def close(self) -> None:
        """Let go of what it opened itself."""


class SharedFolderSpawnerChannel:
    """A socket in the shared folder; the ends of pipes are sent through it."""

    address: str | int = f"{INSIDE_FOLDER}/programs"

    def __init__(self, folder: Path, chown: Callable[[Path], None]) -> None:
        self._listener = WireListener(folder / "programs")
        try:
            chown(folder / "programs")
        except OSError:
            self._listener.close()
            raise

    def connect(self, _published: Mapping[int, int], is_over: Callable[[], bool]) -> socket.socket:
        """Accept the connection that the spawner opened when it started."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        poller = select.poll()
        poller.register(self._listener.fileno(), select.POLLIN)
        while not is_over() and time.monotonic() < deadline:
            if poller.poll(_RETRY_SECONDS * 1000):
                return self._listener.accept()
        raise SpawnerLostError if is_over() else SpawnerSilentError

    def open_stream(self, _published: Mapping[int, int], *, is_input: bool = False) -> Stream:
        """A pipe."""
        receiver, sender = os.pipe()
        ours, theirs = (sender, receiver) if is_input else (receiver, sender)
        return Stream(ours, "", theirs)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


class PublishedPortSpawnerChannel:
    """A published port, with a connection for each stream."""

    address: str | int = PROGRAMS_PORT

    def __init__(self, key: str) -> None:
        self._key = key

    def connect(self, published: Mapping[int, int], is_over: Callable[[], bool]) -> socket.socket:
        """Connect as soon as the spawner listens."""
        if PROGRAMS_PORT not in published:
            raise SpawnerLostError  # it has ended before its ports could be known
        deadline = time.monotonic() + _CONNECT_SECONDS
        poller = select.poll()
        while not is_over() and time.monotonic() < deadline:
            if connection := connect_to_port(published[PROGRAMS_PORT], self._key, CONTROL):
                return connection
            poller.poll(_RETRY_SECONDS * 1000)
        raise SpawnerLostError if is_over() else SpawnerSilentError

    def open_stream(self, published: Mapping[int, int], *, is_input: bool = False) -> Stream:
        """A connection of its own."""
        name = uuid.uuid4().hex
        connection = connect_to_port(published[PROGRAMS_PORT], self._key, name)
        if connection is None:
            raise SpawnerSilentError
        return Stream(connection.detach(), name)

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class ProcessStatus:
    """What is known of a process; written by the client's thread."""

    number: int
    code: int | None = None
    """How it ended; None until the spawner has said so."""
    on_change: Callable[[], None] = field(default=lambda: None)
    """Called on the client's thread."""


class SpawnerClient:
    """Ask the spawner for things, from any thread.

    Threads:
        One of its own receives answers. `_lock` guards `_waiting`, `_processes`
        and `is_lost`; `_sending` is held while a request is sent.
    """

    def __init__(
        self, connection: socket.socket, on_lost: Callable[[str], object], session_id: str
    ) -> None:
        """Begin to receive.

        Args:
            on_lost: Called at the end, on the client's thread, with what of what came made no
                sense; empty if the connection just broke.
        """
        self._connection = connection
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._processes: dict[int, ProcessStatus] = {}
        self._asked = 0
        self._received = 0
        self.is_lost = False
        seconds = struct.pack("ll", _SEND_SECONDS, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        self._thread = threading.Thread(
            target=self._receive, name=f"taskweaver-spawner-{session_id}", daemon=True
        )
        self._thread.start()

    def start(
        self, arguments: Mapping[str, object], streams: Sequence[Stream], *, seconds: float
    ) -> tuple[object, ProcessStatus]:
        """Start a process; return what the spawner says of it, and what it will say.

        Raises as `ask` does; a process that is started too late is ended.
        """
        status = ProcessStatus(next(self._ids))
        with self._lock:
            self._processes[status.number] = status  # it may end before we know that it has started
        try:
            return self._request(status.number, "start", arguments, streams, seconds), status
        except BaseException as error:
            self.forget(status)
            if not isinstance(error, (OSError, ValueError)):
                self.abandon(status)
            raise

    def abandon(self, status: ProcessStatus) -> None:
        """End a process that the caller will not look after, as soon as it has been started."""
        self.send("abandon", {"process": status.number})

    def ask(self, what: str, arguments: Mapping[str, object], *, seconds: float) -> object:
        """Ask and wait for the answer.

        Raises:
            OSError, ValueError: What was asked for failed, there.
            SpawnerLostError: There will be no answer.
            SpawnerSilentError: There was no answer in time.
        """
        return self._request(next(self._ids), what, arguments, (), seconds)

    def _request(
        self,
        number: int,
        what: str,
        arguments: Mapping[str, object],
        streams: Sequence[Stream],
        seconds: float,
    ) -> object:
        answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            if self.is_lost:
                raise SpawnerLostError
            self._waiting[number] = answers
            self._asked += 1
        try:
            self._send({"id": number, "do": what, "with": dict(arguments)}, streams)
            answer = answers.get(timeout=seconds)
        except queue.Empty as error:
            raise SpawnerSilentError from error
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if "error" not in answer:
            return answer.get("result")
        if answer == _LOST:
            raise SpawnerLostError
        code = answer.get("errno")
        if isinstance(code, int) and code in errno.errorcode:
            raise OSError(code, os.strerror(code))
        raise ValueError(str(answer["error"]))

    def send(self, what: str, arguments: Mapping[str, Any]) -> None:
        """Ask for something that has no answer."""
        with contextlib.suppress(SpawnerLostError):
            self._send({"do": what, "with": dict(arguments)})

    def forget(self, status: ProcessStatus) -> None:
        """Drop what is known of a process."""
        with self._lock:
            self._processes.pop(status.number, None)

    def disconnect(self) -> None:
        """Break the connection: all callers who wait learn that no answer will come."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection and wait for the thread."""
        self.disconnect()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._connection.close()

    def _send(self, message: Mapping[str, Any], streams: Sequence[Stream] = ()) -> None:
        frame = memoryview(pack_frame({**message, "streams": [each.name for each in streams]}))
        rights = [stream.theirs for stream in streams if stream.theirs is not None]
        try:
            with self._sending:
                if rights:
                    sent = socket.send_fds(self._connection, [frame], rights)
                    frame = frame[sent:]
                self._connection.sendall(frame)
        except OSError as error:
            self.disconnect()  # half a message may be on its way
            raise SpawnerLostError from error

    def _receive(self) -> None:
        unread = bytearray()
        nonsense = ""
        try:
            # What is sent along with it is left out by `recv`, and closed by the system.
            while data := self._connection.recv(_READ_BYTES):
                unread += data
                for message in read_frames(unread, _MAX_FRAME_BYTES):
                    self._receive_message(message)
        except OSError:
            pass  # the connection broke
        except (ValueError, RecursionError, ProtocolError) as error:  # not from our spawner
            nonsense = str(error).removesuffix(".")
        with self._lock:
            self.is_lost = True
            waiting = list(self._waiting.values())
            processes = list(self._processes.values())
        for answers in waiting:
            answers.put(_LOST)
        for status in processes:
            status.on_change()
        self._on_lost(nonsense)

    def _receive_message(self, message: dict[str, Any]) -> None:
        fields = CheckedFields(message, "A spawner")
        self._received += 1
        if self._received > _MOST_ANSWERS * self._asked:
            raise ProtocolError("A spawner said more than it was asked.")
        if "ended" in message:
            number, code = fields.count("ended"), fields.whole_number("code")
            if code is None or not -_MOST <= code < _MOST:
                raise ProtocolError("A spawner told of an end without an exit code.")
            with self._lock:
                status = self._processes.get(number)
                if status is not None:
                    status.code = code
            if status is not None:
                status.on_change()
            return
        if "error" in message:
            message = {**message, "error": fields.text("error")[:_MAX_ERROR_CHARACTERS]}
        with self._lock:
            answers = self._waiting.pop(fields.count("id"), None)  # the first answer counts
        if answers is not None:
            answers.put(message)


_LOST: dict[str, Any] = {"error": "lost"}
