"""The connection to a kernel on the same machine: ZeroMQ for requests, a side socket for output.

What executions say arrives on the side socket (`inside/kernel/wire.py` is its
other end), complete and in order; requests, answers and completions travel on
Jupyter's own channels. Works for local processes and for containers that share
a folder with us.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import stat
import threading
import time
from array import array
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import zmq

from taskweaver_ext.ces.execution.output_runs import STREAMS
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.ces.kernels.client.frames import FrameReader
from taskweaver_ext.ces.kernels.client.host import (
    ExecuteRequest,
    KernelGone,
    MessageReceived,
    OutputReceived,
    Received,
)
from taskweaver_ext.ces.kernels.client.jupyter_messages import (
    ALIVE,
    MessageFormat,
    execute_content,
)
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.machine.forks import closed_in_forks

SHELL_PORT, IOPUB_PORT, STDIN_PORT, CONTROL_PORT, HEARTBEAT_PORT = range(1, 6)
"""The "ports" of a connection over `ipc`: what its socket files end with."""

_RECONNECT_MILLISECONDS = 2
"""A kernel that is starting binds its channels any moment now."""
_CONNECT_MILLISECONDS = 100
"""After so long without a connection to a kernel that is ready, we look whether it lives."""
_SEND_MILLISECONDS = 500
"""After so long a kernel that accepts no message counts as gone."""
_RECEIVE_BYTES = 1 << 18
_MAX_PIPE_BYTES = 1 << 20
_MAX_PASSED_DESCRIPTORS = 16
_MAX_KEPT_PIPES = 64
_MAX_REST_BYTES = 1 << 23
"""What a socket holds of a kernel that is gone is less; a child that writes on is not heard out."""
_MAX_REPLY_BYTES = 1 << 20
_MAX_REPLIES = 16
"""Replies come on the side socket: what else a kernel sends us takes no more room than this."""
_CLOSED_SECONDS = 0.5
"""How long a kernel that closes its channel for requests may take to be gone."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(_MAX_PASSED_DESCRIPTORS * array("i").itemsize)


class WireListener:
    """A private folder's socket on which one kernel says hello."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(path))
            self._socket.listen(1)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The listening descriptor."""
        return self._socket.fileno()

    def accept(self) -> socket.socket:
        """Accept the kernel's connection."""
        connection, _ = self._socket.accept()
        return connection

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


class Waker:
    """A descriptor that becomes readable when any thread calls `wake`, also after `close`."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._reader

    def wake(self) -> None:
        """Make the descriptor readable."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._writer >= 0:
                os.write(self._writer, b"!")

    def clear(self) -> None:
        """Make it unreadable again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 512)

    def close(self) -> None:
        """Close both ends; `wake` does nothing from now on."""
        with self._lock:
            os.close(self._reader)
            os.close(self._writer)
            self._writer = -1


class WireConnection:
    """A `KernelConnection` over a side socket; it closes what it was made with.

    Threads:
        Belongs to one thread at a time, except `wake`, which only writes to a pipe.
    """

    def __init__(
        self,
        *,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        key: str,
        wire: socket.socket,
        death_descriptor: int | None,
    ) -> None:
        self._format = MessageFormat(key)
        self._key = key
        self._wire = closed_in_forks(wire)
        self._wire.setblocking(False)
        self._death_descriptor = death_descriptor
        self._address = address
        with contextlib.ExitStack() as opened:
            self._shell = self._open_channel(context, SHELL_PORT)
            opened.callback(self._shell.close)
            self._stdin = self._open_channel(context, STDIN_PORT)
            opened.callback(self._stdin.close)
            self._waker = Waker()
            opened.pop_all()
        self._poller = zmq.Poller()
        for source in (self._wire, self._shell, self._waker):
            self._poller.register(source, zmq.POLLIN)
        if death_descriptor is not None:
            self._poller.register(death_descriptor, zmq.POLLIN)
        self._frames = FrameReader()
        self._unsent = bytearray()
        self._pipes: dict[int, list[int]] = {}
        self._latest_ordinal = 0
        self._received_bytes = 0
        self._is_lost = False
        self._is_gone = False
        self._breaks: zmq.Socket[bytes] | None = None
        """Tells when the channel for requests has broken; set once there is a connection."""
        self._broken_at: float | None = None
        self._is_to_end = False

    def _open_channel(
        self, context: zmq.Context[zmq.Socket[bytes]], port: int
    ) -> zmq.Socket[bytes]:
        try:
            channel = context.socket(zmq.DEALER)
        except zmq.ZMQError as error:  # there are no descriptors left for it
            raise OSError(error.errno, error.strerror) from error
        channel.linger = 0
        channel.reconnect_ivl = _RECONNECT_MILLISECONDS
        # What is sent before there is a connection, or after it, is refused instead of kept: a
        # connection that cannot be made would be tried for ever.
        channel.immediate = True
        channel.sndtimeo = _SEND_MILLISECONDS
        channel.maxmsgsize = _MAX_REPLY_BYTES
        channel.rcvhwm = _MAX_REPLIES
        try:
            self._attach(channel, port)
        except BaseException:
            channel.close()
            raise
        return channel

    def _attach(self, channel: zmq.Socket[bytes], port: int) -> None:
        """Connect a channel to where the kernel has bound it."""
        channel.connect(f"ipc://{self._address}-{port}")

    def execute(self, request: ExecuteRequest) -> None:
        """Send a request."""
        self._latest_ordinal = request.ordinal
        content = execute_content(request.code, allow_stdin=request.allow_stdin)
        metadata = {"taskweaver": {"ordinal": request.ordinal, **request.metadata}}
        self._send(self._shell, self._format.pack("execute_request", content, metadata=metadata))

    def ask_if_alive(self) -> None:
        """Ask the kernel whether it still works, as it is asked to run code."""
        content = execute_content("", silent=True)
        self._send(self._shell, self._format.pack("execute_request", content, metadata=ALIVE))

    def ask(self, question: dict[str, Any]) -> None:
        """Ask on the side socket, which another thread of the kernel hears."""
        self._unsent += json.dumps(question).encode() + b"\n"
        self._send_questions()

    def _send_questions(self) -> None:
        """Send what there is room for; the rest when there is more."""
        try:
            while self._unsent:
                del self._unsent[: self._wire.send(self._unsent)]
        except OSError:  # there is no room, or, as `receive` will see, nobody
            pass
        self._poller.register(self._wire, zmq.POLLIN | (zmq.POLLOUT if self._unsent else 0))

    @property
    def tells_beginnings(self) -> bool:
        """The thread that runs the code says so itself."""
        return True

    @property
    def is_reachable(self) -> bool:
        """Always, on this machine."""
        return True

    @property
    def latest_ordinal(self) -> int:
        """The request that was sent last."""
        return self._latest_ordinal

    def answer(self, text: str) -> None:
        """Answer a question."""
        self._send(self._stdin, self._format.pack("input_reply", {"value": text}))

    def request_shutdown(self) -> None:
        """Ask the kernel to end."""
        self._is_to_end = True
        self._send(self._shell, self._format.pack("shutdown_request", {"restart": False}))

    def _send(self, channel: zmq.Socket[bytes], parts: list[bytes]) -> None:
        """Send a message; a kernel that has left the channel counts as gone."""
        try:
            channel.send_multipart(parts)
        except zmq.Again:
            self._is_lost = True
            self.wake()

    def wake(self) -> None:
        """Make `receive` return."""
        self._waker.wake()

    def receive(self, timeout: float | None) -> Iterator[Received]:
        """Wait until something arrives and give it; the side socket comes first."""
        if self._is_gone:
            return
        if self._is_lost:
            yield from self._receive_the_last()
            return
        if self._broken_at is not None:
            timeout = _CLOSED_SECONDS if timeout is None else min(timeout, _CLOSED_SECONDS)
        # Round up: a wait that ends too early would only be repeated.
        milliseconds = None if timeout is None else int(timeout * 1000) + 1
        ready = {source for source, _ in self._poller.poll(milliseconds)}
        wire_ended = False
        if self._unsent:
            self._send_questions()
        if self._wire.fileno() in ready:
            wire_ended = yield from self._receive_from_wire()
        if self._waker.fileno() in ready:
            self._waker.clear()
        if self._shell in ready:
            self._drop_replies()
        if wire_ended or self._death_descriptor in ready:
            yield from self._receive_the_last()
        elif self._breaks is not None:
            self._look_after_requests(self._breaks, has_news=self._breaks in ready)

    def _look_after_requests(self, breaks: zmq.Socket[bytes], *, has_news: bool) -> None:
        """Raise ProtocolError if the channel for requests has broken, and the kernel lives on."""
        if has_news:
            breaks.recv_multipart()
            self._broken_at = time.monotonic()
        if self._broken_at is not None and time.monotonic() >= self._broken_at + _CLOSED_SECONDS:
            self._refuse_break()

    def _has_broken(self) -> bool:
        return self._broken_at is not None or bool(self._breaks and self._breaks.poll(0))

    def _refuse_break(self) -> None:
        """ZeroMQ breaks a channel for good when it brings more than a reply can be."""
        if not self._is_to_end:
            raise ProtocolError(
                "A kernel closed the channel for requests, or sent a reply of more than"
                f" {_MAX_REPLY_BYTES:,} bytes there."
            )

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for the kernel's hello, and until it can be reached.

        Raises:
            TimeoutError, ConnectionError: With the kernel's words.
            OSError: There are no descriptors left for the connection.
        """
        deadline = time.monotonic() + seconds
        self._wait_for_hello(deadline)
        for channel in (self._shell, self._stdin):
            while not channel.poll(_CONNECT_MILLISECONDS, zmq.POLLOUT):
                os.close(os.dup(self._waker.fileno()))  # raises if that is what is missing
                if time.monotonic() > deadline:
                    raise TimeoutError
        try:
            self._breaks = self._shell.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        except zmq.ZMQError as error:  # there are no descriptors left for it
            raise OSError(error.errno, error.strerror) from error
        self._poller.register(self._breaks, zmq.POLLIN)

    def _wait_for_hello(self, deadline: float) -> None:
        said = ""
        while True:
            for received in self.receive(max(0.0, deadline - time.monotonic())):
                if isinstance(received, OutputReceived):
                    said += received.data.decode("utf-8", "replace")
                if isinstance(received, KernelGone):
                    raise ConnectionError(said)
                if isinstance(received, MessageReceived) and received.message_type == "hello":
                    if received.content.get("key") != self._key:
                        raise ConnectionError
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(said)

    def close(self) -> None:
        """Close every socket, pipe and descriptor."""
        for descriptors in self._pipes.values():
            for descriptor in descriptors:
                os.close(descriptor)
        self._pipes.clear()
        if self._breaks is not None:
            self._shell.disable_monitor()
            self._breaks.close(linger=0)
        self._shell.close()
        self._stdin.close()
        self._wire.close()
        self._waker.close()
        if self._death_descriptor is not None:
            os.close(self._death_descriptor)

    def _drop_replies(self) -> None:
        """Replies come on the side socket; the same on the shell channel only takes room."""
        with contextlib.suppress(zmq.Again):
            for _ in range(_MAX_REPLIES):
                self._shell.recv_multipart(zmq.NOBLOCK)

    def _receive_from_wire(self) -> Generator[Received, None, bool]:
        """Read once and give all frames that are complete; returns whether the wire has ended."""
        try:
            data, ancillary, _, _ = self._wire.recvmsg(_RECEIVE_BYTES, _ANCILLARY_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._received_bytes += len(data)
        if ancillary:
            self._keep_pipes(ancillary)
        yield from self._frames.feed(data)
        return not data

    def _keep_pipes(self, ancillary: list[Any]) -> None:
        """Hold the reading ends of child pipes, for what is in them when the kernel dies."""
        self._close_pipes_without_writers()
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors = array("i")
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
                self._keep_two_pipes(list(descriptors))

    def _keep_two_pipes(self, descriptors: list[int]) -> None:
        """Code that has the socket may send what it likes: only pipes, and no pile of them."""
        replaced = self._pipes.pop(self._latest_ordinal, [])
        honest = [d for d in descriptors if stat.S_ISFIFO(os.fstat(d).st_mode)][: len(STREAMS)]
        for descriptor in {*replaced, *descriptors} - {*honest}:
            os.close(descriptor)
        self._pipes[self._latest_ordinal] = honest
        if len(self._pipes) > _MAX_KEPT_PIPES:
            for descriptor in self._pipes.pop(next(iter(self._pipes))):
                os.close(descriptor)

    def _close_pipes_without_writers(self) -> None:
        for ordinal, descriptors in list(self._pipes.items()):
            poller = select.poll()
            for descriptor in descriptors:
                poller.register(descriptor, 0)
            if len(poller.poll(0)) == len(descriptors):  # all hung up
                for descriptor in descriptors:
                    os.close(descriptor)
                del self._pipes[ordinal]

    def _receive_the_last(self) -> Iterator[Received]:
        """The kernel is gone: give what it had said and what its children had written."""
        until = self._received_bytes + _MAX_REST_BYTES
        while not (has_ended := (yield from self._receive_from_wire())) and self._has_more():
            if self._received_bytes > until:
                break
        if self._is_lost and not has_ended and self._has_broken():
            self._refuse_break()  # it lives, and nothing can be sent to it
        newest = next(reversed(self._pipes), 0)
        for ordinal, descriptors in self._pipes.items():
            owner = self._latest_ordinal if ordinal == newest else ordinal
            for stream, descriptor in zip(STREAMS, descriptors, strict=False):
                yield from _rest_of_pipe(owner, stream, descriptor)
        self._is_gone = True
        yield KernelGone()

    def _has_more(self) -> bool:
        poller = select.poll()
        poller.register(self._wire, select.POLLIN)
        return bool(poller.poll(0))


def _rest_of_pipe(ordinal: int, stream: StreamName, descriptor: int) -> Iterator[Received]:
    os.set_blocking(descriptor, False)
    received_bytes = 0
    with contextlib.suppress(OSError):
        # A pipe holds no more than this; one that a process still fills would have no end.
        while received_bytes < _MAX_PIPE_BYTES and (data := os.read(descriptor, _RECEIVE_BYTES)):
            received_bytes += len(data)
            text = data.decode("utf-8", "backslashreplace")
            yield OutputReceived(ordinal, stream, text.encode())
