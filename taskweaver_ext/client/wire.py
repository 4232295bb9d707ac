"""What both clients of a server share: its address, its refusals, its stream of events.

Pure: nothing is sent here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import httpx

from taskweaver_ext.ces.execution.events import ExecutionFinished
from taskweaver_ext.conversation import RoundState
from taskweaver_ext.errors import ConfigError, ProtocolError, SessionError, TaskWeaverError
from taskweaver_ext.events.event_json import session_event_from_json
from taskweaver_ext.events.extras import QuestionExtra
from taskweaver_ext.events.types import PostEventType, RoundEventType, TaskWeaverEvent

ExportFormat: TypeAlias = Literal["ipynb", "md", "html", "bundle"]

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
SILENCE_SECONDS = 45.0
"""A stream says something every 15 s; after so long its connection counts as cut."""
RECONNECT_SECONDS = 60.0
"""How long a stream tries to reach a server again, by default."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
MAX_OUTPUT_CHARS = 1_000_000
"""How much output a `RemoteRound` holds; the record has all of it."""

_OUR_MISTAKES = (400, 401, 403, 413)
_PASSING = (429, 503)
"""Refusals of a server that has too much to do now."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, as the line that it prints says."""

    url: str
    token: str = field(default="", repr=False)

    @staticmethod
    def parse(text: str) -> ServerAddress:
        """Read `http://HOST:PORT/?token=…`.

        Raises:
            ConfigError: It is no such address.
        """
        problem = ConfigError(
            f"{text[:100]!r} is no address of a server. Use what `taskweaver-ext serve` prints:"
            " http://HOST:PORT/?token=..."
        )
        try:
            parts = urlsplit(text.strip())
        except ValueError:
            raise problem from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise problem
        token = parse_qs(parts.query).get("token", [""])[0]
        path = parts.path.rstrip("/") + "/api/v1/"
        return ServerAddress(urlunsplit((parts.scheme, parts.netloc, path, "", "")), token)

    @property
    def options(self) -> dict[str, Any]:
        """What an HTTP client is made with."""
        host = urlsplit(self.url).hostname or ""
        return {
            "base_url": self.url,
            "headers": {"authorization": f"Bearer {self.token}"} if self.token else {},
            "timeout": httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            # What is on this machine is not to be had through a proxy.
            "trust_env": host not in ("localhost", "127.0.0.1", "::1"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRound:
    """What came of a message, or of code."""

    round_id: str
    state: RoundState
    output: str = ""
    """What code wrote, both streams, up to a megabyte."""
    answer: str = ""
    """The last words of a role to the person."""
    error: str = ""
    """Why it failed: of the round, or else of the code that ran last."""
    execution_ids: tuple[str, ...] = ()
    """The executions of the round; `record` returns what each of them wrote."""


class RoundReading:
    """Makes a `RemoteRound` of the events of a session."""

    def __init__(self, round_id: str) -> None:
        self._round_id = round_id
        self._output: list[str] = []
        self._room = MAX_OUTPUT_CHARS
        self._message = ""
        self._post_id: str | None = None
        self._error = ""
        self._code_error = ""
        self._execution_ids: dict[str, None] = {}

    def receive(self, event: TaskWeaverEvent) -> RemoteRound | None:
        """Take the next event; return the round once it has ended."""
        if event.round_id != self._round_id:
            return None
        extra = event.extra
        match event.t:
            case PostEventType.post_execution_output if "execution_id" in extra:
                self._execution_ids[extra["execution_id"]] = None
                self._output.append(event.msg[: self._room])
                self._room -= min(self._room, len(event.msg))
            case PostEventType.post_execution_event if "event" in extra:
                if isinstance(finished := extra["event"], ExecutionFinished):
                    self._execution_ids[finished.execution_id] = None
                    self._code_error = finished.error
            case PostEventType.post_message_update:
                is_same = event.post_id == self._post_id
                self._message = self._message + event.msg if is_same else event.msg
                self._post_id = event.post_id
            case RoundEventType.round_error:
                self._error = event.msg
            case RoundEventType.round_end if "state" in extra:
                return self._ended(extra["state"])
            case _:
                pass
        return None

    def _ended(self, state: RoundState) -> RemoteRound:
        return RemoteRound(
            round_id=self._round_id,
            state=state,
            output="".join(self._output),
            answer=self._message,
            error=self._error or (self._code_error if state != "finished" else ""),
            execution_ids=tuple(self._execution_ids),
        )


class EventStreamReading:
    """Makes events of the lines of a stream, each once, over any number of connections."""

    def __init__(self, cursor: str = "") -> None:
        """Begin after an event, `EPOCH:SEQ`; nothing: with the first."""
        self.cursor = cursor
        """Of the last event; what the next connection is to begin after."""
        self._id = ""

    def begin(self) -> None:
        """A new connection: what was torn off is forgotten."""
        self._id = ""

    def receive(self, line: str) -> TaskWeaverEvent | None:
        """Take a line; return the event that it completes, if there is one."""
        name, _, value = line.partition(": ")
        if name == "id":
            self._id = value
        if name != "data" or not self._id:
            return None
        try:
            event = session_event_from_json(json.loads(value))
        except ProtocolError:
            raise
        except ValueError as error:
            raise ProtocolError(f"The server sent what is no event: {value[:100]!r}.") from error
        if self._is_known(self._id):
            return None
        self.cursor = self._id
        return event

    def _is_known(self, event_id: str) -> bool:
        epoch, _, seq = event_id.partition(":")
        last_epoch, _, last_seq = self.cursor.partition(":")
        return epoch == last_epoch and int(seq) <= int(last_seq)


@dataclass(slots=True)
class Pauses:
    """How long to wait before each attempt to reach a server again, until it has been too long."""

    limit_seconds: float
    waited: float = 0.0
    next_pause: float = FIRST_PAUSE

    def after_failure(self, error: Exception, url: str) -> float:
        """Return how long to wait.

        Raises:
            SessionError: It has been long enough.
        """
        if self.waited >= self.limit_seconds:
            raise unreachable(error, url) from error
        pause = min(self.next_pause, max(0.01, self.limit_seconds - self.waited))
        self.waited += pause
        self.next_pause = min(LONGEST_PAUSE, 2 * self.next_pause)
        return pause

    def after_success(self) -> None:
        """The server was there: begin anew."""
        self.waited, self.next_pause = 0.0, FIRST_PAUSE


def session_path(session_id: str, rest: str = "") -> str:
    """Return the path of something of a session."""
    return f"sessions/{quote(session_id, safe='')}{rest}"


def file_path(session_id: str, path: str) -> str:
    """Return the path of a file of a session."""
    return session_path(session_id, f"/files/{quote(path)}")


def check(status: int, content: bytes) -> None:
    """Raise what an answer refuses as an error of ours; do nothing if it is a success."""
    if status < 400:
        return
    message = f"The server said {status}."
    # Something between us and the server may have answered.
    with contextlib.suppress(ValueError, KeyError, TypeError):
        message = str(json.loads(content)["error"]["message"])
    raise _error_of(status)(message)


def passing_refusal(status: int, content: bytes) -> TaskWeaverError:
    """Return what a server refuses only for now; raise, as `check` does, what it always will."""
    try:
        check(status, content)
    except TaskWeaverError as error:
        if status in _PASSING:
            return error
        raise
    return SessionError(f"The server said {status}.")


def closed(session_id: str) -> SessionError:
    """Say that a client was closed."""
    return SessionError(
        f"This was closed. The session goes on: reach it again by its id, {session_id!r}."
    )


def unreachable(error: Exception, url: str) -> SessionError:
    """Say that a server cannot be reached."""
    return SessionError(
        f"The server {url} cannot be reached: {error or type(error).__name__}. Its sessions go on,"
        " if it lives; try again."
    )


def answer_body(
    question: str | QuestionExtra | Mapping[str, Any], outcome: str, text: str
) -> dict[str, str]:
    """Return the answer to a question, given as its id or its event's extra."""
    question_id = question if isinstance(question, str) else str(question["question_id"])
    return {"question_id": question_id, "outcome": outcome, "text": text}


def _error_of(status: int) -> type[TaskWeaverError]:
    return ConfigError if status in _OUR_MISTAKES else SessionError
