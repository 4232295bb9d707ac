"""Show what running code does, while it does it, in the events of a post.

Everything a person should see goes out as output: what the code prints, the value
of its last line, what plugins log, and the error it ends with.
"""

from __future__ import annotations

from taskweaver_ext.ces.execution.events import DisplayProduced, ExecutionEvent, LogRecorded
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, StreamName
from taskweaver_ext.closing import Closeable
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.events.output_batcher import OutputBatcher


class LiveOutput(Closeable):
    """Pass the output of one execution on to a post, in few events and in order."""

    def __init__(self, post: PostEventProxy, execution_id: ExecutionId) -> None:
        self._batcher = OutputBatcher(
            lambda stream, text: post.emit_execution_output(stream, text, execution_id)
        )
        self._last_character = "\n"

    def on_output(self, stream: StreamName, text: str) -> None:
        """Take what the code wrote."""
        if text:
            self._last_character = text[-1]
            self._batcher.add(stream, text)

    def on_event(self, event: ExecutionEvent) -> None:
        """Take what else happened; most of it is not for the eye."""
        if isinstance(event, LogRecorded):
            stream: StreamName = "stdout" if event.level == "info" else "stderr"
            self._write_lines(stream, f"[{event.level}] {event.tag}: {event.message}")
        elif isinstance(event, DisplayProduced):
            text = event.bundle.get("text/plain")
            if isinstance(text, str) and text:
                self._write_lines("stdout", text)

    def finish(self, result: ExecutionResult) -> None:
        """Show the error that the code ended with, if there is one."""
        if result.error:
            self._write_lines("stderr", result.error)

    def close(self) -> None:
        """Send what is still waiting."""
        self._batcher.close()

    def _write_lines(self, stream: StreamName, text: str) -> None:
        """Write whole lines, beginning a new one if something else stands there."""
        start = "" if self._last_character == "\n" else "\n"
        self.on_output(stream, f"{start}{text.rstrip()}\n")
