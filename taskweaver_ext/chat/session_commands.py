"""What each command of the protocol does to a session, for every frontend that speaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.chat import protocol
from taskweaver_ext.chat.protocol import Command
from taskweaver_ext.conversation import Round, RoundId
from taskweaver_ext.errors import RoundCancelledError, TaskWeaverError
from taskweaver_ext.roles.base.role import USER
from taskweaver_ext.session.rounds import state_after
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.submitted import Submitted

Outcome: TypeAlias = dict[str, Any]
"""What came of a command, as its last reply tells it."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A command that takes time and has been accepted."""

    finish: Callable[[], Outcome]
    """Does or waits for the rest, and says what came of it; for a thread that may wait."""
    round_id: RoundId | None = None
    """The round that has begun, if it is one."""


def begin(session: Session, command: Command) -> Outcome | Begun:
    """Do what takes no time, or begin what does.

    `Stop` is done by stopping the session, which takes time too.

    Raises:
        TaskWeaverError: The session refuses it; the message says why.
    """
    match command:
        case protocol.SendMessage():
            answered = session.submit(command.message, files=command.files)
            return Begun(lambda: _outcome_of_message(session, answered), answered.id)
        case protocol.RunCode():
            run = session.submit_code(command.language, command.code, repeats=command.repeats)
            return Begun(lambda: _outcome_of_run(run), run.id)
        case protocol.AddFiles():
            files = command.files
            return Begun(lambda: {"files": session.add_files(files)})
        case protocol.UpdateSessionVar():
            variables = command.variables
            return Begun(lambda: _done(lambda: session.update_session_var(variables)))
        case protocol.Stop():
            return Begun(lambda: _done(session.stop))
        case protocol.Interrupt():
            return {"was_running": session.interrupt(kill=command.kill)}
        case protocol.Answer():
            session.answer(command.question_id, command.outcome, command.text)
        case protocol.Share():
            session.share(command.blocks)
        case protocol.SetAutoSend():
            session.settings.set_auto_send(command.value)
        case protocol.Drop():
            _drop(session, command)
        case protocol.Forget():
            session.forget()
        case protocol.SetApproval():
            session.settings.set_approval(command.mode, command.scope)
        case protocol.Allow():
            session.settings.allow(command.pattern)
        case protocol.ForgetAllowed():
            session.settings.forget_allowed(command.allowed)
        case _:
            assert_never(command)
    return {}


def has_failed(outcome: Outcome) -> bool:
    """Whether a round came to nothing, other than by being cancelled."""
    state = outcome.get("state", "finished")
    is_done = outcome.get("is_done", state == "finished")
    return not is_done and state != "cancelled"


def _drop(session: Session, command: protocol.Drop) -> None:
    if command.block is not None:
        session.drop(session.code_blocks.get(command.block).post_id)
    if command.round_id is not None:
        session.drop_round(command.round_id)


def _done(do: Callable[[], None]) -> Outcome:
    do()
    return {}


def _outcome_of_message(session: Session, submitted: Submitted[Round]) -> Outcome:
    chat_round = submitted.wait()
    used = session.usage.round
    last = chat_round.post_list[-1] if chat_round.post_list else None
    return {
        "round_id": submitted.id,
        "state": chat_round.state,
        "is_done": chat_round.is_done,
        "answer": last.message if last is not None and last.send_to == USER else "",
        "error": chat_round.error,
        "usage": {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
        },
    }


def _outcome_of_run(submitted: Submitted[ExecutionResult]) -> Outcome:
    outcome: Outcome = {"round_id": submitted.id}
    try:
        result = submitted.wait()
    except TaskWeaverError as error:  # it has been told in events, too
        is_cancelled = isinstance(error, RoundCancelledError)
        return outcome | {"state": "cancelled" if is_cancelled else "failed", "error": str(error)}
    return outcome | {
        "state": state_after(result.status),
        "execution_id": result.execution_id,
        "status": result.status.value,
        "error": result.error or "",
    }
