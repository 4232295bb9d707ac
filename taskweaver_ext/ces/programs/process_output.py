"""Read what a process writes: bytes as they come, passed on as whole UTF-8 characters.

A character split between two reads survives. Bytes that are not UTF-8 either
make the rest of the stream binary, or are replaced, as the owner wishes.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from taskweaver_ext.ces.execution.results import StreamName

OnBytes: TypeAlias = Callable[[StreamName, bytes], None]

_READ_BYTES = 1 << 18
_MAX_DRAINED_BYTES = 1 << 22
"""More than any pipe holds: what is read beyond was written while we read."""
_ARRIVAL_SECONDS = 5.0
"""When nothing arrives for so long, the rest is lost."""

_BUSY_BYTES = 1 << 20
_BUSY_PIPE_BYTES = 1 << 20
"""A stream that wrote a lot gets a larger pipe; not before, because users have few of them."""


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """The read end of a stream, which is ours to close."""

    descriptor: int
    written: Callable[[], int | None] = lambda: None
    """How many bytes were written by now, where some may still be on their way to us; None:
    whatever was written can be read."""


class OutputPipe:
    """Read one stream of a process and pass it on.
    Args:
        on_bytes: Given whole UTF-8 characters.
        on_binary: Given everything from the first byte on that is not UTF-8; without it
            such bytes are replaced by U+FFFD and go to `on_bytes`.
    """

    def __init__(
        self,
        end: ReadEnd,
        stream: StreamName,
        on_bytes: OnBytes,
        on_binary: OnBytes | None = None,
    ) -> None:
        self.descriptor = end.descriptor
        self._end = end
        self.stream: StreamName = stream
        self.is_open = True
        self.has_replaced = False
        """Whether some bytes were not UTF-8 and have been replaced."""
        self._on_bytes = on_bytes
        self._on_binary = on_binary
        self._is_binary = False
        self._held = b""
        self._total_bytes = 0
        self._is_enlarged = False
        os.set_blocking(self.descriptor, False)

    def read(self) -> int:
        """Read once and pass it on; 0 when nothing is there, or nothing will ever be."""
        if not self.is_open:
            return 0
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return 0
        except ConnectionError:  # the stream comes over a network, and the connection has broken
            data = b""
        if not data:
            self.close()
            return 0
        self._total_bytes += len(data)
        if self._total_bytes > _BUSY_BYTES and not self._is_enlarged:
            self._enlarge()
        self._pass_on(data, is_last=False)
        return len(data)

    def drain(self) -> None:
        """Read what has been written by now, and wait for it where it is still on its way."""
        written = self._end.written() if self.is_open else None
        size = 0
        while size < _MAX_DRAINED_BYTES and (read := self.read()):
            size += read
        poller = select.poll()
        while self.is_open and written is not None and self._total_bytes < written:
            poller.register(self.descriptor, select.POLLIN)
            if not poller.poll(_ARRIVAL_SECONDS * 1000):
                return
            self.read()

    def close(self) -> None:
        """Pass on what is held back and let go of the pipe."""
        if self.is_open:
            self.is_open = False
            os.close(self.descriptor)
            self._pass_on(b"", is_last=True)

    def _pass_on(self, data: bytes, *, is_last: bool) -> None:
        if self._is_binary and self._on_binary is not None:
            self._on_binary(self.stream, data)
            return
        if self._held:
            data = self._held + data
            self._held = b""
        if data.isascii():
            size = len(data)
        else:
            data, size = self._decode(data, is_last=is_last)
        if size:
            self._on_bytes(self.stream, data[:size])
        if self._is_binary and self._on_binary is not None:
            self._on_binary(self.stream, data[size:])
        else:
            self._held = data[size:]

    def _decode(self, data: bytes, *, is_last: bool) -> tuple[bytes, int]:
        """The bytes, perhaps with some replaced, and how many of them are whole characters."""
        try:
            return data, codecs.utf_8_decode(data, "strict", is_last)[1]
        except UnicodeDecodeError as error:
            if self._on_binary is not None:
                self._is_binary = True
                return data, error.start
        self.has_replaced = True
        text, size = codecs.utf_8_decode(data, "replace", is_last)
        encoded = text.encode()
        return encoded + data[size:], len(encoded)

    def _enlarge(self) -> None:
        self._is_enlarged = True
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, _BUSY_PIPE_BYTES)
