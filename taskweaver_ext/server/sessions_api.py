"""Answers about sessions: which there are, what they are, and their beginning and end."""

from __future__ import annotations

from taskweaver_ext.server import api
from taskweaver_ext.server.routes import Call, Operation
from taskweaver_ext.server.served_session import Cursor, ServedSession
from taskweaver_ext.server.served_sessions import ServedSessions
from taskweaver_ext.session.saved import SavedSession, SessionSummary, list_sessions


class SessionsApi:
    """What can be asked about sessions.

    Threads:
        Each answer is made on a thread that may wait.
    """

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions

    def operations(self) -> tuple[Operation, ...]:
        """The table of what is answered here."""
        one = "/sessions/{session_id}"
        return (
            Operation(
                method="GET",
                path="/sessions",
                summary="List the sessions of the project, running and saved.",
                answer=self.list,
                query=api.SessionQuery,
                returns=api.SessionList,
            ),
            Operation(
                method="POST",
                path="/sessions",
                summary="Make a session.",
                answer=self.create,
                body=api.NewSession,
                returns=api.SessionFacts,
                status=201,
            ),
            Operation(
                method="GET",
                path=one,
                summary="Say what is known of a session now.",
                answer=self.show,
                returns=api.SessionFacts,
                refusals=(404,),
            ),
            Operation(
                method="PATCH",
                path=one,
                summary="Rename a session.",
                answer=self.rename,
                body=api.Renaming,
                returns=api.SessionFacts,
                refusals=(404, 409),
            ),
            Operation(
                method="DELETE",
                path=one,
                summary="Remove a session for good, with everything in its folder.",
                answer=self.delete,
                status=204,
                refusals=(404, 409),
            ),
            Operation(
                method="POST",
                path=f"{one}/resume",
                summary="Continue a session that is saved.",
                answer=self.resume,
                returns=api.SessionFacts,
                refusals=(404, 409),
            ),
            Operation(
                method="POST",
                path=f"{one}/end",
                summary="End a session: what runs is killed, its folder stays.",
                answer=self.end,
                returns=api.WasRunning,
                refusals=(404,),
            ),
        )

    def list(self, call: Call) -> api.SessionList:
        """List those whose title or id has all the words that are searched for."""
        query: api.SessionQuery = call.query
        words = query.search.casefold().split()
        found = [
            summary
            for summary in list_sessions(self._sessions.workspace)
            if all(word in f"{summary.title} {summary.session_id}".casefold() for word in words)
        ]
        running = {one.session_id: one for one in self._sessions.running()}
        listed = [_listed(one, running.get(one.session_id)) for one in found[: query.limit]]
        return api.SessionList(sessions=listed, total=len(found))

    def create(self, call: Call) -> api.SessionFacts:
        """Make a session."""
        served = self._sessions.create()
        if call.body.title:
            self._sessions.rename(served.session_id, call.body.title)
        return facts_of(served)

    def show(self, call: Call) -> api.SessionFacts:
        """Say what is known of a session."""
        return facts_of(self._sessions.find(call.session_id))

    def rename(self, call: Call) -> api.SessionFacts:
        """Give a session a title."""
        self._sessions.rename(call.session_id, call.body.title)
        return self.show(call)

    def delete(self, call: Call) -> None:
        """Remove a session."""
        self._sessions.delete(call.session_id)

    def resume(self, call: Call) -> api.SessionFacts:
        """Continue a session."""
        return facts_of(self._sessions.open(call.session_id)[0])

    def end(self, call: Call) -> api.WasRunning:
        """End a session."""
        return api.WasRunning(was_running=self._sessions.end(call.session_id))


def facts_of(served: ServedSession) -> api.SessionFacts:
    """Return what is known of a session now."""
    session = served.session
    last_seq = served.feed.last_seq
    return api.SessionFacts(
        session_id=served.session_id,
        title=SavedSession(served.folder).title(),
        state=state_of(served),
        epoch=served.epoch,
        last_seq=last_seq,
        cursor=str(Cursor(served.epoch, last_seq)),
        round_id=session.emitter.current_round_id if session else None,
        questions=session.questions.open_questions if session else [],
        context_blocks=list(session.context_blocks) if session else [],
        settings=session.settings.facts if session else None,
        usage=dict(session.usage.to_dict()) if session else {},
        cwd=str(served.cwd),
        client_count=served.client_count,
    )


def state_of(served: ServedSession | None) -> api.SessionState:
    """Say in a word what a session is at."""
    if served is None or served.session is None:
        return "saved"
    return "busy" if served.is_busy else "idle"


def _listed(summary: SessionSummary, served: ServedSession | None) -> api.ListedSession:
    return api.ListedSession(
        session_id=summary.session_id,
        title=summary.title,
        state=state_of(served),
        created_at=summary.created_at,
        last_used_at=summary.last_used_at,
        round_count=summary.round_count,
        size_bytes=summary.size_bytes,
        opened_by="" if served is not None else summary.opened_by,
        problem=summary.problem,
    )
