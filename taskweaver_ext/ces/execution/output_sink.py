"""The record of what one execution wrote: bounded in memory, whole on disk.

Up to a limit everything stays in memory. Beyond it the whole text of each
stream is in a file, written as it comes, and memory keeps the head and the
tail. A session, whose journal refers to the record, has it in files from its
first byte, so that it outlives this process. The record takes bytes, because
that is how output arrives and how it is written; it is decoded once, at the end.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from taskweaver_ext.ces.execution.output_runs import STREAMS
from taskweaver_ext.ces.execution.results import Notice, StreamName
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.text.truncation import cut_head, cut_tail

MEMORY_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 4 << 30

_SMALL_PIECE_BYTES = 1 << 14
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


class _Tail:
    """The last bytes of a stream, as many as wanted and a piece more; none is copied twice."""

    def __init__(self, wanted_bytes: int) -> None:
        self._wanted_bytes = wanted_bytes
        self._pieces: deque[bytes | bytearray] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Append, and let go of pieces at the front that are not wanted any more."""
        data = data[-self._wanted_bytes :]
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) < _SMALL_PIECE_BYTES:
            last += data
        else:
            self._pieces.append(bytearray(data) if len(data) < _SMALL_PIECE_BYTES else data)
        self._size += len(data)
        while self._pieces and self._size - len(self._pieces[0]) >= self._wanted_bytes:
            self._size -= len(self._pieces.popleft())

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)


@dataclass(slots=True)
class _Stream:
    """One stream of the record."""

    path: Path
    tail: _Tail
    """Empty until memory keeps the head and the tail only."""
    total_bytes: int = 0
    head: bytearray = field(default_factory=bytearray)
    writer: int | None = None


class OutputSink:
    """Record one execution's output.

    Threads:
        One thread writes. `read` may be called from another while it does:
        it opens the files for itself and reads what is already there.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        memory_bytes: int = MEMORY_BYTES,
        max_bytes: int = MAX_OUTPUT_BYTES,
        is_on_disk: bool = False,
    ) -> None:
        """Begin a record.

        Args:
            is_on_disk: Whether it is in files from its first byte, also where it is short.
        """
        self._half = memory_bytes // 2
        self._memory_bytes = memory_bytes
        self._max_bytes = max_bytes
        self.folder = folder
        self._streams = {
            stream: _Stream(folder / f"{name}.{stream}", _Tail(self._half)) for stream in STREAMS
        }
        self._total_bytes = 0
        self._bytes_elsewhere = 0
        self._is_written = is_on_disk
        """Whether output is written to files as it comes."""
        self._is_cut = False
        """Whether memory keeps the head and the tail only."""
        self._failure: OSError | None = None
        self._lost_bytes = 0
        self._readers: dict[StreamName, int] = {}
        self._readers_lock = threading.Lock()

    @property
    def limit_reached(self) -> bool:
        """Whether more was written than may be kept; the code is to be stopped."""
        return self._total_bytes + self._bytes_elsewhere > self._max_bytes

    def count_elsewhere(self, size: int) -> None:
        """Count towards the limit what the code had us keep elsewhere, such as images."""
        self._bytes_elsewhere += size

    @property
    def is_on_disk(self) -> bool:
        """Whether the whole text is in files by now."""
        return self._is_written and self._failure is None

    @property
    def sizes(self) -> tuple[int, int]:
        """How many bytes stdout and stderr have so far: where what comes next starts."""
        return self._streams["stdout"].total_bytes, self._streams["stderr"].total_bytes

    def write(self, stream: StreamName, data: bytes) -> int:
        """Add whole characters to a stream; return where in it they start."""
        record = self._streams[stream]
        offset = record.total_bytes
        record.total_bytes += len(data)
        self._total_bytes += len(data)
        if self._is_written:
            self._append_to_file(record, data)
        if self._is_cut:
            record.tail.add(data)
            return offset
        record.head += data
        if self._total_bytes > self._memory_bytes:
            self._cut()
        return offset

    def size(self, stream: StreamName) -> int:
        """How many bytes of a stream have been written."""
        return self._streams[stream].total_bytes

    def read(self, stream: StreamName, offset: int, size: int) -> bytes:
        """Read back from a record on disk; short only where the record has failed."""
        with self._readers_lock:
            if stream not in self._readers:
                try:
                    self._readers[stream] = os.open(self._streams[stream].path, os.O_RDONLY)
                except OSError:
                    return b""
            return os.pread(self._readers[stream], size, offset)

    def finish(self) -> OutputRecord:
        """Close the files and give what is left: texts, paths and notices."""
        self.close()
        record = OutputRecord()
        for stream, pieces in zip(STREAMS, self._pieces(), strict=True):
            texts = [piece.decode("utf-8", "replace") for piece in pieces if piece]
            (record.stdout if stream == "stdout" else record.stderr).extend(texts)
            self._note_what_is_missing(stream, sum(map(len, pieces)), record)
        if self._failure is not None and self._is_cut:
            record.notices.append(
                Notice(
                    kind="record_failed",
                    message=f"The record of the output could not be written: {self._failure}."
                    f" {self._lost_bytes:,} bytes are lost; free space on the disk of"
                    f" {self.folder} and run the code again to have them.",
                )
            )
        return record

    def close(self) -> None:
        """Close the files. What is in memory stays readable."""
        with self._readers_lock:
            for descriptor in self._readers.values():
                os.close(descriptor)
            self._readers.clear()
        for record in self._streams.values():
            if record.writer is not None:
                os.close(record.writer)
                record.writer = None

    def _cut(self) -> None:
        """From here on files have the text, and memory keeps the head and the tail only."""
        self._is_cut = True
        was_written, self._is_written = self._is_written, True
        for record, share in zip(self._streams.values(), self._shares("head"), strict=True):
            if record.head and not was_written:
                self._append_to_file(record, record.head)
            head = cut_head(bytes(record.head), share)
            record.tail.add(bytes(record.head[len(head) :]))
            record.head = bytearray(head)

    def _append_to_file(self, record: _Stream, data: bytes | bytearray) -> None:
        if self._failure is not None:
            self._lost_bytes += len(data)
            return
        view = memoryview(data)
        try:
            if record.writer is None:
                make_private_folder(self.folder)
                record.writer = open_private(record.path, os.O_WRONLY | os.O_TRUNC)
            while view:
                view = view[os.write(record.writer, view) :]
        except OSError as error:
            self._failure = error
            self._lost_bytes += len(view)

    def _shares(self, part: str) -> tuple[int, int]:
        """Divide half of the memory between the streams; what one leaves, the other gets."""
        first, second = (len(getattr(record, part)) for record in self._streams.values())
        quarter = self._half // 2
        if first <= quarter:
            return first, self._half - first
        if second <= quarter:
            return self._half - second, second
        return quarter, quarter

    def _pieces(self) -> list[list[bytes]]:
        if not self._is_cut:
            return [[bytes(record.head)] for record in self._streams.values()]
        return [
            [bytes(record.head), cut_tail(_from_a_character_on(bytes(record.tail)), share)]
            for record, share in zip(self._streams.values(), self._shares("tail"), strict=True)
        ]

    def _note_what_is_missing(
        self, stream: StreamName, kept_bytes: int, record: OutputRecord
    ) -> None:
        missing = self._streams[stream].total_bytes - kept_bytes
        if not missing:
            return
        path = self._streams[stream].path
        where = "could not be kept" if self._failure else f"is in {path}"
        if self._failure is None:
            record.full_output_paths[stream] = path
        record.notices.append(
            Notice(
                kind="truncated",
                message=f"{missing:,} of {self._streams[stream].total_bytes:,} bytes of {stream}"
                f" are left out after the first {len(self._streams[stream].head):,};"
                f" the whole text {where}.",
            )
        )


def _from_a_character_on(data: bytes) -> bytes:
    """Leave out the end of a character whose beginning was trimmed away."""
    return data.lstrip(_CONTINUATION_BYTES)


@dataclass(slots=True)
class OutputRecord:
    """What a finished sink gives to the result."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    full_output_paths: dict[StreamName, Path] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
