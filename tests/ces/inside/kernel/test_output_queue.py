from __future__ import annotations

import contextlib
import contextvars
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from taskweaver_ext.ces.inside.kernel import wire as side_socket
from taskweaver_ext.ces.inside.kernel.child_pipes import ChildPipes
from taskweaver_ext.ces.inside.kernel.deferred_signals import DeferredSignals
from taskweaver_ext.ces.inside.kernel.output_queue import OutputQueue, pending_of_execution
from taskweaver_ext.ces.inside.kernel.streams import TextStream
from taskweaver_ext.ces.inside.kernel.wire import STDERR, STDOUT, Wire
from taskweaver_ext.ces.kernels.client.frames import FrameReader
from taskweaver_ext.ces.kernels.client.host import (
    MessageReceived,
    OutputReceived,
    RunsReceived,
)

WAIT_SECONDS = 120
MESSAGE = 2


class _NoPipes(ChildPipes):
    """Descriptors 1 and 2 belong to the test's own process."""

    def begin(self, ordinal: int) -> list[int]:
        return []


@dataclass
class _Listener:
    """The other end of the wire: everything that arrives, by execution."""

    socket: socket.socket
    frames: FrameReader = field(default_factory=FrameReader)
    said: list[tuple[int, str]] = field(default_factory=list)

    def listen_until(self, end: str) -> None:
        """Read until a text that ends so has come."""
        while not self.said or not self.said[-1][1].endswith(end):
            data = self.socket.recv(1 << 16)
            assert data, "the wire has ended"
            for received in self.frames.feed(data):
                if isinstance(received, OutputReceived):
                    self.said.append((received.ordinal, received.data.decode()))
                elif isinstance(received, RunsReceived):
                    self.said += ((received.ordinal, data.decode()) for _, data in received.runs)
                elif isinstance(received, MessageReceived):
                    self.said.append((received.ordinal, received.message_type))

    def text_of(self, ordinal: int) -> str:
        return "".join(text for number, text in self.said if number == ordinal)


@pytest.fixture
def line(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[OutputQueue, _Listener]]:
    # A kernel ends when its client is gone; here only its thread does.
    monkeypatch.setattr(side_socket, "end_with_all_children", sys.exit)
    path = tmp_path_factory.mktemp("wire") / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        wire = Wire(str(path), DeferredSignals())
        connection, _ = server.accept()
    connection.settimeout(WAIT_SECONDS)
    queue = OutputQueue(wire, _NoPipes((STDOUT, STDERR)))
    queue._thread = threading.Thread(target=_run_until_exit, args=(queue._send_what_is_due,))
    yield queue, _Listener(connection)
    connection.close()
    if queue._thread.is_alive():
        queue._thread.join(WAIT_SECONDS)
    queue.after_fork_in_child()  # closes the wire


def _run_until_exit(work: Callable[[], None]) -> None:
    with contextlib.suppress(SystemExit):
        work()


def _in_execution(queue: OutputQueue, ordinal: int) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(queue.begin, ordinal)
    return context


def test_a_line_after_quiet_is_sent_by_who_wrote_it(line: tuple[OutputQueue, _Listener]) -> None:
    queue, listener = line
    _in_execution(queue, 1).run(TextStream(queue, STDOUT).write, "now\n")

    listener.listen_until("now\n")

    assert listener.said == [(1, "now\n")]


def test_streams_and_messages_keep_their_order(line: tuple[OutputQueue, _Listener]) -> None:
    queue, listener = line
    output, error = TextStream(queue, STDOUT), TextStream(queue, STDERR)

    def write_in_turn() -> None:
        output.write("first")
        error.write("second")
        output.write("third")
        queue.say(MESSAGE, "fourth\n{}")
        output.write("fifth\n")
        queue.flush()

    _in_execution(queue, 1).run(write_in_turn)
    listener.listen_until("fifth\n")

    assert [text for _, text in listener.said] == ["first", "second", "third", "fourth", "fifth\n"]


@pytest.mark.parametrize("ending", ["", "é😀", "x" * 200], ids=["plain", "odd", "long"])
def test_streams_that_change_all_the_time_keep_their_order(
    line: tuple[OutputQueue, _Listener], ending: str
) -> None:
    queue, listener = line
    streams = TextStream(queue, STDERR), TextStream(queue, STDOUT)
    expected: list[str] = []

    def write_in_turn() -> None:
        for number in range(6000):
            streams[number % 2].write(f"{number}{ending}")
            expected.append(f"{number}{ending}")
            if number % 1000 == 999:
                queue.say(MESSAGE, f"m{number}\n{{}}")
                expected.append(f"m{number}")

    writer = threading.Thread(target=_in_execution(queue, 1).run, args=(write_in_turn,))
    writer.start()
    listener.listen_until("m5999")
    writer.join(WAIT_SECONDS)

    assert [text for _, text in listener.said] == expected


def test_what_an_earlier_execution_says_keeps_its_name(
    line: tuple[OutputQueue, _Listener],
) -> None:
    queue, listener = line
    output = TextStream(queue, STDOUT)
    earlier = _in_execution(queue, 1)
    latest = _in_execution(queue, 2)

    for number in range(3):
        earlier.run(output.write, f"old {number}\n")
        latest.run(output.write, f"new {number}\n")
    queue.flush()
    earlier.run(output.write, "end\n")
    queue.flush()
    listener.listen_until("end\n")

    assert listener.text_of(1) == "old 0\nold 1\nold 2\nend\n"
    assert listener.text_of(2) == "new 0\nnew 1\nnew 2\n"


def test_an_execution_that_is_silent_is_forgotten(line: tuple[OutputQueue, _Listener]) -> None:
    queue, listener = line
    output = TextStream(queue, STDOUT)

    for ordinal in range(1, 50):
        _in_execution(queue, ordinal).run(output.write, "said\n")
        queue.flush()
    listener.listen_until("said\n")

    assert len(queue._active) <= 2


def test_many_threads_lose_nothing_and_keep_their_order(
    line: tuple[OutputQueue, _Listener],
) -> None:
    queue, listener = line
    output = TextStream(queue, STDOUT)
    queue.start()
    lines = 5_000
    contexts = [_in_execution(queue, ordinal) for ordinal in range(1, 5)]

    def write(context: contextvars.Context) -> None:
        for number in range(lines):
            context.run(output.write, f"{number}\n")

    threads = [threading.Thread(target=write, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    while sum(text.count("\n") for _, text in listener.said) < 4 * lines:
        listener.listen_until("\n")
        listener.said.append((0, ""))  # so that the next call waits for more
    for thread in threads:
        thread.join(WAIT_SECONDS)

    everything = "".join(f"{number}\n" for number in range(lines))
    assert [listener.text_of(ordinal) == everything for ordinal in range(1, 5)] == [True] * 4


def test_what_a_print_in_the_middle_of_sending_says_is_sent_later(
    line: tuple[OutputQueue, _Listener],
) -> None:
    queue, listener = line
    output = TextStream(queue, STDOUT)
    queue.start()
    context = _in_execution(queue, 1)
    plain_take = queue._drain

    def take_and_print() -> bytes:
        queue._drain = plain_take  # type: ignore[method-assign]
        frames = plain_take()
        output.write("from within\n")  # as a signal handler or a finaliser does
        return frames

    queue._drain = take_and_print  # type: ignore[method-assign]
    context.run(output.write, "outer\n")
    listener.listen_until("from within\n")

    assert listener.text_of(1) == "outer\nfrom within\n"


def test_a_text_of_a_class_of_ones_own_is_written_as_plain_text(
    line: tuple[OutputQueue, _Listener],
) -> None:
    class Loud(str):
        def __str__(self) -> str:
            return self.upper()

    queue, listener = line
    output = TextStream(queue, STDOUT)

    assert _in_execution(queue, 1).run(output.write, Loud("quiet\n")) == 6
    listener.listen_until("\n")

    assert listener.text_of(1) == "quiet\n"


def test_what_is_no_text_is_refused(line: tuple[OutputQueue, _Listener]) -> None:
    queue, _ = line

    with pytest.raises(TypeError, match="must be str, not bytes"):
        TextStream(queue, STDOUT).write(b"bytes")  # type: ignore[arg-type]

    assert not pending_of_execution.get(queue.latest)
