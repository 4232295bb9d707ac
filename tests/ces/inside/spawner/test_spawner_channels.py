"""Streams of programs that are copied through connections: nothing is left open by a failure."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from taskweaver_ext.ces.inside.spawner.copying import Copying
from taskweaver_ext.ces.inside.spawner.spawner_channels import CONTROL, PortChannel
from taskweaver_ext.ces.kernels.container.connection import connect_to_port
from tests.support.executions import wait_until

KEY = "key"
OUTPUT, ERRORS = "output".ljust(32), "errors".ljust(32)
START = {"streams": [OUTPUT, ERRORS], "with": {}}


@pytest.fixture(scope="module")
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def channel(port: int) -> Iterator[PortChannel]:
    """One for all tests here: the thread that accepts connections ends with its process."""
    channels: list[PortChannel] = []
    thread = threading.Thread(target=lambda: channels.append(PortChannel(KEY, port)))
    thread.start()
    with contextlib.ExitStack() as stack:
        wait_until(lambda: open_stream(port, CONTROL, stack))
        thread.join()
        yield channels[0]


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def open_stream(port: int, name: str, stack: contextlib.ExitStack) -> bool:
    connection = connect_to_port(port, KEY, name)
    if connection is not None:
        stack.callback(connection.close)
    return connection is not None


def wait_for_descriptors(count: int) -> None:
    wait_until(lambda: psutil.Process().num_fds() <= count)


def test_a_copy_that_cannot_be_made_closes_both_ends(no_threads: None) -> None:
    before = psutil.Process().num_fds()
    source, writer = os.pipe()
    reader, target = os.pipe()

    with pytest.raises(RuntimeError):
        Copying(source, target)

    os.close(writer)
    os.close(reader)
    assert psutil.Process().num_fds() == before


def test_a_copy_ends_when_its_reader_has_left() -> None:
    source, writer = os.pipe()
    ours, theirs = socket.socketpair()
    copying = Copying(source, ours.detach())
    os.write(writer, b"text")
    assert theirs.recv(4) == b"text"

    theirs.close()

    wait_until(lambda: copying.has_ended)
    assert copying.written_bytes() == 4
    os.close(writer)


def test_streams_that_cannot_be_copied_are_closed(
    channel: PortChannel, port: int, no_threads: None
) -> None:
    before = psutil.Process().num_fds()
    with contextlib.ExitStack() as stack:
        assert all(open_stream(port, name, stack) for name in (OUTPUT, ERRORS))

        with pytest.raises(RuntimeError):
            channel.open_streams(START)
        with pytest.raises(TimeoutError):
            channel._claim(ERRORS, 0)

    wait_for_descriptors(before)


def test_a_stream_that_the_client_closes_before_it_is_used_is_closed_here(
    channel: PortChannel, port: int
) -> None:
    unused, used = "unused".ljust(32), "used".ljust(32)
    before = psutil.Process().num_fds()
    with contextlib.ExitStack() as stack:
        assert open_stream(port, unused, stack)

    with contextlib.ExitStack() as stack:
        assert open_stream(port, used, stack)
        [descriptor] = channel.open_streams({"streams": [used], "with": {}})
        os.close(descriptor)
        started_at = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.open_streams({"streams": [unused], "with": {}})

    assert time.monotonic() - started_at < 5  # no request after it has to wait
    wait_for_descriptors(before)


def test_a_pipe_whose_name_is_taken_closes_its_connection(channel: PortChannel, port: int) -> None:
    before = psutil.Process().num_fds()
    with contextlib.ExitStack() as stack:
        assert open_stream(port, OUTPUT, stack)
        path = channel.make_pipe(OUTPUT)
        assert open_stream(port, OUTPUT, stack)

        with pytest.raises(FileExistsError):
            channel.make_pipe(OUTPUT)

    wait_for_descriptors(before)
    assert not os.path.exists(path)


def test_only_so_many_streams_are_remembered(
    channel: PortChannel, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskweaver_ext.ces.inside.spawner.spawner_channels.MAX_ENDED_COPIES", 2)
    names = [f"stream {number}".ljust(32) for number in range(5)]
    for name in names:
        with contextlib.ExitStack() as stack:
            assert open_stream(port, name, stack)
            [descriptor] = channel.open_streams({"streams": [name], "with": {}})
            os.write(descriptor, b"text")
            os.close(descriptor)
            wait_until(lambda name=name: channel._copies[name].has_ended)  # type: ignore[misc]

    assert channel.written_bytes(names[-1]) == 4
    assert set(channel._copies) & set(names) == set(names[-3:])
