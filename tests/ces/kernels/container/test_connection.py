"""The channels to a container whose kernel is not there, without an engine."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import zmq

from taskweaver_ext.ces.execution.results import HostNotice
from taskweaver_ext.ces.inside.kernel.wire import open_socket
from taskweaver_ext.ces.kernels.client.host import ExecuteRequest, KernelGone
from taskweaver_ext.ces.kernels.client.wire import Waker
from taskweaver_ext.ces.kernels.container.connection import (
    ContainerConnection,
    ControlChannel,
    PublishedPortChannels,
    SharedFolderChannels,
)
from taskweaver_ext.ces.kernels.container.description import WIRE_PORT
from tests.support.executions import LIMIT_SECONDS

REQUEST = ExecuteRequest(ordinal=1, code="pass", allow_stdin=False, metadata={})


@dataclass
class Deserted:
    """A connection that no kernel is at the other end of."""

    connection: ContainerConnection
    wire: socket.socket
    end: Waker


@pytest.fixture
def deserted() -> Iterator[Deserted]:
    ours, theirs = socket.socketpair()
    end = Waker()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        channels = SharedFolderChannels(Path(folder), lambda _path: None)
        attach = partial(channels.attach, published={})
        connection = ContainerConnection(
            context=context,
            key="key",
            wire=ours,
            attach=attach,
            control=ControlChannel(context, "key", attach),
            death_descriptor=os.dup(end.fileno()),
            limits_met=lambda _reply: [],
        )
        yield Deserted(connection, theirs, end)
        connection.close()
        channels.close()
    end.close()
    theirs.close()
    context.term()


def test_a_request_that_no_kernel_reads_is_a_loss_and_no_hang(deserted: Deserted) -> None:
    deserted.connection.execute(REQUEST)

    assert list(deserted.connection.receive(LIMIT_SECONDS)) == [KernelGone()]


def test_the_end_of_the_container_is_the_end_of_the_kernel(deserted: Deserted) -> None:
    deserted.end.wake()

    assert list(deserted.connection.receive(LIMIT_SECONDS)) == [KernelGone()]


def test_what_happened_while_nothing_ran_is_told_to_the_next_execution(deserted: Deserted) -> None:
    notice = HostNotice("paused", "The container was paused.")
    deserted.connection.notify(notice)
    before = list(deserted.connection.receive(0))

    deserted.connection.execute(REQUEST)
    received = list(deserted.connection.receive(LIMIT_SECONDS))

    assert before == []
    assert received == [notice, KernelGone()]


def test_a_pause_that_is_over_is_not_told(deserted: Deserted) -> None:
    deserted.connection.notify(HostNotice("paused", "The container was paused."))
    deserted.connection.notify(HostNotice("resumed", "The container was resumed."))

    deserted.connection.execute(REQUEST)

    assert list(deserted.connection.receive(LIMIT_SECONDS)) == [KernelGone()]


def open_in_background(port: int, opened: list[socket.socket]) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: opened.append(open_socket(f"tcp://right@127.0.0.1:{port}"))
    )
    thread.start()
    return thread


def test_only_a_client_that_knows_the_key_gets_a_kernels_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    opened: list[socket.socket] = []
    thread = open_in_background(port, opened)
    never = Waker()
    published = {WIRE_PORT: port}

    stranger = PublishedPortChannels("wrong").open_wire(published, LIMIT_SECONDS, never)
    refusal = stranger.recv(1)
    friend = PublishedPortChannels("right").open_wire(published, LIMIT_SECONDS, never)
    thread.join(LIMIT_SECONDS)
    [wire] = opened
    wire.sendall(b"hello")

    assert refusal == b""
    assert friend.recv(5) == b"hello"
    for used in (stranger, friend, wire):
        used.close()
    never.close()


def test_waiting_for_a_port_ends_with_the_container() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    end = Waker()
    end.wake()

    with contextlib.closing(end), pytest.raises(ConnectionError):
        PublishedPortChannels("key").open_wire({WIRE_PORT: port}, LIMIT_SECONDS, end)
