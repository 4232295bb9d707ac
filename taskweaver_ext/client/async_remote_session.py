"""The same as `RemoteSession`, for programs with an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self
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
from taskweaver_ext.events.extras import QuestionExtra, QuestionOutcome
from taskweaver_ext.events.types import TaskWeaverEvent

OnEvent = Callable[[TaskWeaverEvent], object]


class AsyncRemoteSession:
    """Use a session of a server; leaving the `async with` block does not end the session.

    Belongs to one event loop; its tasks may use it at the same time.
    """

    def __init__(
        self,
        url: str,
        session_id: str | None = None,
        *,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> None:
        """Prepare to reach a session; `async with` does.

        Args:
            url: What `taskweaver-ext serve` printed, with its token.
            session_id: The session; None makes one.
            reconnect_seconds: How long a stream that was cut tries to go on.

        Raises:
            ConfigError: The address makes no sense.
        """
        self._address = ServerAddress.parse(url)
        self._http = httpx.AsyncClient(**self._address.options)
        self._wanted = session_id
        self._reconnect_seconds = reconnect_seconds
        self._is_closed = False
        self.session_id = session_id or ""

    async def __aenter__(self) -> Self:
        """Reach the session.

        Raises:
            ConfigError: The token is wrong.
            SessionError: There is no such session, or the server cannot be reached.
        """
        try:
            if self._wanted is None:
                facts = await self._ask("POST", "sessions", {})
            else:
                facts = await self._ask("GET", session_path(self._wanted))
        except BaseException:
            await self._http.aclose()
            raise
        self.session_id = str(facts["session_id"])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def facts(self) -> dict[str, Any]:
        """What is known of the session now: state, title, cursor, open questions."""
        return dict(await self._ask("GET", session_path(self.session_id)))

    async def run(
        self, code: str, language: str = "python", *, on_event: OnEvent | None = None
    ) -> RemoteRound:
        """Run code, and return what came of it; as `RemoteSession.run`."""
        return await self._round("/runs", {"code": code, "language": language}, on_event)

    async def send(
        self, message: str, files: list[str] | None = None, *, on_event: OnEvent | None = None
    ) -> RemoteRound:
        """Have the agent answer a message; as `RemoteSession.send`."""
        body = {"message": message, "files": files or []}
        return await self._round("/messages", body, on_event)

    async def events(
        self, after: str = "", *, follow: bool = True
    ) -> AsyncGenerator[TaskWeaverEvent]:
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
        while not self._is_closed:
            reading.begin()
            query = {"after": reading.cursor, "follow": "true" if follow else "false"}
            failure: Exception = ConnectionError("the stream ended")
            try:
                async with self._http.stream(
                    "GET", path, params=query, timeout=timeout
                ) as response:
                    if response.status_code >= 400:
                        content = await response.aread()
                        failure = passing_refusal(response.status_code, content)
                    else:
                        async for line in response.aiter_lines():
                            pauses.after_success()
                            if (event := reading.receive(line)) is not None:
                                yield event
                        if not follow:
                            return
            except (httpx.TransportError, httpx.StreamError) as error:
                failure = error
            if not self._is_closed:
                await asyncio.sleep(pauses.after_failure(failure, self._address.url))

    async def answer(
        self, question: str | QuestionExtra, outcome: QuestionOutcome, text: str = ""
    ) -> None:
        """Answer a `session_question`; as `RemoteSession.answer`."""
        path = session_path(self.session_id, "/answers")
        await self._ask("POST", path, answer_body(question, outcome, text))

    async def interrupt(self, kill: bool = False) -> bool:
        """Stop what runs; with `kill` its variables are given up. Say whether anything did."""
        path = session_path(self.session_id, "/interrupt")
        return bool((await self._ask("POST", path, {"kill": kill}))["was_running"])

    async def command(self, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Do any command of `chat/protocol.py`; return what became of it."""
        path = session_path(self.session_id, "/commands")
        return dict(await self._ask("POST", path, {"command": name, "fields": fields}))

    async def files(self) -> list[str]:
        """The paths of the files in the working folder."""
        listed = await self._ask("GET", session_path(self.session_id, "/files"))
        return [str(one["path"]) for one in listed["files"]]

    async def upload(self, source: str | Path | bytes, path: str = "") -> str:
        """Put a file into the working folder, and return its path there."""
        if isinstance(source, str | Path):
            path = path or os.path.basename(source)
            source = await asyncio.to_thread(Path(source).read_bytes)
        answer = await self._request("PUT", file_path(self.session_id, path), content=source)
        return str(answer.json()["path"])

    async def download(self, path: str) -> bytes:
        """Return a file of the working folder."""
        return (await self._request("GET", file_path(self.session_id, path))).content

    async def record(self, execution_id: str, stream: str = "stdout") -> AsyncIterator[str]:
        """Yield everything that an execution wrote to a stream, piece by piece."""
        path = session_path(self.session_id, f"/records/{quote(execution_id, safe='')}")
        offset = 0
        while True:
            part = await self._ask("GET", path, query={"stream": stream, "offset": offset})
            if part["next_offset"] == offset:
                return
            yield part["text"]
            offset = part["next_offset"]

    async def export(self, to: ExportFormat = "html") -> bytes:
        """Return the session as a notebook, Markdown, a page, or a bundle."""
        path = session_path(self.session_id, "/export")
        return (await self._request("GET", path, params={"to": to})).content

    async def end(self) -> bool:
        """End the session, its kernel with it; say whether it ran."""
        answer = await self._ask("POST", session_path(self.session_id, "/end"))
        return bool(answer["was_running"])

    async def close(self) -> None:
        """Let go of the connections; the session goes on."""
        self._is_closed = True
        await self._http.aclose()

    async def _round(
        self, path: str, body: dict[str, Any], on_event: OnEvent | None
    ) -> RemoteRound:
        after = str((await self.facts())["cursor"])
        begun = await self._ask("POST", session_path(self.session_id, path), body)
        reading = RoundReading(str(begun["round_id"]))
        async with aclosing(self.events(after)) as events:
            async for event in events:
                if on_event is not None:
                    on_event(event)
                if (ended := reading.receive(event)) is not None:
                    return ended
        raise unreachable(ConnectionError("this was closed"), self._address.url)

    async def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - JSON
        answer = await self._request(method, path, json=body, params=query)
        return answer.json() if answer.content else {}

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        if self._is_closed:
            raise closed(self.session_id)
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise unreachable(error, self._address.url) from error
        check(answer.status_code, answer.content)
        return answer
