"""Output of both streams, in the order in which it was written.

Where streams change with every line, one object per piece would cost more than the
text itself: here the pieces are numbers, and the text of each stream stays whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from taskweaver_ext.ces.execution.results import StreamName

STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class OutputRuns:
    """What was written, with every change of the stream."""

    lengths: array[int]
    """In bytes, of runs of stdout and stderr in turn, stdout's first, which may be empty."""
    data: tuple[bytes, bytes]
    """What the runs of each stream make together: whole UTF-8 characters."""

    def __len__(self) -> int:
        """How many bytes there are."""
        return len(self.data[0]) + len(self.data[1])

    def __iter__(self) -> Iterator[tuple[StreamName, bytes]]:
        """Give run after run."""
        starts = [0, 0]
        for index, size in enumerate(self.lengths):
            if size:
                number = index & 1
                start = starts[number]
                starts[number] = end = start + size
                yield STREAMS[number], self.data[number][start:end]


class RunLengths:
    """The lengths of runs of stdout and stderr in turn, stdout's first."""

    __slots__ = ("lengths",)

    def __init__(self) -> None:
        self.lengths = array("Q", [0])

    def add(self, number: int, size: int) -> None:
        """Append to the last run if it is of this stream, or start the next."""
        if (len(self.lengths) - 1) % 2 == number:
            self.lengths[-1] += size
        else:
            self.lengths.append(size)

    def extend(self, lengths: array[int]) -> None:
        """Append runs that begin with stdout's."""
        if len(self.lengths) % 2 == 0 and not lengths[0]:
            lengths = lengths[1:]  # stderr goes on
        elif len(self.lengths) % 2 == 0:
            self.lengths.append(0)
        if lengths:
            self.lengths[-1] += lengths[0]
            self.lengths.extend(array("Q", lengths[1:]))

    def add_to_last(self, number: int, size: int) -> None:
        """Let the last run of a stream grow, whatever came after it."""
        self.lengths[-1 if (len(self.lengths) - 1) % 2 == number else -2] += size
