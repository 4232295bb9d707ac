"""The events of a session to one client, from any event on: over SSE, and over a WebSocket.

Each client is a task that pulls from the session's feed at its own pace; what it is sent and has
not taken yet is at most one piece. One that takes nothing for a while is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from taskweaver_ext.chat.protocol import first_line
from taskweaver_ext.server.served_session import ServedSession

PIECE_BYTES = 256 * 1024
"""About how much a client is sent at once."""
KEEP_ALIVE_SECONDS = 15.0
LOOK_SECONDS = 1.0
"""How often a stream looks for what another process says in a session that does not run here."""
STALLED_SECONDS = 60.0
"""How long a client may take for a piece."""
MAX_WAITING_REPLIES = 100
GOING_AWAY = 1001

Reply: TypeAlias = Callable[[str, bool], None]
"""Takes a reply to a command, and whether it is the last one."""


async def pieces_after(served: ServedSession, after: int) -> AsyncGenerator[list[str]]:
    """Yield the lines after an event as they come; an empty piece now and then where none come.

    Ends when the server does, or the session was deleted.
    """
    feed = served.feed
    while True:
        lines = feed.lines_after(after, PIECE_BYTES)
        if lines is None:
            lines = await run_in_threadpool(served.read_older, after)
            if not lines:  # it has just been deleted
                return
            after = _seq_of(lines[-1])
        else:
            after += len(lines)
        if lines:
            yield lines
        elif feed.is_closed:
            return
        else:
            is_here = served.is_running
            await feed.wait(after, KEEP_ALIVE_SECONDS if is_here else LOOK_SECONDS)
            if not is_here:
                await run_in_threadpool(served.look_again)
            yield []


class EventSource(Response):
    """The events as Server-Sent Events; the id of each is its `epoch:seq`."""

    media_type = "text/event-stream"

    def __init__(self, served: ServedSession, after: int, *, follows: bool = True) -> None:
        """Begin after an event.

        Args:
            follows: Whether to go on with what comes; otherwise it ends with the newest event.
        """
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._served = served
        self._after = after
        self._follows = follows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client or the server goes."""
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        self._served.client_count += 1
        # A client that takes nothing is cancelled when the server ends, which is no failure.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._served.client_count -= 1
                await _end(sending, leaving)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await _send_body(send, b"retry: 500\n\n")
        until = self._served.feed.last_seq
        if not self._follows and self._after >= until:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        sent_at = time.monotonic()
        async with contextlib.aclosing(pieces_after(self._served, self._after)) as pieces:
            async for lines in pieces:
                if lines or time.monotonic() - sent_at >= KEEP_ALIVE_SECONDS:
                    await _send_body(send, self._piece(lines))
                    sent_at = time.monotonic()
                if not self._follows and (not lines or _seq_of(lines[-1]) >= until):
                    break
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _piece(self, lines: list[str]) -> bytes:
        epoch = self._served.epoch
        events = (f"id: {epoch}:{_seq_of(line)}\ndata: {line}\n" for line in lines)
        return "".join(events).encode("ascii") if lines else b": still here\n\n"


class EventSocket:
    """The events over a WebSocket, and replies to the commands that come over it.

    Belongs to the event loop.
    """

    def __init__(
        self,
        websocket: WebSocket,
        served: ServedSession,
        after: int,
        do_line: Callable[[bytes, Reply], None],
    ) -> None:
        """Begin after an event.

        Args:
            do_line: Does a command and calls the function with each reply, on any thread.
        """
        self._websocket = websocket
        self._served = served
        self._after = after
        self._do_line = do_line
        self._loop = asyncio.get_running_loop()
        self._replies: deque[tuple[int, str]] = deque()
        self._has_room = asyncio.Event()
        self._at_work = 0
        self._told_epoch = -1

    async def run(self) -> None:
        """Send events and do commands until the client or the server goes."""
        await self._websocket.accept()
        self._served.client_count += 1
        sending = asyncio.ensure_future(self._send_all())
        receiving = asyncio.ensure_future(self._receive_all())
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._served.client_count -= 1
                await _end(sending, receiving)

    async def _send_all(self) -> None:
        after = self._after
        await self._tell_epoch()
        async with contextlib.aclosing(pieces_after(self._served, after)) as pieces:
            async for lines in pieces:
                await self._tell_epoch()
                for line in lines:
                    await self._send(line)
                    after = _seq_of(line)
                    await self._send_replies(after)
                await self._send_replies(after)
        await self._websocket.close(GOING_AWAY, "The server ends, or the session was deleted.")

    async def _tell_epoch(self) -> None:
        """Say how events are called from now on."""
        if self._told_epoch != self._served.epoch:
            self._told_epoch = self._served.epoch
            await self._send(first_line(self._served.session_id, epoch=self._told_epoch))

    async def _send_replies(self, after: int) -> None:
        while self._replies and self._replies[0][0] <= after:
            await self._send(self._replies.popleft()[1])

    async def _send(self, line: str) -> None:
        async with asyncio.timeout(STALLED_SECONDS):
            await self._websocket.send_text(line.rstrip("\n"))

    async def _receive_all(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            line = message.get("bytes") or (message.get("text") or "").encode("utf-8", "replace")
            while self._at_work >= MAX_WAITING_REPLIES:  # a client that does not listen waits
                self._has_room.clear()
                await self._has_room.wait()
            self._at_work += 1
            await run_in_threadpool(self._do_line, line, self._reply)

    def _reply(self, line: str, is_last: bool) -> None:
        """Send a reply after all events that have happened by now; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._keep_reply, line, is_last)

    def _keep_reply(self, line: str, is_last: bool) -> None:
        self._replies.append((self._served.feed.last_seq, line))
        if is_last:
            self._at_work -= 1
            self._has_room.set()
        self._served.feed.wake()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_body(send: Send, body: bytes) -> None:
    async with asyncio.timeout(STALLED_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _end(*tasks: asyncio.Future[None]) -> None:
    """End what is left of a client; that its connection broke is no failure of ours."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        expected = (asyncio.CancelledError, TimeoutError, WebSocketDisconnect, OSError)
        if isinstance(outcome, BaseException) and not isinstance(outcome, expected):
            raise outcome


def _seq_of(line: str) -> int:
    """The number of the event in one of our lines, which all begin alike."""
    start = line.index('"seq":') + 6
    return int(line[start : line.index(",", start)])
