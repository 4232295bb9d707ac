"""The complete lines of a file that may grow meanwhile, from any place on, in both directions.

Memory holds one block, or one line where that is longer; a line beyond the limit is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeAlias

MAX_LINE_BYTES = 1 << 26

_BLOCK_BYTES = 1 << 16

Place: TypeAlias = tuple[int, bytes]
"""Where in the file a line begins, and the line without its end."""


class LinesOfFile:
    """Reads lines through a descriptor that belongs to the caller; safe from any thread."""

    def __init__(
        self,
        descriptor: int,
        *,
        block_bytes: int = _BLOCK_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._descriptor = descriptor
        self._block_bytes = block_bytes
        self._max_line_bytes = max_line_bytes

    def forward(self, offset: int, *, is_within_line: bool = False) -> Iterator[Place]:
        """Give the complete lines from a place on, but for empty ones.

        Args:
            is_within_line: Whether the place is in the middle of a line, which is left out.
        """
        parts: list[bytes] = []
        start, position, is_left_out = offset, offset, is_within_line
        while block := self._read(position, self._block_bytes):
            position += len(block)
            *lines, last = block.split(b"\n")
            for end_of_line in lines:
                parts.append(end_of_line)
                line = b"".join(parts)
                if line and not is_left_out:
                    yield start, line
                start += len(line) + 1
                parts, is_left_out = [], False
            parts.append(last)
            if position - start > self._max_line_bytes:
                parts, start, is_left_out = [], position, True

    def beginning_with(self, prefixes: tuple[bytes, ...]) -> Iterator[bytes]:
        """Give the complete lines that begin with one of these, oldest first, at little cost."""
        parts: list[bytes] = []
        position, size, is_left_out = 0, 0, False
        while block := self._read(position, self._block_bytes):
            position += len(block)
            first, *others = block.split(b"\n")
            parts.append(first)
            size += len(first)
            if others:
                lines = [b"" if is_left_out else b"".join(parts), *others[:-1]]
                yield from [line for line in lines if line.startswith(prefixes)]
                parts, size, is_left_out = others[-1:], len(others[-1]), False
            elif size > self._max_line_bytes:
                parts, size, is_left_out = [], 0, True

    def backward(self) -> Iterator[Place]:
        """Give the complete lines, newest first, but for empty ones."""
        position = self.end() - 1
        parts: list[bytes] = []
        size, is_left_out = 0, False
        while position > 0:
            block_start = max(0, position - self._block_bytes)
            first, *lines = self._read(block_start, position - block_start).split(b"\n")
            for start_of_line in reversed(lines):
                position -= len(start_of_line)
                line = b"".join((start_of_line, *reversed(parts)))
                if line and not is_left_out:
                    yield position, line
                position -= 1
                parts, size, is_left_out = [], 0, False
            parts.append(first)
            size += len(first)
            position = block_start
            if size > self._max_line_bytes:
                parts, size, is_left_out = [], 0, True
        if (line := b"".join(reversed(parts))) and not is_left_out:
            yield 0, line

    def backward_beginning_with(self, prefix: bytes) -> Iterator[bytes]:
        """Give the complete lines that begin like this, newest first; never the first line."""
        wanted = b"\n" + prefix
        position = end = self.end()
        while position > 0:
            block_start = max(0, position - self._block_bytes)
            size = min(position + len(wanted) - 1, end) - block_start
            block = self._read(block_start, size)
            found = block.rfind(wanted)
            while found >= 0:
                yield next(self.forward(block_start + found + 1), (0, b""))[1]
                found = block.rfind(wanted, 0, found + len(wanted) - 1)
            position = block_start

    def end(self) -> int:
        """Return where the last complete line ends; 0 if there is none."""
        position = os.fstat(self._descriptor).st_size
        while position > 0:
            block_start = max(0, position - self._block_bytes)
            found = self._read(block_start, position - block_start).rfind(b"\n")
            if found >= 0:
                return block_start + found + 1
            position = block_start
        return 0

    def _read(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError:  # a disk that fails, or a file that was cut meanwhile: as if it ended here
            return b""
