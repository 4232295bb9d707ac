"""What one cell says, in the order it says it: text for a model, data beside it."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    OutputProduced,
)
from taskweaver_ext.ces.execution.output_runs import STREAMS
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import ExecutionResult, StreamName
from taskweaver_ext.tools.display_text import StructuredOutput, read_display
from taskweaver_ext.tools.shown_output import ShownOutput

_COPIED_CHARACTERS = 1 << 16


class CellRecord:
    """Turn the events of one cell into a bounded text; all that it said goes to a file."""

    def __init__(self, folder: Path, artifact_id: str, max_text_bytes: int) -> None:
        self._id = artifact_id
        self._folder = folder
        self._max_text_bytes = max_text_bytes
        self._begin()

    def _begin(self) -> None:
        self._sink = OutputSink(self._folder, self._id, memory_bytes=self._max_text_bytes)
        self._shown = ShownOutput(self._max_text_bytes)
        self._ends_a_line = True

    def receive(self, event: ExecutionEvent) -> None:
        """Take what is output; other events say nothing here."""
        self._shown.receive(event)
        match event:
            case OutputProduced():
                self._write(event.text)
            case DisplayProduced() | DisplayUpdated():
                self._write_line(read_display(event.bundle).text)
            case _:
                pass

    def add_line(self, text: str) -> None:
        """Add a text of its own, on a line of its own."""
        if text:
            self._shown.add(text)
            self._write_line(text)

    def rewrite_from(self, result: ExecutionResult) -> None:
        """Replace the text by that of the result: a slow caller was not told all events."""
        self._sink.close()
        self._begin()
        for stream in STREAMS:
            path = result.full_output_paths.get(stream)
            if path is None:
                self._rewrite(
                    result, stream, "".join(result.stdout if stream == "stdout" else result.stderr)
                )
                continue
            with path.open(encoding="utf-8", errors="replace", newline="") as file:
                while text := file.read(_COPIED_CHARACTERS):
                    self._rewrite(result, stream, text)

    def finish(self) -> tuple[str, tuple[StructuredOutput, ...], str | None]:
        """Return the text, the data beside it, and where all of it is if something is left out."""
        is_long = bool(self._sink.finish().full_output_paths)
        artifact = f"artifact://{self._id}"
        text = self._shown.text(where=artifact)
        is_cut = is_long and f"whole output: {artifact}" in text
        return f"{text}\n" if text else "", self._shown.outputs, artifact if is_cut else None

    def close(self) -> None:
        """Let go of the files."""
        self._sink.close()

    def _rewrite(self, result: ExecutionResult, stream: StreamName, text: str) -> None:
        self.receive(OutputProduced(execution_id=result.execution_id, stream=stream, text=text))

    def _write_line(self, text: str) -> None:
        if text:
            self._write(text if self._ends_a_line else f"\n{text}")
            self._write("" if text.endswith("\n") else "\n")

    def _write(self, text: str) -> None:
        if text:
            self._sink.write("stdout", text.encode("utf-8", "replace"))
            self._ends_a_line = text.endswith("\n")
