"""Pass on what running code says, while it says it, in the events of a post.

Text goes out as output in few events, everything else as the typed event that it is, in the
order in which it happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    ExecutionFinished,
    InputSettled,
    OutputProduced,
)
from taskweaver_ext.ces.execution.output_runs import STREAMS
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.closing import Closeable
from taskweaver_ext.events.display_files import DisplayFiles
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.events.output_batcher import OutputBatcher

INTERVAL_SECONDS = 0.01
"""Frontends pace their own drawing: a piece of output must not wait twice on its way."""


class LiveOutput(Closeable):
    """Pass on what one execution says to a post, in order."""

    def __init__(
        self,
        post: PostEventProxy,
        execution_id: ExecutionId,
        session_dir: Path,
        *,
        on_question_void: Callable[[ExecutionId], None],
    ) -> None:
        """Begin with an execution.

        Args:
            session_dir: Where large displays are kept.
            on_question_void: Called when an answer to the code is not wanted any more.
        """
        self._post = post
        self._execution_id = execution_id
        self._display_files = DisplayFiles(session_dir)
        self._on_question_void = on_question_void
        self._batcher = OutputBatcher(self._emit_output, interval=INTERVAL_SECONDS)
        self._spans: dict[StreamName, deque[tuple[int, int, int]]] = {
            stream: deque() for stream in STREAMS
        }
        """Of each piece in the batcher: its characters, and its place and size in the record."""
        self.has_ended = False
        """Whether the execution has; then it wants no answers."""

    def on_event(self, event: ExecutionEvent) -> None:
        """Receive what the execution says."""
        if isinstance(event, OutputProduced):
            self._spans[event.stream].append((len(event.text), event.offset, event.size))
            self._batcher.add(event.stream, event.text)
            return
        self._batcher.flush()  # what was written before comes before
        if isinstance(event, ExecutionFinished):
            self.has_ended = True
        if isinstance(event, InputSettled | ExecutionFinished):
            self._on_question_void(self._execution_id)
        if isinstance(event, DisplayProduced | DisplayUpdated):
            event = self._display_files.store(event)
        self._post.emit_execution_event(event)

    def close(self) -> None:
        """Send what is still waiting."""
        self.has_ended = True
        self._on_question_void(self._execution_id)
        self._batcher.close()

    def _emit_output(self, stream: StreamName, text: str) -> None:
        """Emit whole pieces: one event, or more where some of the record was left out between."""
        spans, start = self._spans[stream], 0
        while start < len(text):
            characters, offset, size = spans.popleft()
            end = start + characters
            while end < len(text) and spans[0][1] == offset + size:
                characters, _, more = spans.popleft()
                end += characters
                size += more
            self._post.emit_execution_output(
                stream, text[start:end], self._execution_id, offset, size
            )
            start = end
