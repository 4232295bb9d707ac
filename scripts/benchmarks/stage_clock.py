"""When a printed line has come how far on its way to the screen."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from taskweaver_ext.ces.execution.events import OutputProduced
from taskweaver_ext.console.inbox import Inbox
from taskweaver_ext.console.transcript import Transcript
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.events.types import PostEventType
from taskweaver_ext.roles.code_interpreter.live_output import LiveOutput

PRINT_STAMPS = """
import time
for _ in range({count}):
    print(f"@{{time.monotonic_ns()}}@")
    time.sleep({pause})
"""

STAGES = {
    "callback": "the kernel, to the callback",
    "batcher": "the batcher",
    "event": "the event and its journal",
    "inbox": "the inbox",
    "screen": "drawing and the pace of it",
}

_STAMP = re.compile(r"@([0-9]{1,20})@")


class StageClock:
    """Notes when each line that `PRINT_STAMPS` prints has reached each stage."""

    def __init__(self) -> None:
        self._reached: dict[str, dict[str, int]] = {stage: {} for stage in STAGES}
        self._changed = threading.Condition()

    def note(self, stage: str, text: str) -> str:
        """The lines in a text have come to a stage; give the text back."""
        now = time.monotonic_ns()
        with self._changed:
            for stamp in _STAMP.findall(text):
                self._reached[stage].setdefault(stamp, now)
            self._changed.notify_all()
        return text

    def wait_for(self, count: int, seconds: float) -> None:
        """Wait until so many lines are on the screen."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._reached["screen"]) >= count, seconds)

    def milliseconds(self, since: str | None, until: str) -> list[float]:
        """How long each line took from one stage, or from its print, to another."""
        began = self._reached[since] if since else {}
        return [
            (at - began.get(stamp, int(stamp))) / 1e6
            for stamp, at in self._reached[until].items()
            if not since or stamp in began
        ]

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Meanwhile what passes through the parts of a session and its console is noted."""
        with (
            self._before(LiveOutput, "on_event", "callback", _text_of_execution_event),
            self._before(PostEventProxy, "emit_execution_output", "batcher", lambda _, text: text),
            self._before(Inbox, "handle", "event", _text_of_event),
            self._before(Transcript, "handle", "inbox", _text_of_event),
        ):
            yield

    def _before(self, owner: type, name: str, stage: str, text_of: Callable[..., str]) -> Any:  # noqa: ANN401 - a patch
        plain = getattr(owner, name)

        def noted(part: object, *args: Any) -> Any:  # noqa: ANN401 - as what it stands for
            self.note(stage, text_of(*args[:2]))
            return plain(part, *args)

        return patch.object(owner, name, noted)


def _text_of_execution_event(event: object) -> str:
    return event.text if isinstance(event, OutputProduced) else ""


def _text_of_event(event: Any) -> str:  # noqa: ANN401 - of a session
    return event.msg if event.t is PostEventType.post_execution_output else ""
