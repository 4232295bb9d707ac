"""The sessions that an environment has open, by id, and the end of all of them."""

from __future__ import annotations

import os
import threading

from taskweaver_ext.ces.kernels.modes import KernelSource
from taskweaver_ext.ces.sessions.kernel_pool import KernelPool
from taskweaver_ext.ces.sessions.kernel_session import KernelSession
from taskweaver_ext.ces.sessions.session_info import SessionInfo
from taskweaver_ext.errors import SessionError


class OpenSessions:
    """Hold the sessions of one environment, for the process that has opened it.

    Threads:
        For any thread. `_lock` guards `_sessions` and `_is_closed`; it is not held while a
        session starts or stops.
    """

    def __init__(self, pool: KernelPool, source: KernelSource) -> None:
        """Begin without any.

        Args:
            pool: Counts their kernels; closed with them.
            source: Where these come from; closed after them.
        """
        self._pool = pool
        self._source = source
        self._sessions: dict[str, KernelSession] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._owner_pid = os.getpid()

    def require_open(self) -> None:
        """Refuse to begin what could not be used.

        Raises:
            SessionError: This process is a fork of the one that they belong to, or all are closed.
        """
        self._refuse_forks()
        if self._is_closed:
            raise SessionError("The environment has been closed. Open another to start sessions.")

    def add(self, session_id: str, session: KernelSession) -> None:
        """Have a session found by its id.

        Raises:
            SessionError: There is one of that id, or all were closed meanwhile.
        """
        with self._lock:
            if self._is_closed:
                raise SessionError("The environment was closed while a session started.")
            if session_id in self._sessions:
                raise SessionError(
                    f"Session {session_id!r} is running already. Use it, or stop it first."
                )
            self._sessions[session_id] = session

    def get(self, session_id: str) -> KernelSession:
        """Return a session.

        Raises:
            SessionError: There is none of that id, or this process is a fork.
        """
        self._refuse_forks()
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None:
            raise SessionError(
                f"There is no session {session_id!r}: it was never started, or has been stopped."
                " Call start_session first."
            )
        return session

    def discard(self, session_id: str, session: KernelSession) -> None:
        """Have a session found no more; another one that has its id by now is let be."""
        with self._lock:
            if self._sessions.get(session_id) is session:
                del self._sessions[session_id]

    def __contains__(self, session_id: str) -> bool:
        with self._lock:
            return session_id in self._sessions

    def describe(self) -> list[SessionInfo]:
        """What can be seen of all sessions now, in the order they were started."""
        with self._lock:
            sessions = list(self._sessions.values())
        return [session.describe() for session in sessions]

    def close(self) -> None:
        """Stop all of them, and let go of what their kernels come from."""
        with self._lock:
            self._is_closed = True
            sessions = list(self._sessions.values())
            self._sessions.clear()
        self._pool.close()
        for session in sessions:
            session.stop()
        self._source.close()

    def _refuse_forks(self) -> None:
        if os.getpid() != self._owner_pid:
            raise SessionError(
                f"This environment was opened by process {self._owner_pid}, of which this one is"
                " a fork, and kernels cannot be shared. Open another Environment here."
            )
