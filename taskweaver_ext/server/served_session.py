"""One session of the server: at work in this process, or on the disk for others to go on with."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.event_json import event_line
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import TaskWeaverEvent
from taskweaver_ext.server.event_feed import EventFeed
from taskweaver_ext.server.failures import RefusedError
from taskweaver_ext.session.ownership import owner_of
from taskweaver_ext.session.saved import SavedSession, end_cut_off_round
from taskweaver_ext.session.session import Session

MAX_READ_BYTES = 1 << 20
"""How much of older events is read at once."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a client is: the number of the last event it has, and which process told it."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.seq}"

    @staticmethod
    def parse(text: str) -> Cursor:
        """Read `EPOCH:SEQ`; nothing, or 0, is before the first event.

        Raises:
            RefusedError: It is neither.
        """
        if text in ("", "0"):
            return Cursor(0, 0)
        epoch, colon, seq = text.partition(":")
        if colon and _is_number(epoch) and _is_number(seq):
            return Cursor(int(epoch), int(seq))
        raise RefusedError(
            400, "bad_cursor", f"{text[:40]!r} names no event: write EPOCH:SEQ, such as 1:25, or 0."
        )


class ServedSession:
    """One session of the server, whether a process of it runs or not.

    Threads:
        Everything is safe from any thread. `lock` keeps two requests from opening, ending or
        deleting it at the same time.
    """

    def __init__(self, session_id: str, folder: Path, feed: EventFeed, epoch: int) -> None:
        self.session_id = session_id
        self.folder = folder
        self.feed = feed
        self.lock = threading.RLock()
        self.epoch = epoch
        self.session: Session | None = None
        """None while it is put away."""
        self.used_at = time.monotonic()
        """When something was last asked of it."""
        self.client_count = 0
        """How many streams of its events are open; belongs to the event loop."""
        self.is_deleted = False
        """Whether it is gone for good, by us or by another process."""
        self._journal_state = _state_of_journal(folder)
        self._is_whole = False
        """Whether what is on the disk has no round that began and has not ended."""

    @property
    def is_running(self) -> bool:
        """Whether it is at work in this process."""
        return self.session is not None

    @property
    def is_busy(self) -> bool:
        """Whether a round is under way."""
        session = self.session
        return session is not None and session.emitter.current_round_id is not None

    @property
    def cwd(self) -> Path:
        """The working folder."""
        session = self.session
        return session.cwd if session else SavedSession(self.folder).working_folder

    def look_again(self) -> None:
        """Learn what another process has done to a session that does not run here."""
        if self.lock.acquire(blocking=False):  # else it is being opened, ended or deleted
            try:
                if self.session is None:
                    self._read_end()
            finally:
                self.lock.release()

    def _read_end(self) -> None:
        self._end_cut_off_round()
        state = _state_of_journal(self.folder)
        if state == self._journal_state:
            return
        self._journal_state = state
        self._is_whole = False
        if self.folder.is_dir():
            self.epoch, last_seq = end_of(self.folder)
            self.feed.go_on_from(last_seq)
        else:
            self.is_deleted = True
            self.feed.close()

    def _end_cut_off_round(self) -> None:
        """Have nobody wait for a round whose process was killed, once that lets go of it."""
        if not self._is_whole and owner_of(self.folder) is None:
            with contextlib.suppress(SessionError):  # it cannot be read, or is just being opened
                end_cut_off_round(self.folder)
                self._is_whole = True

    def position_of(self, cursor: Cursor) -> int:
        """Return the number of the event that a client goes on from.

        A process that was killed has written down all that it told; but where its disk was full,
        numbers can have been given twice: then the client goes on from the last that is certain.

        Raises:
            RefusedError: There has been no such event.
        """
        if 0 < cursor.epoch < self.epoch:
            return min(cursor.seq, self._last_seq_of(cursor.epoch))
        if cursor.seq > self.feed.last_seq or cursor.epoch > self.epoch:
            raise RefusedError(
                409,
                "no_such_event",
                f"There has been no event {cursor}; the newest is {self.epoch}:"
                f"{self.feed.last_seq}. Go on from 0 to have everything.",
            )
        return cursor.seq

    def read_older(self, after: int) -> list[str]:
        """Return the next events after a number, as lines, from memory, journal or record."""
        return [event_line(event) for event in self._events_after(after)]

    def events(self) -> Iterator[TaskWeaverEvent]:
        """All events so far, oldest first."""
        session = self.session
        return session.emitter.events() if session else SavedSession(self.folder).events()

    def event(self, seq: int) -> TaskWeaverEvent | None:
        """Return the event with that number, if it is kept."""
        if not 0 < seq <= self.feed.last_seq:
            return None
        found = self._events_after(seq - 1, max_bytes=1)
        return found[0] if found and found[0].seq == seq else None

    def _events_after(self, after: int, max_bytes: int = MAX_READ_BYTES) -> list[TaskWeaverEvent]:
        session = self.session
        if session is not None:
            return session.emitter.read(after, max_bytes)
        try:
            with JournalReader(self.folder) as reader:
                return reader.read(after, max_bytes)
        except SessionError:  # of a session that is older than journals
            return list(SavedSession(self.folder).events(after))

    def _last_seq_of(self, epoch: int) -> int:
        try:
            with JournalReader(self.folder) as reader:
                return reader.last_seq_of(epoch)
        except SessionError:
            return self.feed.last_seq


def end_of(folder: Path) -> tuple[int, int]:
    """The epoch and the number of the newest event of a session on the disk."""
    try:
        with JournalReader(folder) as reader:
            return reader.epoch, reader.last_seq
    except SessionError:
        try:
            return 1, SavedSession(folder).last_seq()
        except SessionError:
            return 1, 0


def _state_of_journal(folder: Path) -> tuple[int, int] | None:
    """What differs once a process has written to a journal; None where there is none."""
    try:
        status = (folder / JOURNAL).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
