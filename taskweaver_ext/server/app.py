"""The server as one application: the table of operations, streams, the page, gate and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.server import api
from taskweaver_ext.server.access import AccessGate, AccessRules
from taskweaver_ext.server.event_streams import EventSocket
from taskweaver_ext.server.failures import RefusedError, answer_to
from taskweaver_ext.server.files_api import FilesApi
from taskweaver_ext.server.limits import Limits
from taskweaver_ext.server.openapi import describe
from taskweaver_ext.server.reading_api import ReadingApi
from taskweaver_ext.server.routes import Call, Operation, starlette_routes
from taskweaver_ext.server.served_session import Cursor
from taskweaver_ext.server.served_sessions import ServedSessions
from taskweaver_ext.server.server_api import ServerApi
from taskweaver_ext.server.sessions_api import SessionsApi
from taskweaver_ext.server.work_api import WorkApi

PAGE = Path(__file__).parent / "page"


class ServerApp:
    """What uvicorn calls for each connection.

    Threads:
        It belongs to the event loop, and makes `sessions` on it when the loop begins.
    """

    def __init__(self, app: TaskWeaverApp, rules: AccessRules, cwd: Path | None = None) -> None:
        """Answer for an application.

        Args:
            cwd: Where new sessions work; None: as the project says.
        """
        self._app = app
        self._cwd = cwd
        self._rules = rules
        self._inner: Limits | None = None
        self.sessions: ServedSessions | None = None
        """Known once the server has started."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if self._inner is None:
            self.sessions = ServedSessions(self._app, asyncio.get_running_loop(), self._cwd)
            routes = self._routes(self.sessions)
            inner = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})
            self._inner = Limits(AccessGate(inner, self._rules), self._app.config.server)
        await self._inner(scope, receive, send)

    def _limits(self) -> Limits:
        assert self._inner is not None
        return self._inner

    def _routes(self, sessions: ServedSessions) -> list[BaseRoute]:
        settings = self._app.config.server
        max_body = settings.max_body_mb << 20
        work = WorkApi(sessions)

        async def follow(websocket: WebSocket) -> None:
            session_id = websocket.path_params["session_id"]
            try:
                served = await asyncio.to_thread(sessions.find, session_id)
                cursor = Cursor.parse(websocket.query_params.get("after", ""))
                after = await asyncio.to_thread(served.position_of, cursor)
            except RefusedError as error:
                await websocket.send_denial_response(answer_to(error))
                return
            await EventSocket(
                websocket, served, after, lambda line, reply: work.do_line(session_id, line, reply)
            ).run()

        operations = [
            *ServerApi(self._app, sessions, self._limits).operations(),
            *SessionsApi(sessions).operations(),
            *work.operations(),
            *ReadingApi(sessions).operations(),
            *FilesApi(sessions, settings.max_upload_mb << 20).operations(),
        ]
        operations.append(_description_of(operations))
        return [
            *starlette_routes(operations, api.PREFIX, max_body),
            WebSocketRoute(f"{api.PREFIX}/sessions/{{session_id}}/events", follow),
            Route("/{path:path}", _PageFiles(directory=PAGE, html=True)),
        ]


def _description_of(operations: Sequence[Operation]) -> Operation:
    """Return the operation that describes all of them."""

    def describe_all(_call: Call) -> dict[str, Any]:
        return describe([*operations, itself], api.PREFIX, version("taskweaver_ext"))

    itself = Operation(
        method="GET",
        path="/openapi.json",
        summary="Return this description.",
        answer=describe_all,
        returns=dict[str, Any],
    )
    return itself


class _PageFiles(StaticFiles):
    """The files of the page; a browser asks each time whether they have changed."""

    def file_response(self, *arguments: Any, **named: Any) -> Response:  # noqa: ANN401 - starlette's
        response = super().file_response(*arguments, **named)
        response.headers["cache-control"] = "no-cache"
        return response


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "wrong_method"}
    code = codes.get(error.status_code, "refused")
    response = answer_to(RefusedError(error.status_code, code, f"{error.detail}."))
    response.headers.update(error.headers or {})
    return response
