"""Lines from a pipe, cut wherever they may be."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from taskweaver_ext.stdio.line_reader import LineReader

LIMIT = 1000


class Pipes:
    """A reader between two pipes; the test holds the other ends."""

    def __init__(self, stack: ExitStack) -> None:
        source, self.input = os.pipe()
        self.output, output = os.pipe()
        self.open = {source, self.input, self.output, output}
        stack.callback(self._close_all)
        self.reader = stack.enter_context(LineReader(source, output, LIMIT))

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
        self.open.remove(descriptor)

    def _close_all(self) -> None:
        for descriptor in self.open:
            os.close(descriptor)

    def rest(self) -> list[bytes | str]:
        """Read until the end; a line that was too long is the text of its error."""
        found: list[bytes | str] = []
        while not self.reader.is_at_end:
            try:
                line = self.reader.read_line()
            except ValueError as error:
                found.append(str(error))
            else:
                found += [] if line is None else [line]
        return found


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    with ExitStack() as stack:
        yield Pipes(stack)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 999, 1000, 1001, 100_000])
def test_lines_are_whole_whatever_the_pieces_and_long_ones_are_left_out(
    pipes: Pipes, size: int
) -> None:
    sent = b"first\n\n" + b"x" * LIMIT + b"\n" + b"y" * (LIMIT + 1) + b"\nnext\n"
    sent += b"z" * 5 * LIMIT + b"\nlast"

    def write() -> None:
        for start in range(0, len(sent), size):
            os.write(pipes.input, sent[start : start + size])
        pipes.close(pipes.input)

    writer = threading.Thread(target=write)
    writer.start()
    found = pipes.rest()
    writer.join()

    too_long = "it has more than 1,000 bytes"
    assert found == [b"first", b"", b"x" * LIMIT, too_long, b"next", too_long, b"last"]


def test_a_line_that_is_too_long_and_never_ends_is_no_line(pipes: Pipes) -> None:
    os.write(pipes.input, b"x" * 3 * LIMIT)
    pipes.close(pipes.input)

    assert pipes.rest() == []


def test_waking_ends_a_wait_once_and_keeps_half_a_line(pipes: Pipes) -> None:
    os.write(pipes.input, b"half")
    pipes.reader.wake()
    assert pipes.reader.read_line() is None
    assert not pipes.reader.is_at_end
    os.write(pipes.input, b" a line\n")

    assert pipes.reader.read_line() == b"half a line"


def test_that_the_reader_of_our_output_has_gone_is_noticed_once(pipes: Pipes) -> None:
    pipes.close(pipes.output)
    assert pipes.reader.read_line() is None
    assert pipes.reader.output_is_gone
    os.write(pipes.input, b"still read\n")

    assert pipes.reader.read_line() == b"still read"


def test_waking_after_the_end_is_harmless(pipes: Pipes) -> None:
    pipes.reader.close()
    pipes.reader.wake()
    pipes.reader.close()
