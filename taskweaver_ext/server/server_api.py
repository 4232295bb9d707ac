"""Answers about the server itself, and texts made ready to be shown."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from starlette.responses import Response

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.programs.languages import BUILT_IN
from taskweaver_ext.server import api
from taskweaver_ext.server.failures import RefusedError
from taskweaver_ext.server.limits import Limits
from taskweaver_ext.server.routes import Call, Operation
from taskweaver_ext.server.served_session import ServedSession
from taskweaver_ext.server.served_sessions import ServedSessions
from taskweaver_ext.session.export.html_text import (
    clean_html,
    code_html,
    formula_html,
    markdown_html,
    terminal_html,
)
from taskweaver_ext.session.export.page_style import word_style

MAX_ITEMS = 500
_KILOBYTE = 1024


class ServerApi:
    """What can be asked about the server.

    Threads:
        Each answer is made on a thread that may wait.
    """

    def __init__(
        self, app: TaskWeaverApp, sessions: ServedSessions, find_limits: Callable[[], Limits]
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._find_limits = find_limits
        self._began_at = time.time()

    def operations(self) -> tuple[Operation, ...]:
        """The table of what is answered here."""
        return (
            Operation(
                method="GET",
                path="/health",
                summary="Say that the server lives.",
                answer=lambda _call: api.Health(version=version("taskweaver_ext")),
                returns=api.Health,
                is_open_to_all=True,
            ),
            Operation(
                method="GET",
                path="/server",
                summary="Say what the server is for and what it allows.",
                answer=self.facts,
                returns=api.ServerFacts,
            ),
            Operation(
                method="GET",
                path="/metrics",
                summary="Return numbers for Prometheus.",
                answer=self.metrics,
                media_type="text/plain",
            ),
            Operation(
                method="POST",
                path="/render",
                summary="Turn Markdown, code, terminal text, LaTeX or HTML into HTML that is safe.",
                answer=self.render,
                body=api.Rendering,
                returns=api.Rendered,
            ),
            Operation(
                method="GET",
                path="/words.css",
                summary="Return the colours of words in what `render` makes.",
                answer=lambda _call: Response(word_style(), media_type="text/css"),
                media_type="text/css",
            ),
        )

    def facts(self, _call: Call) -> api.ServerFacts:
        """Describe the server."""
        config = self._app.config
        added = config.execution_service.languages or {}
        return api.ServerFacts(
            version=version("taskweaver_ext"),
            project=str(config.app_base_dir),
            kernel_mode=config.execution_service.kernel_mode.value,
            model=self._app.describe_model(),
            languages=sorted({*BUILT_IN, *added}),
            idle_minutes=config.server.idle_minutes,
            max_body_bytes=config.server.max_body_mb << 20,
            max_upload_bytes=config.server.max_upload_mb << 20,
        )

    def metrics(self, _call: Call) -> Response:
        """Return the numbers in the text form of Prometheus."""
        running, limits = self._sessions.running(), self._find_limits()
        memory = _peak_memory_bytes()
        numbers: list[tuple[str, str, str, float]] = [
            ("sessions_running", "gauge", "Sessions at work.", len(running)),
            ("sessions_busy", "gauge", "Of them, with a round under way.", _busy(running)),
            ("streams_open", "gauge", "Clients that follow events.", _clients(running)),
            ("connections_open", "gauge", "Requests and streams.", limits.open_count),
            ("requests_total", "counter", "Requests so far.", limits.request_count),
            ("refused_total", "counter", "Of them, too many.", limits.refused_count),
            ("events_total", "counter", "Events of running sessions.", _events(running)),
            ("history_bytes", "gauge", "Events in memory.", self._sessions.recent.kept_bytes),
            ("peak_memory_bytes", "gauge", "Most memory so far.", memory),
            ("threads", "gauge", "Threads.", threading.active_count()),
            ("start_time_seconds", "gauge", "When it began.", self._began_at),
        ]
        lines = [
            f"# HELP taskweaver_{name} {words}\n# TYPE taskweaver_{name} {kind}\n"
            f"taskweaver_{name} {number}\n"
            for name, kind, words, number in numbers
        ]
        return Response("".join(lines), media_type="text/plain; version=0.0.4")

    def render(self, call: Call) -> api.Rendered:
        """Make HTML of texts."""
        items: list[api.RenderItem] = call.body.items
        if len(items) > MAX_ITEMS:
            raise RefusedError(400, "too_many_items", f"At most {MAX_ITEMS} texts at once.")
        return api.Rendered(html=[_rendered(item) for item in items])


def _peak_memory_bytes() -> int:
    """Return the most memory so far; what `getrusage` says begins with that of our starter."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE
    [line] = [one for one in status.splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * _KILOBYTE


def _rendered(item: api.RenderItem) -> str:
    text = item["text"]
    match item["kind"]:
        case "markdown":
            return markdown_html(text)
        case "code":
            return code_html(text, item.get("language", "python"))
        case "terminal":
            return terminal_html(text)
        case "latex":
            return formula_html(text)
        case "html":
            return clean_html(text)


def _busy(running: list[ServedSession]) -> int:
    return sum(one.is_busy for one in running)


def _clients(running: list[ServedSession]) -> int:
    return sum(one.client_count for one in running)


def _events(running: list[ServedSession]) -> int:
    return sum(one.feed.last_seq for one in running)
