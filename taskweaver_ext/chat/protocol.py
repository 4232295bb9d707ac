"""The protocol of `taskweaver-ext chat --json`: commands in, events out, one JSON object a line.

Lines are UTF-8 and end with a newline. Ours are plain ASCII, and each has one of three keys:

    {"protocol":1,"session_id":"…","cwd":"…"}       the first line, and no other
    {"event":"…","seq":1,"at":…,…}                  what happens; `event_from_json` reads it
    {"reply":"…","command":"…","id":…,…}            what becomes of a command

Commands are the names below with their fields, such as
`{"command":"run_code","language":"python","code":"1 + 1","id":7}`. The `id`, a text or a number, is
yours to choose, and every reply to the command carries it; it may be left out.

    send_message        message, files=[paths]      have the agent answer; takes time
    add_files           files=[paths]               place files where code can open them; takes time
    run_code            language, code              run what a person typed; takes time
    interrupt           kill=false                  stop what runs; `kill` gives up its variables
    answer              question_id, outcome, text="" answer a `session_question` event
    share               blocks=[texts]              what goes to the agent with the next message
    set_auto_send       value                       what `run_code` does goes there, too: off, next
                                                    (with the next message), on (at once; the agent
                                                    reacts in a round of its own)
    drop                block or round_id           take code, by its number, or a request out of
                                                    what the agent knows
    forget                                          take all out of what the agent knows
    update_session_var  variables={name: text}      what plugins read; takes time
    set_approval        mode, scope="shell"         what the agent may run: ask, auto, deny; may
                                                    settle an open question
    allow               pattern                     shell commands that run without asking
    forget_allowed      allowed=null                ask again about a pattern or kind, or about all
    stop                                            kill what runs and end the session; takes time

Replies. The last reply to a command is `refused`, with a sentence in `reason`, or `done`, with an
`outcome`; what takes time is `accepted` before. One round runs at a time: a second message or
run is refused until the first is done. All other commands are welcome at any moment. A line that
makes no sense, is longer than 4 MiB or is not UTF-8 is refused and costs nothing else.

    accepted    of a round: `round_id`, as in its events
    done        send_message: round_id, state (finished, failed, cancelled), is_done, answer, error,
                usage; run_code: round_id, execution_id, status, error; interrupt: was_running;
                add_files: files (their names in the working folder); otherwise empty

With `--resume ID` a session of an earlier process goes on: its events are numbered on, and those
of before are left out (`taskweaver-ext sessions show ID --json` has them).

Order. A reply comes after every event that happened before it: when a round is done, all of it
has been told. Events come as fast as they are read; a slow reader holds back nothing that runs.

The end. At the end of standard input a round that runs may finish, unable to ask any more, then the
session ends; `session_end` and replies that are due come last. SIGINT, SIGTERM and SIGHUP do what
`stop` does. Exit codes: 0 done, 1 a round failed or the reader has gone, 130 ended by a signal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_type_hints

from taskweaver_ext.config.data_files import DataFileError, parse_json
from taskweaver_ext.config.settings import ApprovalMode, ApprovalScope, AutoSend
from taskweaver_ext.conversation import RoundId
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.extras import QuestionId, QuestionOutcome
from taskweaver_ext.text.json_lines import json_line
from taskweaver_ext.text.json_shapes import has_shape

PROTOCOL = 1
MAX_LINE_BYTES = 4 << 20
MAX_ID_CHARACTERS = 200
_COMPACT = (",", ":")

CommandId: TypeAlias = str | int | float | None
ReplyKind: TypeAlias = Literal["accepted", "refused", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Have the agent answer a message."""

    message: str
    files: list[str] = field(default_factory=list)
    """Paths; placed in the session's working folder first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFiles:
    """Place files in the working folder; the agent is told with the next message."""

    files: list[str]
    """Paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCode:
    """Run what a person typed."""

    code: str
    language: str = "python"
    repeats: int | None = None
    """The number of the code block that is run again with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Stop what runs."""

    kill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer a question of the code, or decide about code of the agent."""

    question_id: QuestionId
    outcome: QuestionOutcome
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Say what goes to the agent with the next message, in place of what did."""

    blocks: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAutoSend:
    """Say whether what a person runs goes to the agent."""

    value: AutoSend


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Take one code block, or one request, out of what the agent knows."""

    block: int | None = None
    """The number of a code block."""
    round_id: RoundId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Let the agent know nothing of what was said so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSessionVar:
    """Set what plugins read."""

    variables: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetApproval:
    """Say what code of the agent may run."""

    mode: ApprovalMode
    scope: ApprovalScope = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """Let shell commands of the agent run without asking."""

    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAllowed:
    """Ask again about what was allowed."""

    allowed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Kill what runs and end the session."""


Command: TypeAlias = (
    SendMessage
    | AddFiles
    | RunCode
    | Interrupt
    | Answer
    | Share
    | SetAutoSend
    | Drop
    | Forget
    | UpdateSessionVar
    | SetApproval
    | Allow
    | ForgetAllowed
    | Stop
)
COMMANDS: Mapping[str, type[Command]] = {
    "send_message": SendMessage,
    "add_files": AddFiles,
    "run_code": RunCode,
    "interrupt": Interrupt,
    "answer": Answer,
    "share": Share,
    "set_auto_send": SetAutoSend,
    "drop": Drop,
    "forget": Forget,
    "update_session_var": UpdateSessionVar,
    "set_approval": SetApproval,
    "allow": Allow,
    "forget_allowed": ForgetAllowed,
    "stop": Stop,
}


@dataclass(frozen=True, slots=True)
class Caller:
    """What the replies to a command name: the command, and the id that its sender gave it."""

    command: str | None = None
    id: CommandId = None


class RefusedCommandError(ProtocolError):
    """A line is no command that can be done; the message says why."""

    def __init__(self, reason: str, caller: Caller) -> None:
        super().__init__(reason)
        self.caller = caller


def parse_command(line: bytes) -> tuple[Caller, Command]:
    """Read one line.

    Raises:
        RefusedCommandError: It makes no sense.
    """
    values = _read_object(line)
    name, id = values.pop("command", None), values.pop("id", None)
    # Whatever else is wrong, the sender is to recognise its command.
    id_is_usable = has_shape(id, CommandId) and len(str(id)) <= MAX_ID_CHARACTERS
    caller = Caller(name if isinstance(name, str) else None, id if id_is_usable else None)
    if not id_is_usable:
        raise RefusedCommandError(
            f"id must be a number or a text of at most {MAX_ID_CHARACTERS} characters.", caller
        )
    kind = COMMANDS.get(caller.command or "")
    if kind is None:
        known = ", ".join(COMMANDS)
        raise RefusedCommandError(
            f"There is no command {_short(name)}. There are: {known}.", Caller(None, caller.id)
        )
    if problem := _problem_with(caller.command or "", kind, values):
        raise RefusedCommandError(problem, caller)
    return caller, kind(**values)


def reply_line(kind: ReplyKind, caller: Caller, **details: Any) -> str:  # noqa: ANN401 - JSON
    """Return a reply to a command as a line."""
    values: dict[str, Any] = {"reply": kind, "command": caller.command}
    if caller.id is not None:
        values["id"] = caller.id
    return json_line({**values, **details}, _COMPACT)


def first_line(session_id: str, **details: Any) -> str:  # noqa: ANN401 - JSON
    """Return the line that everything begins with."""
    return json_line({"protocol": PROTOCOL, "session_id": session_id, **details}, _COMPACT)


def _read_object(line: bytes) -> dict[str, Any]:
    try:
        values = parse_json(line.decode("utf-8"))
        json.dumps(values, ensure_ascii=False).encode()  # refuses half surrogate pairs
    except UnicodeDecodeError as error:
        problem = f"The line is not UTF-8: byte {error.start + 1} begins no character."
        raise RefusedCommandError(problem, Caller()) from None
    except UnicodeEncodeError:
        problem = "The line has half a surrogate pair in it, which is no character."
        raise RefusedCommandError(problem, Caller()) from None
    except DataFileError as error:
        raise RefusedCommandError(f"The line is no JSON: {error}.", Caller()) from None
    if not isinstance(values, dict):
        problem = 'A command is an object, such as {"command": "interrupt"}.'
        raise RefusedCommandError(problem, Caller())
    return values


def _problem_with(name: str, kind: type[Command], values: Mapping[str, Any]) -> str:
    """Say what is wrong with the fields of a command, in one sentence; nothing if all is well."""
    hints = get_type_hints(kind)
    known = ", ".join(hints) or "none"
    for field_name in values.keys() - hints.keys():
        return f"{name} has no field {_short(field_name)}; its fields are: {known}."
    for one in fields(kind):
        is_needed = one.default is MISSING and one.default_factory is MISSING
        if one.name not in values:
            if is_needed:
                return f"{name} needs the field {one.name}; its fields are: {known}."
        elif not has_shape(values[one.name], hints[one.name]):
            return f"{one.name} of {name} cannot be {_short(values[one.name])}."
    return ""


def _short(value: object) -> str:
    return json.dumps(value)[:100]
