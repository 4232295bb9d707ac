"""A server in a process of its own, and a client that speaks plain HTTP and WebSockets to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.support.chat_terminal import environ
from tests.support.command_line import PROGRAM
from tests.support.terminal_program import LIMIT_SECONDS

Values: TypeAlias = dict[str, Any]


class ServerProcess:
    """`taskweaver-ext serve`, ready for clients; what still runs at the end of the block is killed.

    Threads:
        One reads what the server says on standard error.
    """

    def __init__(self, project: Path, *arguments: str, **variables: str) -> None:
        self.project = project
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", "--port", "0", "-p", str(project), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environ(project), **variables},
            cwd=project,
            text=True,
        )
        self.errors: list[str] = []
        assert self.process.stdout is not None
        self._reading = threading.Thread(target=self._read_errors, daemon=True)
        self._reading.start()
        self.address = self.process.stdout.readline().strip()
        assert self.address, "".join(self.errors)
        self.url, _, self.token = self.address.partition("?token=")
        self.http = httpx.Client(
            base_url=f"{self.url}api/v1/",
            headers={"authorization": f"Bearer {self.token}"} if self.token else {},
            timeout=LIMIT_SECONDS,
            verify=False,
        )

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401 - JSON
        response = self.http.get(path, params=query)
        assert response.is_success, response.text
        return response.json()

    def post(self, path: str, **body: Any) -> Any:  # noqa: ANN401 - JSON
        response = self.http.post(path, json=body)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def make_session(self) -> str:
        return str(self.post("sessions")["session_id"])

    def run(self, session_id: str, code: str, language: str = "python") -> str:
        """Begin to run code, and return the id of the round."""
        begun = self.post(f"sessions/{session_id}/runs", code=code, language=language)
        return str(begun["round_id"])

    def run_to_end(self, session_id: str, code: str, language: str = "python") -> list[Values]:
        """Run code, and return the events of its round."""
        after = self.get(f"sessions/{session_id}")["cursor"]
        round_id = self.run(session_id, code, language)
        with self.events(session_id, after) as events:
            return [*until(events, lambda one: is_end_of(one, round_id))]

    @contextlib.contextmanager
    def events(self, session_id: str, after: str = "") -> Iterator[Iterator[Values]]:
        """The events as SSE tells them, each with its `id`."""
        path = f"sessions/{session_id}/events"
        with self.http.stream("GET", path, params={"after": after}) as response:
            assert response.status_code == 200, response.read()
            yield sse_events(response.iter_lines())

    def socket(self, session_id: str, after: str = "", **options: Any) -> EventSocketClient:  # noqa: ANN401
        url = f"{self.url.replace('http', 'ws', 1)}api/v1/sessions/{session_id}/events"
        headers = {"authorization": f"Bearer {self.token}"} | options.pop("headers", {})
        return EventSocketClient(
            f"{url}?after={after}", additional_headers=headers, max_size=None, **options
        )

    def end_sessions(self) -> None:
        """End all that run."""
        for one in self.get("sessions", limit=1000)["sessions"]:
            if one["state"] != "saved":
                self.post(f"sessions/{one['session_id']}/end")

    def children(self) -> set[int]:
        """The processes of its kernels, and what starts them."""
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True
        )
        return set(map(int, listed.stdout.split()))

    def terminate(self) -> float:
        """End it with SIGTERM; return how long that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT_SECONDS)
        return time.monotonic() - began

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LIMIT_SECONDS)
        self.process.kill()
        self.process.wait()
        self._reading.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class EventSocketClient:
    """One WebSocket: events and replies as they come."""

    connection: ClientConnection

    def __init__(self, url: str, **options: Any) -> None:  # noqa: ANN401 - those of `connect`
        self._connecting = connect(url, open_timeout=LIMIT_SECONDS, proxy=None, **options)
        self.epoch = 0
        self.seen: list[Values] = []
        """All events, in the order in which they came."""
        self.replies: list[Values] = []

    @property
    def cursor(self) -> str:
        """Of the last event that came."""
        return f"{self.epoch}:{self.seen[-1]['seq']}" if self.seen else ""

    def send(self, **command: Any) -> None:  # noqa: ANN401 - JSON
        self.connection.send(json.dumps(command))

    def next(self) -> Values:
        """The next message, whatever it is."""
        values: Values = json.loads(self.connection.recv(timeout=LIMIT_SECONDS))
        if "protocol" in values:
            self.epoch = values["epoch"]
        elif "reply" in values:
            self.replies.append(values)
        else:
            self.seen.append(values)
        return values

    def until(self, is_it: Callable[[Values], bool]) -> Values:
        while not is_it(values := self.next()):
            pass
        return values

    def event(self, name: str) -> Values:
        return self.until(lambda one: one.get("event") == name)

    def last_reply(self, id: object) -> Values:
        return self.until(lambda one: one.get("id") == id and one["reply"] != "accepted")

    def rest(self) -> int | None:
        """Read on until the server closes the connection; return its code."""
        try:
            while True:
                self.next()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None

    def __enter__(self) -> Self:
        self.connection = self._connecting.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connecting.__exit__(kind, error, traceback)


def sse_events(lines: Iterator[str]) -> Iterator[Values]:
    """Read the events of a stream, each with its id."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line and "data" in fields:
            yield {**json.loads(fields["data"]), "id": fields["id"]}
            fields = {}


def until(events: Iterator[Values], is_it: Callable[[Values], bool]) -> Iterator[Values]:
    """Give events up to the one that is looked for, and that one."""
    for event in events:
        yield event
        if is_it(event):
            return
    raise AssertionError("the stream ended before")


def is_end_of(event: Values, round_id: str) -> bool:
    return event.get("event") == "round_end" and event.get("round_id") == round_id


def output_of(events: list[Values]) -> str:
    return "".join(one.get("msg", "") for one in events if one["event"] == "post_execution_output")
