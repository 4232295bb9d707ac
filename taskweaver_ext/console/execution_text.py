"""What an execution does besides writing, as lines among what it writes.

Pure: events in, text of a stream out.
"""

from __future__ import annotations

from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    ExecutionEvent,
    ExecutionFinished,
    LogRecorded,
)
from taskweaver_ext.ces.execution.results import StreamName


class ExecutionText:
    """Turns the events of one execution into lines, each on a line of its own."""

    def __init__(self) -> None:
        self._is_mid_line = False

    def wrote(self, text: str) -> None:
        """Note what the code itself wrote."""
        self._is_mid_line = not text.endswith("\n")

    def lines_of(self, event: ExecutionEvent) -> tuple[StreamName, str] | None:
        """Return what is to be shown of an event, if anything is."""
        match event:
            case LogRecorded():
                text = f"[{event.level}] {event.tag}: {event.message}"
                return self._lines("stdout" if event.level == "info" else "stderr", text)
            case DisplayProduced():
                value = event.bundle.get("text/plain")
                return self._lines("stdout", value) if isinstance(value, str) and value else None
            case ExecutionFinished(error=error) if error:
                return self._lines("stderr", error)
            case _:
                return None

    def _lines(self, stream: StreamName, text: str) -> tuple[StreamName, str]:
        start = "\n" if self._is_mid_line else ""
        self._is_mid_line = False
        return stream, f"{start}{text.rstrip()}\n"
