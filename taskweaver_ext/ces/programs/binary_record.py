"""The raw bytes of output that turned out not to be text, in files."""

from __future__ import annotations

import os
from pathlib import Path

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.machine.private_files import make_private_folder, open_private

_COPY_BYTES = 1 << 20


class BinaryRecord:
    """Keep streams that are not text.

    The text before the first such byte is in the text record. Room is left for it
    here, which `complete` fills: then the file has the whole stream.
    """

    def __init__(self, folder: Path, name: str, max_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._max_bytes = max_bytes
        self._sizes: dict[StreamName, int] = {"stdout": 0, "stderr": 0}
        self._binary_bytes = 0
        self._descriptors: dict[StreamName, int] = {}
        self._failure: OSError | None = None
        self.streams: list[StreamName] = []
        """Those that are not text."""

    @property
    def limit_reached(self) -> bool:
        """Whether more was written than is kept."""
        return self._binary_bytes > self._max_bytes

    def leave_room(self, stream: StreamName, size: int) -> None:
        """Leave room for text, which comes before all other bytes."""
        self._sizes[stream] += size

    def write(self, stream: StreamName, data: bytes) -> None:
        """Keep bytes that are not text, and all that follow them."""
        if stream not in self.streams:
            self.streams.append(stream)
        if self.limit_reached or self._failure is not None:
            return
        try:
            _write_at(self._descriptor(stream), data, self._sizes[stream])
        except OSError as error:
            self._failure = error
        self._binary_bytes += len(data)
        self._sizes[stream] += len(data)

    def complete(self, stream: StreamName, text: bytes | Path) -> Path:
        """Put the text, or what is in its file, before the rest; raises OSError."""
        if self._failure is not None:
            raise self._failure
        descriptor = self._descriptor(stream)
        if isinstance(text, bytes):
            _write_at(descriptor, text, 0)
        else:
            offset = 0
            with text.open("rb") as file:
                while piece := file.read(_COPY_BYTES):
                    _write_at(descriptor, piece, offset)
                    offset += len(piece)
        return self._path(stream)

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _descriptor(self, stream: StreamName) -> int:
        if stream not in self._descriptors:
            make_private_folder(self._folder)
            self._descriptors[stream] = open_private(self._path(stream), os.O_RDWR | os.O_TRUNC)
        return self._descriptors[stream]

    def _path(self, stream: StreamName) -> Path:
        return self._folder / f"{self._name}.{stream}.bin"


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written
