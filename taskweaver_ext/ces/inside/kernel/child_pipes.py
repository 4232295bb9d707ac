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
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass

_SIZE = struct.Struct("i")


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
            self._pass_on(ordinal)
            return []
        try:
            opened = _open_pipes(len(self._kinds))
        except OSError:  # code has used up its descriptors: those that are there must do
            self._pass_on(ordinal)
            return []
        self.may_have_children = False
        self._current = [reader for reader, _ in opened]
        for index, (reader, writer) in enumerate(opened):
            os.dup2(writer, 1 + index, inheritable=True)
            os.close(writer)
            decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
            self._pipes[reader] = _Pipe(ordinal, self._kinds[index], decoder)
            self._poller.register(reader, select.POLLIN)
        return self._current

    def _pass_on(self, ordinal: int) -> None:
        """Let the pipes of the last execution be those of the next."""
        for descriptor in self._current:
            if descriptor in self._pipes:
                self._pipes[descriptor].ordinal = ordinal

    def descriptors(self) -> list[int]:
        """The reading ends, for a thread that waits on them."""
        return list(self._pipes)

    def read(self, *, is_end: bool = False) -> Iterator[tuple[int, int, str]]:
        """Give all that is in the pipes now: ordinal, kind, text. Never blocks.

        At the end of an execution half a character at the end of its pipes is given as well:
        the rest of it, should it ever come, is late.
        """
        for descriptor, _ in self._poller.poll(0):
            pipe = self._pipes[descriptor]
            # Its whole content, however large a child has made the pipe, and not what comes
            # meanwhile: a child that writes all the time must not keep us here.
            size = _SIZE.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_SIZE.size)))[0]
            try:
                data = os.read(descriptor, size or 1)
            except BlockingIOError:
                continue
            text = pipe.decoder.decode(data, final=not data)
            if not data:
                self._close(descriptor)
            if text:
                yield pipe.ordinal, pipe.kind, text
        for descriptor in self._current if is_end else ():
            if (current := self._pipes.get(descriptor)) and (
                rest := current.decoder.decode(b"", final=True)
            ):
                yield current.ordinal, current.kind, rest

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


def _open_pipes(count: int) -> list[tuple[int, int]]:
    """Open so many pipes, or none: reading ends that do not block, and writing ends."""
    descriptors: list[int] = []
    try:
        for _ in range(count):
            descriptors += os.pipe()
        for index, descriptor in enumerate(descriptors):
            descriptors[index] = _above_the_standard_ones(descriptor)
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    for reader in descriptors[::2]:
        os.set_blocking(reader, False)
    return list(zip(descriptors[::2], descriptors[1::2]))  # noqa: B905 - Python 3.9 knows no strict


def _above_the_standard_ones(descriptor: int) -> int:
    """Move a descriptor out of the way: code may have closed 0, 1 or 2."""
    if descriptor > 2:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved
