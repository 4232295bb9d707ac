"""A session of a server, for other programs: the same events and commands, over HTTP."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import httpx

from taskweaver_ext.client.wire import (
    RECONNECT_SECONDS,
    SILENCE_SECONDS,
    EventStreamReading,
    ExportFormat,
    Pauses,
    RemoteRound,
    RoundReading,
    ServerAddress,
    answer_body,
    check,
    closed,
    file_path,
    passing_refusal,
    session_path,
    unreachable,
)
from taskweaver_ext.closing import Closeable
from taskweaver_ext.events.extras import QuestionExtra, QuestionOutcome
from taskweaver_ext.events.types import TaskWeaverEvent

OnEvent = Callable[[TaskWeaverEvent], object]


class RemoteSession(Closeable):
    """Use a session of a server; closing this does not end the session.

    Threads:
        Everything is safe from any thread: `events` on one and commands on others is how a
        frontend uses it.
    """

    def __init__(
        self,
        url: str,
        session_id: str | None = None,
        *,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        """Reach a session.

        Args:
            url: What `taskweaver-ext serve` printed, with its token.
            session_id: The session; None makes one.
            reconnect_seconds: How long a stream that was cut tries to go on.

        Raises:
            ConfigError: The address or the token is wrong.
            SessionError: There is no such session, or the server cannot be reached.
        """
        self._address = ServerAddress.parse(url)
        self._http = httpx.Client(**self._address.options)
        self._reconnect_seconds = reconnect_seconds
        self._is_closed = threading.Event()
        self._streams: set[socket.socket] = set()
        try:
            if session_id is None:
                facts = self._ask("POST", "sessions", {})
            else:
                facts = self._ask("GET", session_path(session_id))
        except BaseException:
            self._http.close()
            raise
        self.session_id = str(facts["session_id"])

    def facts(self) -> dict[str, Any]:
        """What is known of the session now: state, title, cursor, open questions."""
        return dict(self._ask("GET", session_path(self.session_id)))

    def run(
        self, code: str, language: str = "python", *, on_event: OnEvent | None = None
    ) -> RemoteRound:
        """Run code, and return what came of it.

        Args:
            on_event: Told what happens meanwhile, on this thread.

        Raises:
            SessionError: Something else runs, or the server was lost for too long.
        """
        return self._round("/runs", {"code": code, "language": language}, on_event)

    def send(
        self, message: str, files: list[str] | None = None, *, on_event: OnEvent | None = None
    ) -> RemoteRound:
        """Have the agent answer a message, and return what came of it.

        Args:
            files: Names in the working folder; `upload` puts them there.
            on_event: Told what happens meanwhile, on this thread.

        Raises:
            SessionError: Something else runs, or the server was lost for too long.
        """
        return self._round("/messages", {"message": message, "files": files or []}, on_event)

    def events(self, after: str = "", *, follow: bool = True) -> Iterator[TaskWeaverEvent]:
        """Yield each event exactly once, whatever happens to the connection.

        Args:
            after: `EPOCH:SEQ` of the last event that is known; empty: from the first.
            follow: Whether to go on with what comes; it ends with `close`.

        Raises:
            SessionError: The session was deleted, or the server was lost for too long.
        """
        reading, pauses = EventStreamReading(after), Pauses(self._reconnect_seconds)
        timeout = httpx.Timeout(SILENCE_SECONDS)
        path = session_path(self.session_id, "/events")
        while not self._is_closed.is_set():
            reading.begin()
            query = {"after": reading.cursor, "follow": "true" if follow else "false"}
            failure: Exception = ConnectionError("the stream ended")
            try:
                with self._http.stream("GET", path, params=query, timeout=timeout) as response:
                    if response.status_code >= 400:
                        failure = passing_refusal(response.status_code, response.read())
                    else:
                        with self._cut_by_close(response):
                            for line in response.iter_lines():
                                pauses.after_success()
                                if (event := reading.receive(line)) is not None:
                                    yield event
                        if not follow:
                            return
            except (httpx.TransportError, httpx.StreamError, RuntimeError) as error:
                if self._is_closed.is_set():
                    return
                failure = error
            self._is_closed.wait(pauses.after_failure(failure, self._address.url))

    def answer(
        self, question: str | QuestionExtra, outcome: QuestionOutcome, text: str = ""
    ) -> None:
        """Answer a `session_question`, given as its id or its event's extra.

        Raises:
            SessionError: Another client was first, or it has become void.
        """
        self._ask(
            "POST",
            session_path(self.session_id, "/answers"),
            answer_body(question, outcome, text),
        )

    def interrupt(self, kill: bool = False) -> bool:
        """Stop what runs; with `kill` its variables are given up. Say whether anything did."""
        path = session_path(self.session_id, "/interrupt")
        return bool(self._ask("POST", path, {"kill": kill})["was_running"])

    def command(self, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Do any command of `chat/protocol.py`; return what became of it."""
        path = session_path(self.session_id, "/commands")
        return dict(self._ask("POST", path, {"command": name, "fields": fields}))

    def files(self) -> list[str]:
        """The paths of the files in the working folder."""
        listed = self._ask("GET", session_path(self.session_id, "/files"))
        return [str(one["path"]) for one in listed["files"]]

    def upload(self, source: str | Path | bytes | IO[bytes], path: str = "") -> str:
        """Put a file into the working folder, and return its path there.

        Args:
            path: Beneath that folder; by default the name of the source.
        """
        if isinstance(source, str | Path):
            with open(source, "rb") as file:
                return self.upload(file, path or os.path.basename(source))
        answer = self._request("PUT", file_path(self.session_id, path), content=source)
        return str(answer.json()["path"])

    def download(self, path: str) -> bytes:
        """Return a file of the working folder."""
        return self._request("GET", file_path(self.session_id, path)).content

    def record(self, execution_id: str, stream: str = "stdout") -> Iterator[str]:
        """Yield everything that an execution wrote to a stream, piece by piece."""
        path = session_path(self.session_id, f"/records/{quote(execution_id, safe='')}")
        offset = 0
        while True:
            part = self._ask("GET", path, query={"stream": stream, "offset": offset})
            if part["next_offset"] == offset:
                return
            yield part["text"]
            offset = part["next_offset"]

    def export(self, to: ExportFormat = "html") -> bytes:
        """Return the session as a notebook, Markdown, a page, or a bundle."""
        path = session_path(self.session_id, "/export")
        return self._request("GET", path, params={"to": to}).content

    def end(self) -> bool:
        """End the session, its kernel with it; say whether it ran."""
        return bool(self._ask("POST", session_path(self.session_id, "/end"))["was_running"])

    def close(self) -> None:
        """Let go of the connections; the session goes on."""
        self._is_closed.set()
        self._cut_streams()
        self._http.close()

    def _cut_streams(self) -> None:
        for connection in list(self._streams):
            with contextlib.suppress(OSError):  # it has just ended
                connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _cut_by_close(self, response: httpx.Response) -> Iterator[None]:
        """Let `close` end a stream at once on which a thread waits in this block."""
        connection = response.extensions["network_stream"].get_extra_info("socket")
        self._streams.add(connection)
        try:
            if self._is_closed.is_set():  # before this could be cut
                self._cut_streams()
            yield
        finally:
            self._streams.discard(connection)

    def _round(self, path: str, body: dict[str, Any], on_event: OnEvent | None) -> RemoteRound:
        after = str(self.facts()["cursor"])
        begun = self._ask("POST", session_path(self.session_id, path), body)
        reading = RoundReading(str(begun["round_id"]))
        for event in self.events(after):
            if on_event is not None:
                on_event(event)
            if (ended := reading.receive(event)) is not None:
                return ended
        raise unreachable(ConnectionError("this was closed"), self._address.url)

    def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - JSON
        answer = self._request(method, path, json=body, params=query)
        return answer.json() if answer.content else {}

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        if self._is_closed.is_set():
            raise closed(self.session_id)
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise unreachable(error, self._address.url) from error
        check(answer.status_code, answer.content)
        return answer
