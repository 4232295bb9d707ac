"""Our standard output and standard error, as places for what running code writes.

A pipe gets the text as it is; a terminal gets nothing but text and colours.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
from typing import TextIO

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.config import variables
from taskweaver_ext.console.rows import cell_width
from taskweaver_ext.text.terminal import TerminalFilter, message_text


class Screen:
    """Write to both streams at once, without buffers.

    Threads:
        Any thread may write; `_lock` keeps what one call writes together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[StreamName, _Stream] = {
            "stdout": _Stream(sys.stdout),
            "stderr": _Stream(sys.stderr),
        }
        self._is_at_line_start = True
        self.failure: OSError | None = None
        """Why standard output cannot be written to any more."""

    def write(self, stream: StreamName, text: str) -> bool:
        """Show what the code wrote; False once standard output has failed."""
        with self._lock:
            target = self._streams[stream]
            shown = target.filter.feed(text) if target.filter else text
            self._put(stream, shown)
            return self.failure is None

    def is_terminal(self, stream: StreamName) -> bool:
        """Whether a person sees the stream at once."""
        return self._streams[stream].filter is not None

    def take_back(self, lines: list[str]) -> bool:
        """Erase the last lines on the terminal, given what is to be seen of them.

        The last of them is the one that the cursor is in. Returns False, and does nothing, where
        they have left the screen, or the terminal can only print.
        """
        columns, height = self._streams["stdout"].size()
        if not columns:
            return False
        rows = sum(max(1, -(-cell_width(line) // columns)) for line in lines)
        if rows >= height:
            return False
        with self._lock:
            up = f"\x1b[{rows - 1}A" if rows > 1 else ""
            self._put("stdout", f"\r{up}\x1b[J")
            self._is_at_line_start = True
        return True

    def say(self, line: str) -> None:
        """Show a line of our own on standard error."""
        with self._lock:
            if self._streams["stderr"].filter and not self._is_at_line_start:
                self._put("stderr", "\n")
            self._put("stderr", message_text(line) + "\n")

    def say_failure(self) -> None:
        """Say why standard output cannot be written to, unless its reader has had enough."""
        if self.failure is not None and self.failure.errno != errno.EPIPE:
            self.say(f"error: standard output cannot be written: {self.failure.strerror}")

    def leave_line(self) -> None:
        """The terminal has something on its line that we did not write, such as `^C`."""
        with self._lock:
            self._is_at_line_start = False

    def close(self) -> None:
        """End colours that are still open."""
        with self._lock:
            for stream, target in self._streams.items():
                if target.filter:
                    self._put(stream, target.filter.close())

    def _put(self, stream: StreamName, text: str) -> None:
        target = self._streams[stream]
        if not text or (stream == "stdout" and self.failure is not None):
            return
        if target.filter:
            self._is_at_line_start = text.endswith("\n")
        try:
            target.write(text)
        except OSError as error:
            if stream == "stdout":
                self.failure = error


class _Stream:
    """One of our streams, which may be closed, full for the moment, or gone."""

    def __init__(self, file: TextIO | None) -> None:
        self._descriptor = file.fileno() if file else None
        self._encoding = file.encoding if file else "utf-8"
        is_terminal = self._descriptor is not None and os.isatty(self._descriptor)
        self.filter = TerminalFilter(variables.wants_color()) if is_terminal else None

    def size(self) -> tuple[int, int]:
        """Columns and rows of a terminal that can move its cursor, else none."""
        if self._descriptor is None or self.filter is None or variables.has_simple_terminal():
            return 0, 0
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return 0, 0
        return size.columns, size.lines

    def write(self, text: str) -> None:
        if self._descriptor is None:
            return
        view = memoryview(text.encode(self._encoding, "replace"))
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
