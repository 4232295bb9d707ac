"""What one cell says, in the order it says it: text for a model, data beside it."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    OutputProduced,
    StatusReported,
)
from taskweaver_ext.ces.execution.output_runs import STREAMS
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.text.terminal import fold
from taskweaver_ext.text.truncation import left_out_marker
from taskweaver_ext.tools.display_text import (
    DisplayText,
    StatusOutput,
    StructuredOutput,
    read_display,
)

MAX_OUTPUTS = 200
"""How much data beside the text is kept of one cell."""

_COPIED_CHARACTERS = 1 << 16


class CellRecord:
    """Turn the events of one cell into a bounded text; the whole goes to a file."""

    def __init__(self, folder: Path, artifact_id: str, max_text_bytes: int) -> None:
        self._id = artifact_id
        self._folder = folder
        self._max_text_bytes = max_text_bytes
        self._sink = self._open_sink()
        self._written_bytes = 0
        self._ends_a_line = True
        self._outputs: list[StructuredOutput] = []
        self._updated: dict[str, DisplayText] = {}

    def receive(self, event: ExecutionEvent) -> None:
        """Take what is output; other events say nothing here."""
        match event:
            case OutputProduced():
                self._write(event.text)
            case DisplayProduced():
                self._add(read_display(event.bundle))
            case DisplayUpdated():
                self._updated[event.display_id] = read_display(event.bundle)
            case StatusReported():
                self._keep(StatusOutput(event.report))
            case _:
                pass

    def add_line(self, text: str) -> None:
        """Add a text of its own, on a line of its own."""
        if text:
            self._write(text if self._ends_a_line else f"\n{text}")
            self._write("" if text.endswith("\n") else "\n")

    def rewrite_from(self, result: ExecutionResult) -> None:
        """Replace the text by that of the result: a slow caller was not told all events."""
        self._sink.close()
        self._sink = self._open_sink()
        self._written_bytes = 0
        self._ends_a_line = True
        for stream in STREAMS:
            path = result.full_output_paths.get(stream)
            if path is None:
                self._write("".join(result.stdout if stream == "stdout" else result.stderr))
                continue
            with path.open(encoding="utf-8", errors="replace", newline="") as file:
                while text := file.read(_COPIED_CHARACTERS):
                    self._write(text)

    def finish(self) -> tuple[str, tuple[StructuredOutput, ...], str | None]:
        """Return the text, the data beside it, and where all of it is if something is left out."""
        for display in self._updated.values():  # only the last state counts
            self._add(display)
        record = self._sink.finish()
        pieces = record.stdout
        if not record.full_output_paths:
            return fold("".join(pieces)), tuple(self._outputs), None
        artifact = f"artifact://{self._id}"
        missing = self._written_bytes - sum(len(piece.encode()) for piece in pieces)
        marker = left_out_marker(missing, unit="byte", where=artifact)
        head, tail = pieces[0], "".join(pieces[1:])
        joint = "" if head.endswith("\n") else "\n"
        return f"{fold(head)}{joint}{marker}\n{fold(tail)}", tuple(self._outputs), artifact

    def close(self) -> None:
        """Let go of the files."""
        self._sink.close()

    def _open_sink(self) -> OutputSink:
        return OutputSink(self._folder, self._id, memory_bytes=self._max_text_bytes)

    def _add(self, display: DisplayText) -> None:
        if display.text:
            self._write(display.text if self._ends_a_line else f"\n{display.text}")
        for output in display.outputs:
            self._keep(output)

    def _keep(self, output: StructuredOutput) -> None:
        if len(self._outputs) < MAX_OUTPUTS:
            self._outputs.append(output)

    def _write(self, text: str) -> None:
        if not text:
            return
        data = text.encode("utf-8", "replace")
        self._sink.write("stdout", data)
        self._written_bytes += len(data)
        self._ends_a_line = text.endswith("\n")
