"""What is asked of a session at work: messages, runs, answers, and every other command."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

from starlette.requests import Request

from taskweaver_ext.ces.execution.files_beneath import regular_file_beneath
from taskweaver_ext.ces.execution.looks import Completions, Inspection, KernelPeek
from taskweaver_ext.chat import protocol
from taskweaver_ext.chat.protocol import Caller, Command
from taskweaver_ext.chat.session_commands import Begun, Outcome, begin
from taskweaver_ext.errors import TaskWeaverError
from taskweaver_ext.server import api
from taskweaver_ext.server.event_streams import EventSource, Reply
from taskweaver_ext.server.failures import RefusedError, refused
from taskweaver_ext.server.routes import Call, Operation
from taskweaver_ext.server.served_session import Cursor
from taskweaver_ext.server.served_sessions import ServedSessions
from taskweaver_ext.session.session import Session


class WorkApi:
    """What can be asked of a session at work; one that is saved is continued for it.

    Threads:
        Each answer is made on a thread that may wait. A command of a socket that takes time has
        a thread of its own, `taskweaver-command`.
    """

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions

    def operations(self) -> tuple[Operation, ...]:
        """The table of what is answered here."""
        one = "/sessions/{session_id}"
        return (
            Operation(
                method="GET",
                path=f"{one}/events",
                summary="Send the events after one, and go on with what comes, as SSE.",
                answer=self.events,
                query=api.StreamQuery,
                media_type="text/event-stream",
                refusals=(404, 409),
            ),
            Operation(
                method="POST",
                path=f"{one}/messages",
                summary="Have the agent answer a message.",
                answer=lambda call: self._begin_round(call, call.body),
                body=protocol.SendMessage,
                returns=api.BegunRound,
                status=202,
                refusals=(404, 409),
            ),
            Operation(
                method="POST",
                path=f"{one}/runs",
                summary="Run code that a person has typed.",
                answer=lambda call: self._begin_round(call, call.body),
                body=protocol.RunCode,
                returns=api.BegunRound,
                status=202,
                refusals=(404, 409),
            ),
            Operation(
                method="POST",
                path=f"{one}/interrupt",
                summary="Stop the model's reply or the code that runs; `kill` gives up variables.",
                answer=self.interrupt,
                body=protocol.Interrupt,
                returns=api.WasRunning,
                refusals=(404,),
            ),
            Operation(
                method="POST",
                path=f"{one}/answers",
                summary="Answer a question; the first answer counts.",
                answer=self.answer,
                body=protocol.Answer,
                status=204,
                refusals=(404, 409),
            ),
            Operation(
                method="POST",
                path=f"{one}/commands",
                summary="Do any command of the protocol, by its name.",
                answer=self.command,
                body=api.AnyCommand,
                returns=api.CommandReply,
                refusals=(404, 409),
            ),
            Operation(
                method="GET",
                path=f"{one}/variables",
                summary="Return variables, the line that runs and memory of the kernel now.",
                answer=self.variables,
                returns=KernelPeek,
                refusals=(404,),
            ),
            Operation(
                method="POST",
                path=f"{one}/completions",
                summary="Return what fits at a place in Python code; also while code runs.",
                answer=self.complete,
                body=api.PlaceInCode,
                returns=Completions,
                refusals=(404, 409),
            ),
            Operation(
                method="POST",
                path=f"{one}/inspections",
                summary="Return what the name at a place in Python code is.",
                answer=self.inspect,
                body=api.PlaceInCode,
                returns=Inspection,
                refusals=(404, 409),
            ),
        )

    def variables(self, call: Call) -> KernelPeek:
        """Look into the kernel; a session that does not run has none."""
        session = self._sessions.find(call.session_id).session
        return KernelPeek(state="put_away") if session is None else session.kernel.peek()

    def complete(self, call: Call) -> Completions:
        """Say what fits; nothing does where the code is no Python."""
        kernel = self._sessions.open(call.session_id)[1].kernel
        is_python = call.body.language == "python"
        return kernel.complete(*_place(call)) if is_python else Completions()

    def inspect(self, call: Call) -> Inspection:
        """Say what a name is."""
        kernel = self._sessions.open(call.session_id)[1].kernel
        is_python = call.body.language == "python"
        return kernel.inspect(*_place(call)) if is_python else Inspection()

    def events(self, call: Call) -> EventSource:
        """Stream the events after one."""
        assert isinstance(call.request, Request)
        served = self._sessions.find(call.session_id)
        after = call.request.headers.get("last-event-id") or call.query.after
        position = served.position_of(Cursor.parse(after))
        return EventSource(served, position, follows=call.query.follow)

    def interrupt(self, call: Call) -> api.WasRunning:
        """Stop what runs; a session that does not run is let be."""
        session = self._sessions.find(call.session_id).session
        was_running = session is not None and session.interrupt(kill=call.body.kill)
        return api.WasRunning(was_running=was_running)

    def answer(self, call: Call) -> None:
        """Answer a question."""
        session = self._sessions.find(call.session_id).session
        if session is None:
            raise RefusedError(409, "not_open", "The session does not run, and asks nothing.")
        begin(session, call.body)

    def command(self, call: Call) -> api.CommandReply:
        """Do a command; one that takes time but is no round is waited for."""
        wanted: api.AnyCommand = call.body
        line = json.dumps({**wanted.fields, "command": wanted.command}).encode()
        try:
            _, command = protocol.parse_command(line)
        except protocol.RefusedCommandError as error:
            raise RefusedError(400, "bad_command", str(error)) from error
        begun = self._begin(call.session_id, command)
        if isinstance(begun, Begun) and begun.round_id is not None:
            return api.CommandReply(
                reply="accepted", command=wanted.command, round_id=begun.round_id
            )
        outcome = begun.finish() if isinstance(begun, Begun) else begun
        return api.CommandReply(reply="done", command=wanted.command, outcome=outcome)

    def do_line(self, session_id: str, line: bytes, reply: Reply) -> None:
        """Do a command that came over a socket, and reply to it."""
        caller = Caller()
        try:
            caller, command = protocol.parse_command(line)
            begun = self._begin(session_id, command)
        except protocol.RefusedCommandError as error:
            reply(protocol.reply_line("refused", error.caller, reason=str(error)), True)
            return
        except TaskWeaverError as error:
            reply(protocol.reply_line("refused", caller, reason=str(error)), True)
            return
        if not isinstance(begun, Begun):
            reply(protocol.reply_line("done", caller, outcome=begun), True)
            return
        details = {} if begun.round_id is None else {"round_id": begun.round_id}
        reply(protocol.reply_line("accepted", caller, **details), False)
        threading.Thread(
            target=_finish, args=(begun, caller, reply), name="taskweaver-command", daemon=True
        ).start()

    def _begin_round(self, call: Call, command: Command) -> api.BegunRound:
        begun = self._begin(call.session_id, command)
        assert isinstance(begun, Begun)
        assert begun.round_id is not None
        return api.BegunRound(round_id=begun.round_id)

    def _begin(self, session_id: str, command: Command) -> Outcome | Begun:
        if isinstance(command, protocol.Stop):
            return Begun(lambda: {"was_running": self._sessions.end(session_id)})
        _, session = self._sessions.open(session_id)
        if isinstance(command, protocol.SendMessage | protocol.AddFiles):
            command = replace(command, files=_files_of(session, command.files))
        return begin(session, command)


def _place(call: Call) -> tuple[str, int | None]:
    place: api.PlaceInCode = call.body
    if place.cursor is not None and place.cursor > len(place.code):
        raise RefusedError(400, "bad_field", "The cursor is behind the end of the code.")
    return place.code, place.cursor


def _files_of(session: Session, names: list[str]) -> list[str]:
    """Return the places of files in the working folder: a client names no others."""
    places = [regular_file_beneath(session.cwd, name) for name in names]
    for name, place in zip(names, places, strict=True):
        if place is None:
            raise RefusedError(
                400,
                "no_file",
                f"There is no file {name[:200]!r} in the working folder. Upload it first.",
            )
    return [str(place) for place in places]


def _finish(begun: Begun, caller: Caller, reply: Reply) -> None:
    try:
        line = protocol.reply_line("done", caller, outcome=begun.finish())
    except Exception as error:  # noqa: BLE001 - the sender is to hear of it
        reason = str(refused(error)) if isinstance(error, TaskWeaverError) else repr(error)
        line = protocol.reply_line("refused", caller, reason=reason)
    reply(line, True)
