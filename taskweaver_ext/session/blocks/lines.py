"""The whole output of code, line by line, from its events: nothing is left out, little is held.

What was written over (bars, `\\r`) is folded to its last state; what the code cleared is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionFinished,
    OutputCleared,
)
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.events.extras import ExecutionEventExtra, ExecutionOutputExtra, LateOutputExtra
from taskweaver_ext.events.types import PostEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.text.terminal import LineFolder, fold
from taskweaver_ext.tools.display_text import plain_display

MAX_LINE_CHARS = 1 << 16
"""A longer line comes in pieces."""


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line that code wrote or showed."""

    stream: StreamName
    text: str
    """May hold plain colours, and nothing else that drives a terminal."""


class OutputLines:
    """Takes the events of one execution in order, and gives the lines that they complete."""

    def __init__(self, *, keep_colors: bool = False) -> None:
        self._keep_colors = keep_colors
        self._folders: dict[StreamName, LineFolder] = {
            "stdout": self._new_folder(),
            "stderr": self._new_folder(),
        }

    def feed(self, event: TaskWeaverEvent) -> list[OutputLine]:
        """Take the next event, be it of the running code or of what it left behind."""
        match event.t:
            case PostEventType.post_execution_output:
                return self._write(cast(ExecutionOutputExtra, event.extra)["stream"], event.msg)
            case SessionEventType.session_late_output:
                return self._write(cast(LateOutputExtra, event.extra)["stream"], event.msg)
            case PostEventType.post_execution_event:
                said = cast(ExecutionEventExtra, event.extra)["event"]
                if isinstance(said, DisplayProduced | DisplayUpdated):
                    return self._add("stdout", plain_display(said.bundle))
                if isinstance(said, ExecutionFinished):
                    return self._add("stderr", said.error)
            case _:
                pass
        return []

    def close(self) -> list[OutputLine]:
        """Give the lines that were never completed."""
        return [
            OutputLine(stream, line)
            for stream, folder in self._folders.items()
            for line in folder.close()
        ]

    def _new_folder(self) -> LineFolder:
        return LineFolder(self._keep_colors, max_line_chars=MAX_LINE_CHARS)

    def _write(self, stream: StreamName, text: str) -> list[OutputLine]:
        lines = self._folders[stream].feed(text)
        before: list[OutputLine] = []
        if lines:
            for other, folder in self._folders.items():
                if other != stream:  # what was complete before stays above
                    before += [OutputLine(other, line) for line in folder.release()]
        return before + [OutputLine(stream, line) for line in lines]

    def _add(self, stream: StreamName, text: str) -> list[OutputLine]:
        if not text:
            return []
        lines = fold(text, keep_colors=self._keep_colors).rstrip("\n").split("\n")
        return [*self.close(), *(OutputLine(stream, line) for line in lines)]


def output_lines(
    events: Iterable[TaskWeaverEvent], *, keep_colors: bool = False
) -> Iterator[OutputLine]:
    """Give the lines that the events of one execution come to."""
    lines = OutputLines(keep_colors=keep_colors)
    for event in events:
        yield from lines.feed(event)
    yield from lines.close()


def is_cleared_by(event: TaskWeaverEvent) -> bool:
    """Whether an event takes away what the code has shown before it."""
    is_said = event.t is PostEventType.post_execution_event and "event" in event.extra
    return is_said and isinstance(cast(ExecutionEventExtra, event.extra)["event"], OutputCleared)
