"""Where the output of child processes and C code goes: pipes that belong to an execution.

Descriptors 1 and 2 are the writing ends. An execution that may have left
children behind keeps its pipes to itself: the next one gets new ones, so
that what an old child writes later is known to be late.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import select
from collections.abc import Iterator
from dataclasses import dataclass

_READ_BYTES = 1 << 16


@dataclass
class _Pipe:
    """The reading end of one pipe."""

    ordinal: int
    kind: int
    decoder: codecs.IncrementalDecoder


class ChildPipes:
    """The pipes of the current execution, and of earlier ones whose children still write."""

    def __init__(self, kinds: tuple[int, int]) -> None:
        self._kinds = kinds
        self._pipes: dict[int, _Pipe] = {}
        self._poller = select.poll()
        self._current: list[int] = []
        self.may_have_children = True

    def begin(self, ordinal: int) -> list[int]:
        """Route descriptors 1 and 2 to this execution; return new reading ends, if any."""
        # Code may have closed descriptor 1 or 2, and their pipes ended with that.
        if not self.may_have_children and all(known in self._pipes for known in self._current):
            for descriptor in self._current:
                self._pipes[descriptor].ordinal = ordinal
            return []
        self.may_have_children = False
        self._current = [
            self._open(ordinal, kind, target)
            for kind, target in ((self._kinds[0], 1), (self._kinds[1], 2))
        ]
        return self._current

    def _open(self, ordinal: int, kind: int, target: int) -> int:
        reader, writer = map(_above_the_standard_ones, os.pipe())
        os.set_blocking(reader, False)
        os.dup2(writer, target, inheritable=True)
        os.close(writer)
        decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._pipes[reader] = _Pipe(ordinal, kind, decoder)
        self._poller.register(reader, select.POLLIN)
        return reader

    def descriptors(self) -> list[int]:
        """The reading ends, for a thread that waits on them."""
        return list(self._pipes)

    def read(self) -> Iterator[tuple[int, int, str]]:
        """Give what is waiting in the pipes now: ordinal, kind, text. Never blocks."""
        for descriptor, _ in self._poller.poll(0):
            pipe = self._pipes[descriptor]
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                continue
            text = pipe.decoder.decode(data, final=not data)
            if not data:
                self._close(descriptor)
            if text:
                yield pipe.ordinal, pipe.kind, text

    def _close(self, descriptor: int) -> None:
        self._poller.unregister(descriptor)
        del self._pipes[descriptor]
        os.close(descriptor)

    def after_fork_in_child(self) -> None:
        """A forked child writes to the pipes, it does not read them."""
        for descriptor in self._pipes:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._pipes.clear()
        self._poller = select.poll()


def _above_the_standard_ones(descriptor: int) -> int:
    """Move a descriptor out of the way: code may have closed 0, 1 or 2."""
    if descriptor > 2:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved
