"""The sessions of a server: made, continued when they are asked for, put away when they idle."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.execution.executor import NAME
from taskweaver_ext.errors import SessionError, TaskWeaverError
from taskweaver_ext.events.event_json import event_line
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import TaskWeaverEvent
from taskweaver_ext.server.event_feed import EventFeed, RecentEvents
from taskweaver_ext.server.failures import RefusedError
from taskweaver_ext.session.saved import SavedSession, delete_session, rename_session
from taskweaver_ext.session.session import Session

MAX_READ_BYTES = 1 << 20
"""How much of older events is read at once."""
_SECONDS_PER_MINUTE = 60.0
_LOOK_SECONDS = 5.0
"""How often idle sessions are looked for, at most."""

_logger = logging.getLogger(__name__)


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


class ServedSessions:
    """All sessions that the server knows, by id.

    Threads:
        Everything is safe from any thread; `_lock` guards the table.
    """

    def __init__(
        self, app: TaskWeaverApp, loop: asyncio.AbstractEventLoop, cwd: Path | None = None
    ) -> None:
        """Serve the sessions of an application.

        Args:
            loop: The event loop on which clients are.
            cwd: Where new sessions work; None: as the project says.
        """
        self.app = app
        self._cwd = cwd
        settings = app.config.server
        self._loop = loop
        self._idle_seconds = settings.idle_minutes * _SECONDS_PER_MINUTE
        self._max_sessions = settings.max_sessions
        self.recent = RecentEvents(settings.history_mb << 20)
        self._lock = threading.Lock()
        self._sessions: dict[str, ServedSession] = {}
        self._is_closing = threading.Event()
        self._idle_watch = threading.Thread(
            target=self._put_idle_away, name="taskweaver-idle-sessions", daemon=True
        )
        self._idle_watch.start()

    @property
    def workspace(self) -> Path:
        """Where the sessions of the project are."""
        return self.app.config.workspace.workspace_path

    def running(self) -> list[ServedSession]:
        """Those with a process, in the order in which they were first asked for."""
        with self._lock:
            return [one for one in self._sessions.values() if one.session is not None]

    def find(self, session_id: str) -> ServedSession:
        """Return a session that runs or is on the disk.

        Raises:
            RefusedError: There is none of that id.
        """
        with self._lock:
            if found := self._sessions.get(session_id):
                return found
        return self._known(session_id)

    def create(self) -> ServedSession:
        """Make a session.

        Raises:
            RefusedError: There are too many, or the server ends.
        """
        self._require_room()
        session = self.app.get_session(cwd=self._cwd)
        served = self._known(session.session_id)
        with served.lock:
            self._run(served, session)
        return served

    def open(self, session_id: str) -> tuple[ServedSession, Session]:
        """Return a session at work: one that was put away is continued.

        Raises:
            RefusedError: There is none, there are too many, or the server ends.
            SessionError: Another process has it.
        """
        served = self.find(session_id)
        with served.lock:
            served.used_at = time.monotonic()
            if served.session is None:
                self._require_room()
                self._run(served, self.app.get_session(session_id))
            session = served.session
            assert session is not None
            return served, session

    def end(self, session_id: str) -> bool:
        """End a session; its folder stays. Say whether it ran."""
        served = self.find(session_id)
        with served.lock:
            session, served.session = served.session, None
            if session is not None:
                session.stop()
            return session is not None

    def delete(self, session_id: str) -> None:
        """End a session and remove it for good.

        Raises:
            SessionError: Another process has it open.
        """
        served = self.find(session_id)
        with served.lock:
            self.end(session_id)
            delete_session(served.folder)
            with self._lock:
                self._sessions.pop(session_id, None)
        served.feed.close()

    def rename(self, session_id: str, title: str) -> None:
        """Give a session a title, whether it runs or not.

        Raises:
            SessionError: Another process has it open.
        """
        served = self.find(session_id)
        with served.lock:
            if served.session is not None:
                served.session.rename(title)
                return
            rename_session(served.folder, title)
            served.epoch, last_seq = _end_of(served.folder)
            served.feed.go_on_from(last_seq)

    def close(self, seconds: float) -> bool:
        """End all sessions at once; say whether they have ended within that time."""
        self._is_closing.set()
        self._idle_watch.join(seconds)
        sessions = [one.session for one in self.running() if one.session is not None]
        with self._lock:
            feeds = [one.feed for one in self._sessions.values()]
        if sessions:
            pool = ThreadPoolExecutor(len(sessions), thread_name_prefix="taskweaver-stop")
            unended = wait([pool.submit(one.stop) for one in sessions], seconds).not_done
            pool.shutdown(wait=not unended, cancel_futures=True)
        else:
            unended = set()
        for feed in feeds:
            feed.close()
        return not unended

    def _known(self, session_id: str) -> ServedSession:
        folder = self.workspace / "sessions" / session_id
        is_name = NAME.fullmatch(session_id)
        if not is_name or folder.is_symlink() or not folder.is_dir():
            raise RefusedError(404, "no_session", f"There is no session {session_id[:100]!r}.")
        epoch, last_seq = _end_of(folder)
        with self._lock:
            if session_id not in self._sessions:
                feed = EventFeed(self.recent, self._loop, last_seq)
                self._sessions[session_id] = ServedSession(session_id, folder, feed, epoch)
            return self._sessions[session_id]

    def _run(self, served: ServedSession, session: Session) -> None:
        """Serve a session that has just been opened; called with its lock."""
        session.questions.accepts_answers = True
        session.emitter.register(served.feed)
        served.session, served.epoch = session, session.epoch
        served.used_at = time.monotonic()
        served.feed.go_on_from(session.emitter.last_seq)

    def _require_room(self) -> None:
        if self._is_closing.is_set():
            raise RefusedError(503, "ending", "The server ends. Start it again to go on.")
        if len(self.running()) >= self._max_sessions:
            raise RefusedError(
                429,
                "too_many_sessions",
                f"{self._max_sessions} sessions run already (server.max_sessions). End one first.",
            )

    def _put_idle_away(self) -> None:
        if not self._idle_seconds:
            return
        while not self._is_closing.wait(min(_LOOK_SECONDS, self._idle_seconds / 2)):
            for served in self.running():
                try:
                    self._put_away_if_idle(served)
                except (TaskWeaverError, OSError):
                    _logger.exception("Session %r could not be put away", served.session_id)

    def _put_away_if_idle(self, served: ServedSession) -> None:
        with served.lock:
            session = served.session
            if session is None:
                return
            if served.is_busy:
                served.used_at = time.monotonic()
            if time.monotonic() - served.used_at < self._idle_seconds:
                return
            minutes = self._idle_seconds / _SECONDS_PER_MINUTE
            session.emitter.emit_notice(
                f"Nothing was asked for {minutes:g} minutes: the session is put away, and its"
                " kernel ends with all variables. It comes back with the next request, on a fresh"
                " kernel.",
                "put_away",
            )
            served.session = None
            session.stop()


def _end_of(folder: Path) -> tuple[int, int]:
    """The epoch and the number of the newest event of a session on the disk."""
    try:
        with JournalReader(folder) as reader:
            return reader.epoch, reader.last_seq
    except SessionError:
        try:
            return 1, SavedSession(folder).last_seq()
        except SessionError:
            return 1, 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
