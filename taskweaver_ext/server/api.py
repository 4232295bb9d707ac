"""The API of `taskweaver-ext serve`, version 1, on one page: for the web page and other programs.

Everything is below `/api/v1`; `/api/v1/openapi.json` describes each request in full. Bodies and
answers are JSON unless said; a refusal is `{"error": {"code": "busy", "message": "…"}}` with a
status of 400 and above. A request carries `Authorization: Bearer TOKEN`, or the cookie that opening
`/?token=TOKEN` gives.

    GET     health                              that it lives (needs no token)
    GET     server                              project, model, kernel mode, version, limits
    GET     metrics                             numbers for Prometheus
    POST    render                              Markdown, code, terminal text, LaTeX or HTML as HTML
    GET     words.css                           the colours of words in that

    GET     sessions                            running and saved ones: search, limit
    POST    sessions                            make one; 201
    GET     sessions/{id}                       what is known of one now, open questions included
    PATCH   sessions/{id}                       rename it
    POST    sessions/{id}/resume                continue one that is saved; so does each request
                                                below that needs it at work
    POST    sessions/{id}/end                   end it: its kernel ends, its folder stays
    DELETE  sessions/{id}                       remove it for good
    GET     sessions/{id}/export                as ipynb, md, html or bundle

    GET     sessions/{id}/events                what happens: SSE, or a WebSocket
    POST    sessions/{id}/messages              have the agent answer; 202 with round_id
    POST    sessions/{id}/runs                  run Python, shell or another language; 202
    POST    sessions/{id}/interrupt             stop what runs; kill gives up its variables
    POST    sessions/{id}/answers               answer a session_question; 409 if another was first
    POST    sessions/{id}/commands              any command of `chat/protocol.py`, by its name

    GET     sessions/{id}/blocks                the session read back: messages, cells, notices
    GET     sessions/{id}/records/{execution}   what code wrote: a range of bytes of one stream
    GET     sessions/{id}/records/{execution}/whole     all of it, as a file
    GET     sessions/{id}/records/{execution}/search    lines of it that hold a text
    GET     sessions/{id}/displays/{seq}        a part of a display, by the number of its event
    GET     sessions/{id}/artifacts/{seq}       a file that code made, by the number of its event
    GET     sessions/{id}/files                 the working folder
    GET     sessions/{id}/files/{path}          one file of it
    PUT     sessions/{id}/files/{path}          upload one: the body is the file
    DELETE  sessions/{id}/files/{path}          remove one
    GET     sessions/{id}/variables             the kernel at this moment, also while code runs:
                                                names, types, short values, the line that runs
    POST    sessions/{id}/completions           what fits at a place in Python code
    POST    sessions/{id}/inspections           what the name at a place in Python code is

**Events.** `GET events?after=EPOCH:SEQ` gives everything after that event, from wherever it is
kept, then what comes; without `after`, from the first. An event is what `event_to_json` makes:
`{"event", "seq", "at", "round_id"?, "post_id"?, "msg"?, "extra"?}`; `events/types.py` says what
each kind has. Numbers grow by one, over all processes that have worked on the session; the epoch
counts these. A client keeps `EPOCH:SEQ` of the last event it has, and asks again from there: it
gets each event exactly once. A session that is put away or ended can be read all the same; the
stream stays open, and goes on when the session does.

*SSE*: the id of each is its `EPOCH:SEQ`, so that EventSource goes on by itself; with
`follow=false` it ends with the newest event. A comment comes every 15 s.

*Settings* of a session (approval, what is sent to the agent by itself) are commands too:
`POST commands` with `{"command": "set_approval", "fields": {"mode": "ask"}}`; the session's events
and `GET sessions/{id}` say how they stand.

*WebSocket* (`ws://…/api/v1/sessions/{id}/events?after=…`): each message is one JSON object, told
apart by its first key. `{"protocol":1,"session_id":"…","epoch":3}` comes first, and again when the
session is continued: it is the epoch of all events that follow. Then events, as above. What the
client sends are the commands of `chat/protocol.py`, such as
`{"command":"run_code","language":"python","code":"1 + 1","id":7}`, which it answers with
`{"reply":"accepted"|"done"|"refused","command":"…","id":7,…}`. `files` of `send_message` are names
in the working folder. `stop` ends the session. A client that takes nothing for 60 s is dropped.

**The page.** `/` and what it needs come from `server/page/`, with a policy that lets no script run
but its own. HTML that code displays is not part of it: `displays/{seq}?type=text/html` is a
document in a sandbox of its own, to be shown in a frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from taskweaver_ext.events.extras import QuestionExtra, SettingsExtra

PREFIX = "/api/v1"

SessionState: TypeAlias = Literal["idle", "busy", "saved"]
"""`saved`: it does not run here; asking something of it continues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """That the server answers."""

    status: Literal["ok"] = "ok"
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a page shows of the server."""

    version: str
    project: str
    kernel_mode: str
    model: str
    """In one line, or what is to be done about it."""
    languages: list[str]
    idle_minutes: float
    max_body_bytes: int
    max_upload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions are listed."""

    search: str = field(default="", metadata={"maxLength": 200})
    """Words that title or id hold, all of them."""
    limit: int = field(default=100, metadata={"minimum": 1, "maximum": 1000})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """What a list says of a session."""

    session_id: str
    title: str
    state: SessionState
    created_at: float
    last_used_at: float
    round_count: int
    size_bytes: int
    opened_by: str
    """Another process that works in it now, if one does."""
    problem: str
    """Why it cannot be read, if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionList:
    """The sessions of the project, the one that was used last first."""

    sessions: list[ListedSession]
    total: int
    """How many there are, before the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """What a new session is to be."""

    title: str = field(default="", metadata={"maxLength": 1000})


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """What a session is to be called."""

    title: str = field(metadata={"maxLength": 1000})
    """Empty: by the first words of its first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What is known of one session now."""

    session_id: str
    title: str
    state: SessionState
    epoch: int
    last_seq: int
    """The number of its newest event."""
    cursor: str
    """Of its newest event: go on with `events?after=` it."""
    round_id: str | None
    """The round that is under way."""
    questions: list[QuestionExtra]
    """What a person is being asked now."""
    context_blocks: list[str]
    """What goes to the agent with the next message."""
    settings: SettingsExtra | None
    """What a person can change; None where the session is not open."""
    usage: dict[str, Any]
    cwd: str
    client_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WasRunning:
    """Whether there was something to stop."""

    was_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQuery:
    """Where a stream of events begins."""

    after: str = field(default="", metadata={"maxLength": 40})
    """EPOCH:SEQ of the last event that the client has; empty: none."""
    follow: bool = True
    """Whether it goes on with what comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRound:
    """A round has begun; its events have its id."""

    round_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyCommand:
    """A command by its name, with its fields, as over the WebSocket."""

    command: str = field(metadata={"maxLength": 100})
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReply:
    """What became of a command."""

    reply: Literal["accepted", "done"]
    command: str
    round_id: str | None = None
    """Of a round that has begun."""
    outcome: dict[str, Any] = field(default_factory=dict)
    """Of what is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockQuery:
    """Which blocks are wanted."""

    skip: int = field(default=0, metadata={"minimum": 0})
    limit: int = field(default=1000, metadata={"minimum": 1, "maximum": 10_000})
    max_chars: int = field(default=40_000, metadata={"minimum": 100, "maximum": 1_000_000})
    """How much of the output of each cell is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockList:
    """A session read back."""

    blocks: list[dict[str, Any]]
    """Those of `session/blocks/types.py`; `block` says which: message, cell, late_text,
    session_notice; so do the outputs of a cell: text_output, display_output, left_out, …"""
    total: int
    cursor: str
    """The event up to which they tell: go on with `events?after=` it."""


StreamName: TypeAlias = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRecordQuery:
    """Which stream is wanted."""

    stream: StreamName = "stdout"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Which bytes of a record are wanted."""

    stream: StreamName = "stdout"
    offset: int = field(default=0, metadata={"minimum": 0})
    limit: int = field(default=65_536, metadata={"minimum": 4, "maximum": 4_194_304})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPart:
    """A range of a record, of whole characters."""

    stream: StreamName
    offset: int
    """Where the text begins, in bytes."""
    next_offset: int
    """Where the next part begins."""
    size: int
    """How many bytes there are by now."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What is searched for in a record."""

    text: str = field(metadata={"minLength": 1, "maxLength": 1000})
    """Without capitals it finds words with and without them."""
    stream: StreamName = "stdout"
    skip: int = field(default=0, metadata={"minimum": 0})
    limit: int = field(default=100, metadata={"minimum": 1, "maximum": 1000})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLine:
    """A line that holds what was searched for."""

    line: int
    """From 1."""
    offset: int
    """Where it begins, in bytes."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """Where a text was found."""

    lines: list[FoundLine]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayQuery:
    """Which part of a display is wanted."""

    type: str = field(default="text/html", metadata={"maxLength": 200})
    """A MIME type of its `bundle` or its `files`."""
    framed: bool = False
    """Whether HTML is to tell the frame that shows it how high it is, with a script at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuery:
    """How a file is wanted."""

    download: bool = False
    """Whether a browser saves it, instead of showing it where that is safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportQuery:
    """What a session is to become."""

    to: Literal["ipynb", "md", "html", "bundle"] = "html"
    with_files: bool = False
    """Of a bundle: with everything in the working folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file in the working folder."""

    path: str
    size_bytes: int
    changed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """The working folder of a session, by path."""

    files: list[ListedFile]
    is_complete: bool
    """False when there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceInCode:
    """A place in code that a person is typing."""

    code: str = field(metadata={"maxLength": 100_000})
    cursor: int | None = field(default=None, metadata={"minimum": 0})
    """In characters; by default the end."""
    language: Literal["python", "bash"] = "python"
    """Only a Python kernel knows what fits."""


class RenderItem(TypedDict):
    """A text to be shown."""

    kind: Literal["markdown", "code", "terminal", "latex", "html"]
    text: str
    language: NotRequired[str]
    """Of code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Texts that are to become HTML."""

    items: list[RenderItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """HTML in which nothing can run, in the order in which it was asked for."""

    html: list[str]
