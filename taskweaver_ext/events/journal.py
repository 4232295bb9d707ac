"""The journal of a session: every event on the disk before anybody hears it.

One `os.write` per event: what was shown survives the death of this process (SIGKILL), not of the
machine, because nothing is forced to the disk. A full disk costs only the journal: it is said
once, and when there is room again the journal goes on; readers are told what is missing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.journal_lines import FORMAT, JOURNAL, line_of, line_of_event
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import TaskWeaverEvent
from taskweaver_ext.machine.forks import closed_in_forks
from taskweaver_ext.machine.private_files import open_private

RETRY_SECONDS = 1.0
"""How long after a failure the next event is tried to be written."""

_logger = logging.getLogger(__name__)


class Journal:
    """Write down the events of a session; one process owns it at a time.

    Threads:
        `append` and `close` are called by one thread at a time, `read` by any. `_lock` guards
        the descriptor, which a fork of this process closes.
    """

    def __init__(
        self, folder: Path, *, session_id: str, project: str, on_failure: Callable[[str], None]
    ) -> None:
        """Open the journal of a session's folder, or begin it.

        Args:
            on_failure: Told once, by `append`, that events cannot be written.

        Raises:
            SessionError: The journal is of a newer format, or of no use.
        """
        self._folder = folder
        self._path = folder / JOURNAL
        self._on_failure = on_failure
        self._has_failed = False
        self._untold = ""
        """What `on_failure` is to be told."""
        self._retry_at = 0.0
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._size = 0
        self.epoch = 1
        """Counts the processes that have worked on the session."""
        self.last_seq = 0
        """The number of the newest event that was there when the journal was opened."""
        begins = [self._header(session_id, project)]
        if self._has_header():
            with JournalReader(folder) as reader:
                self.epoch, self.last_seq = reader.epoch + 1, reader.last_seq
                self._size = reader.complete_bytes
            begins = []
        begins.append(line_of({"epoch": self.epoch, "at": time.time(), **_this_process()}))
        try:
            self._descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(self._descriptor, self._size)  # a torn line of a process that was killed
        except OSError as error:
            self._fail(error)
        for line in begins:
            self._write(line)
        closed_in_forks(self)

    def append(self, event: TaskWeaverEvent) -> None:
        """Write down an event; what cannot be written is said, and costs only the journal."""
        if not self._retry_at or time.monotonic() >= self._retry_at:
            self._write(line_of_event(event, self._folder))
        if message := self._untold:
            self._untold = ""
            self._on_failure(message)

    def read(self, after: int, max_bytes: int) -> list[TaskWeaverEvent]:
        """Return events after number `after`, oldest first, of about so much text; may be none."""
        try:
            with JournalReader(self._folder) as reader:
                return reader.read(after, max_bytes)
        except SessionError:
            return []

    def close(self) -> None:
        """Let go of the file; what comes later is not written."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    def _has_header(self) -> bool:
        """Whether a journal was begun here: its first line is complete."""
        try:
            with self._path.open("rb") as file:
                return file.readline(1 << 16).endswith(b"\n")
        except OSError:
            return False

    def _header(self, session_id: str, project: str) -> bytes:
        return line_of(
            {
                "format": FORMAT,
                "session_id": session_id,
                "project": project,
                "created_at": time.time(),
            }
        )

    def _write(self, line: bytes) -> None:
        with self._lock:
            if self._descriptor is None:
                return
            try:
                written = os.write(self._descriptor, line)
                if written == len(line):
                    self._size += written
                    self._retry_at = 0.0
                    return
                os.ftruncate(self._descriptor, self._size)
                error = OSError(f"only {written} of {len(line)} bytes could be written")
            except OSError as failure:
                error = failure
        self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if self._has_failed:
            return
        self._has_failed = True
        message = (
            f"The session's journal {self._path} cannot be written ({error.strerror or error})."
            " The session goes on, but what happens now is lost when its process ends."
            " Free space on that disk: the journal then goes on by itself."
        )
        _logger.warning("%s", message)
        self._untold = message


def _this_process() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname()}
