"""What an execution does besides writing and displaying, in words for the person who watches.

Pure: events in, lines out; each thing is said once.
"""

from __future__ import annotations

from taskweaver_ext.ces.execution.events import (
    ArtifactProduced,
    ExecutionEvent,
    ExecutionFinished,
    LogRecorded,
    StatusChanged,
)
from taskweaver_ext.ces.execution.results import StreamName

_STATUSES_TO_SAY = ("restarted", "paused", "resumed", "limit")
_NOT_FOR_SCREENS = ("truncated", "display_skipped")
"""What these notices say is missing from a result has been shown all the same."""


class ExecutionNotes:
    """Puts into words what happens to one execution."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._named: set[str] = set()

    def has_named(self, path: str) -> bool:
        """Whether the place of a file has been said."""
        return any(path.endswith(named) for named in self._named)

    def notes_on(self, event: ExecutionEvent) -> list[tuple[StreamName, str]]:
        """Return what is to be said of an event: texts, each with the stream it goes to."""
        match event:
            case LogRecorded():
                stream: StreamName = "stdout" if event.level == "info" else "stderr"
                return [(stream, f"[{event.level}] {event.tag}: {event.message}")]
            case ArtifactProduced():
                artifact = event.artifact
                self._named.add(artifact.file_name or artifact.name)
                what = "Picture" if artifact.mime_type.startswith("image/") else "Saved"
                return [("stdout", f"[{what}] {artifact.file_name or artifact.name}")]
            case StatusChanged() if event.status in _STATUSES_TO_SAY:
                self._said.add(event.detail)
                return [("stderr", f"[{event.status.capitalize()}] {event.detail}")]
            case ExecutionFinished():
                return [("stderr", text) for text in self._last_words(event)]
            case _:
                return []

    def _last_words(self, event: ExecutionFinished) -> list[str]:
        words = [event.error] if event.error else []
        for notice in event.notices:
            if notice.kind not in _NOT_FOR_SCREENS and notice.message not in self._said:
                words.append(f"[Notice] {notice.message}")
        if not event.variables_survived and not any("lost" in text for text in words):
            words.append("[Notice] What earlier code had in memory is lost.")
        return words
