"""What tests of the agent share: scripted replies, a project folder, and an ear for events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    ExecutionEvent,
    ExecutionFinished,
)
from taskweaver_ext.conversation import AttachmentType, Post, RoundState
from taskweaver_ext.events.types import (
    PostEventType,
    RoundEventType,
    SessionEventHandler,
    SessionEventType,
    TaskWeaverEvent,
)
from tests.support.executions import LIMIT_SECONDS

API_KEY = "key-that-must-stay-hidden"


def plan(
    message: str,
    *,
    to: str = "CodeInterpreter",
    stop: str = "InProcess",
    steps: str = "1. do it\n2. report",
) -> str:
    """A planner's reply."""
    fields = {
        "plan_reasoning": "because it was asked for",
        "init_plan": steps,
        "plan": steps,
        "current_plan_step": steps.splitlines()[0],
        "stop": stop,
        "send_to": to,
        "message": message,
    }
    return json.dumps({"response": fields})


def answer(message: str) -> str:
    """A planner's reply to the user."""
    return plan(message, to="User", stop="Completed")


def code(source: str, language: str = "python", thought: str = "so be it") -> str:
    """A code interpreter's reply."""
    fields = {"thought": thought, "reply_type": language, "reply_content": source}
    return json.dumps({"response": fields})


def make_app(project: Path, url: str = "", **settings: object) -> TaskWeaverApp:
    """An application on an empty project folder, talking to a server."""
    project.mkdir(exist_ok=True)
    config: dict[str, object] = {
        "llm.api_type": "openai",
        "llm.api_base": url,
        "llm.api_key": API_KEY,
        "llm.model": "scripted",
        "llm.max_retries": 0,
    }
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return TaskWeaverApp(project, {**config, **named})


@dataclass
class Listener(SessionEventHandler):
    """Keep every event, and call `react` for each."""

    react: Callable[[TaskWeaverEvent], None] | None = None
    events: list[TaskWeaverEvent] = field(default_factory=list)

    def handle(self, event: TaskWeaverEvent) -> None:
        self.events.append(event)
        if self.react is not None:
            self.react(event)

    def output(self, stream: str = "stdout") -> str:
        return "".join(
            event.msg
            for event in self.events
            if event.t is PostEventType.post_execution_output
            and "stream" in event.extra
            and event.extra["stream"] == stream
        )

    def late_output(self) -> str:
        return "".join(
            event.msg for event in self.events if event.t is SessionEventType.session_late_output
        )

    def executions(self) -> list[ExecutionEvent]:
        """What executions said besides their output."""
        return [
            event.extra["event"]
            for event in self.events
            if event.t is PostEventType.post_execution_event and "event" in event.extra
        ]

    def values(self) -> list[str]:
        """The texts of what code displayed."""
        said = self.executions()
        return [one.bundle["text/plain"] for one in said if isinstance(one, DisplayProduced)]

    def errors_of_code(self) -> str:
        """What code ended with, where it failed."""
        said = self.executions()
        return "\n".join(one.error for one in said if isinstance(one, ExecutionFinished))

    def end_states(self) -> list[RoundState]:
        """How each round ended."""
        return [event.extra["state"] for event in self.events if "state" in event.extra]

    def errors(self) -> list[str]:
        return [event.msg for event in self.events if event.t is RoundEventType.round_error]

    def statuses_of_panel(self) -> list[str]:
        return [
            event.extra["payload"]["status"]
            for event in self.events
            if "sub_type" in event.extra and event.extra["sub_type"] == "code_exec.status"
        ]

    def code_of_panel(self) -> str:
        """The code that the panel shows; a piece with the index 0 begins it."""
        code = ""
        for event in self.events:
            if "sub_type" in event.extra and event.extra["sub_type"] == "code_exec.code":
                code = event.msg if event.extra["index"] == 0 else code + event.msg
        return code


def attached(post: Post, kind: AttachmentType) -> str:
    """The content of the last attachment of a kind."""
    return post.get_attachment(kind)[-1].content


class Background:
    """Run something on another thread, and wait for what it returns."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._outcome: list[object] = []
        self._error: list[BaseException] = []

        def run() -> None:
            try:
                self._outcome.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again by `result`
                self._error.append(error)

        self._thread = threading.Thread(target=run, name="test-background", daemon=True)
        self._thread.start()

    def result(self) -> object:
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), "it did not end in time"
        if self._error:
            raise self._error[0]
        return self._outcome[0]
