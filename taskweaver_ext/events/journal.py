"""The journal of a session: every event on the disk before anybody hears it.

One `os.write` per event: what was shown survives the death of this process (SIGKILL), not of the
machine, because nothing is forced to the disk. A full disk costs only the journal: it is said
once, and when there is room again the journal goes on; readers are told what is missing.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.journal_lines import (
    FORMAT,
    JOURNAL,
    LONGEST_HEADER,
    RECORDS,
    line_of,
    line_of_event,
)
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.lines_of_file import MAX_LINE_BYTES
from taskweaver_ext.events.types import TaskWeaverEvent
from taskweaver_ext.machine.forks import closed_in_forks
from taskweaver_ext.machine.private_files import open_private, open_to_read

RETRY_SECONDS = 1.0
"""How long after a failure the next event is tried to be written."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_logger = logging.getLogger(__name__)


class Journal:
    """Write down the events of a session; one process owns it at a time.

    Threads:
        `append` is called by one thread at a time, `read` and `close` by any. `_lock` guards
        the file, so that none is written to that has just been closed.
    """

    def __init__(
        self, folder: Path, *, session_id: str, project: str, on_failure: Callable[[str], None]
    ) -> None:
        """Open the journal of a session's folder, or begin it.

        Args:
            on_failure: Told once, by `append`, that events cannot be written.

        Raises:
            SessionError: There is a journal that cannot be read, or is of a newer format.
        """
        self._folder = folder
        self._path = folder / JOURNAL
        self._records = folder / RECORDS
        self._on_failure = on_failure
        self._has_failed = False
        self._untold = ""
        """What `on_failure` is to be told."""
        self._retry_at = 0.0
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        """Opened by the first write that succeeds; a fork of this process has it closed."""
        self._is_closed = False
        self.epoch = 1
        """Counts the processes that have worked on the session."""
        self.last_seq = 0
        """The number of the newest event that was there when the journal was opened."""
        self._intact_bytes = 0
        """What of the file was worth keeping when it was opened: all but a torn last line."""
        if is_begun := self._has_header():
            with JournalReader(folder) as reader:
                self.epoch, self.last_seq = reader.epoch + 1, reader.last_seq
                self._intact_bytes = reader.complete_bytes
        self._beginning = b"" if is_begun else _header(session_id, project)
        """What is written before the next event."""
        self._beginning += line_of({"epoch": self.epoch, "at": time.time(), **_this_process()})
        self._write(b"")

    def append(self, event: TaskWeaverEvent) -> None:
        """Write down an event; what cannot be written is said, and costs only the journal."""
        if not self._retry_at or time.monotonic() >= self._retry_at:
            try:
                line = line_of_event(event, self._records)
            except Exception:  # what roles of a project's own attach can be anything
                _logger.exception("Event %d is left out of the journal", event.seq)
                return
            if len(line) > MAX_LINE_BYTES:
                self._untold = (
                    f"Event {event.seq} is too large for the session's journal ({len(line):,} bytes"
                    f" of {MAX_LINE_BYTES:,}): it is lost when this process ends."
                )
                _logger.warning("%s", self._untold)
            else:
                self._write(line)
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
            self._is_closed = True
            if self._file is not None:
                self._file.close()

    def _has_header(self) -> bool:
        """Whether a journal was begun here; a torn header is all that an early death leaves."""
        try:
            with open(open_to_read(self._path), "rb") as file:
                line = file.readline(LONGEST_HEADER)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise SessionError(f"The journal {self._path} cannot be read: {error}.") from error
        return line.endswith(b"\n") or len(line) == LONGEST_HEADER

    def _write(self, line: bytes) -> None:
        with self._lock:
            if self._is_closed or (self._file is not None and self._file.closed):
                return
            try:
                self._append_whole(self._beginning + line)
            except OSError as error:
                failure = error
            else:
                self._beginning = b""
                if self._retry_at:
                    self._retry_at = 0.0
                    _logger.warning("The journal %s is written again", self._path)
                return
        self._fail(failure)

    def _append_whole(self, data: bytes) -> None:
        """Write all of it or nothing; raises OSError."""
        if self._file is None:
            descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND)
            self._file = closed_in_forks(open(descriptor, "ab", buffering=0))  # noqa: SIM115 - `close`
            self._file.truncate(self._intact_bytes)
        if not os.fstat(self._file.fileno()).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "it was removed")  # nobody would find it there
        written = self._file.write(data)
        if written < len(data):
            self._file.truncate(self._file.tell() - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _fail(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if self._has_failed:
            return
        self._has_failed = True
        message = (
            f"The session's journal {self._path} cannot be written ({error.strerror or error})."
            " The session goes on, but what happens now is lost when its process ends."
        )
        if error.errno in _FULL:
            message += " Free space on that disk: the journal then goes on by itself."
        _logger.warning("%s", message)
        self._untold = message


def _header(session_id: str, project: str) -> bytes:
    return line_of(
        {
            "format": FORMAT,
            "session_id": session_id,
            "project": project,
            "created_at": time.time(),
        }
    )


def _this_process() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname()}
