"""The sessions of a server: made, continued when they are asked for, put away when they idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.execution.executor import NAME
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.server.event_feed import EventFeed, RecentEvents
from taskweaver_ext.server.failures import RefusedError
from taskweaver_ext.server.served_session import ServedSession, end_of
from taskweaver_ext.session.saved import delete_session, rename_session
from taskweaver_ext.session.session import Session

_SECONDS_PER_MINUTE = 60.0
_LOOK_SECONDS = 5.0
"""How often idle sessions are looked for, at most."""

_logger = logging.getLogger(__name__)


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
        self._starting = 0
        """How many are about to run."""
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
            found = self._sessions.get(session_id)
        found = found or self._known(session_id)
        found.look_again()
        if found.is_deleted:
            with self._lock:
                self._sessions.pop(session_id, None)
            raise _no_session(session_id)
        return found

    def create(self) -> ServedSession:
        """Make a session.

        Raises:
            RefusedError: There are too many, or the server ends.
        """
        with self._room_for_one():
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
        with self._held(session_id) as served:
            served.used_at = time.monotonic()
            if served.session is None:
                with self._room_for_one():
                    self._run(served, self.app.get_session(session_id))
            session = served.session
            assert session is not None
            return served, session

    def end(self, session_id: str) -> bool:
        """End a session; its folder stays. Say whether it ran."""
        with self._held(session_id) as served:
            session, served.session = served.session, None
            if session is not None:
                session.stop()
            return session is not None

    def delete(self, session_id: str) -> None:
        """End a session and remove it for good.

        Raises:
            SessionError: Another process has it open.
        """
        with self._held(session_id) as served:
            self.end(session_id)
            delete_session(served.folder)
            served.is_deleted = True
            with self._lock:
                self._sessions.pop(session_id, None)
        served.feed.close()

    def rename(self, session_id: str, title: str) -> None:
        """Give a session a title, whether it runs or not.

        Raises:
            SessionError: Another process has it open.
        """
        with self._held(session_id) as served:
            if served.session is not None:
                served.session.rename(title)
                return
            rename_session(served.folder, title)
            served.look_again()

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
            raise _no_session(session_id)
        epoch, last_seq = end_of(folder)
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

    @contextlib.contextmanager
    def _held(self, session_id: str) -> Iterator[ServedSession]:
        """Keep other requests from opening, ending or deleting a session during a block."""
        served = self.find(session_id)
        with served.lock:
            served.look_again()
            if served.is_deleted:  # while this request waited
                raise _no_session(session_id)
            yield served

    @contextlib.contextmanager
    def _room_for_one(self) -> Iterator[None]:
        """Keep a place for a session that is about to run, during a block."""
        if self._is_closing.is_set():
            raise RefusedError(503, "ending", "The server ends. Start it again to go on.")
        with self._lock:
            running = sum(one.is_running for one in self._sessions.values())
            if running + self._starting >= self._max_sessions:
                raise RefusedError(
                    429,
                    "too_many_sessions",
                    f"{self._max_sessions} sessions run already (server.max_sessions). End one"
                    " first.",
                )
            self._starting += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1

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


def _no_session(session_id: str) -> RefusedError:
    return RefusedError(404, "no_session", f"There is no session {session_id[:100]!r}.")
