"""What is to be seen of an execution in the end: text and displays, in their order of happening.

Pure: events in; a text, and data beside it, out; bounded in memory whatever the code writes.
Lines that were written over are there in their last state, displays with their updates, and
nothing that was cleared.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskweaver_ext.ces.execution.events import (
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    OutputCleared,
    OutputProduced,
    StatusReported,
)
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.text.terminal import LineFolder, fold
from taskweaver_ext.text.truncation import left_out_marker, shorten_middle
from taskweaver_ext.tools.display_text import StatusOutput, StructuredOutput, read_display

MAX_OUTPUTS = 200
"""How much data beside the text is kept."""


@dataclass(slots=True)
class _Part:
    """Lines that came at once, or a display."""

    text: str
    is_display: bool = False
    display_id: str | None = None


class ShownOutput:
    """Follow one execution."""

    def __init__(self, max_chars: int, *, with_value: bool = True) -> None:
        """Begin with nothing.

        Args:
            max_chars: How much can be told of it; of what is longer the middle is forgotten.
            with_value: Whether the value of the last expression belongs to it.
        """
        self._max_chars = max_chars
        self._with_value = with_value
        self._is_clearing = False
        self._clear()

    def receive(self, event: ExecutionEvent) -> None:
        """Take what is output; other events say nothing here."""
        match event:
            case OutputProduced():
                self._clear_if_due()
                self._add(self._folders[event.stream].feed(event.text), event.stream)
            case DisplayProduced() if self._with_value or not event.is_result:
                self._clear_if_due()
                self._end_lines()
                self._append(self._read(event))
            case DisplayUpdated():
                self._update(event)
            case StatusReported():
                self._keep(None, StatusOutput(event.report))
            case OutputCleared(wait=True):
                self._is_clearing = True
            case OutputCleared():
                self._clear()
            case _:
                pass

    def add(self, text: str) -> None:
        """Add a text of ours, on lines of its own."""
        self._end_lines()
        self._append(_Part(fold(text).rstrip("\n")))

    def text(self, max_chars: int | None = None, where: str = "") -> str:
        """What is to be seen, without the last newline.

        Args:
            max_chars: How long it may be, if it is to be shorter than it could.
            where: The place of all that was written, named where something is left out.
        """
        self._end_lines()
        room = min(self._max_chars, self._max_chars if max_chars is None else max_chars)
        head, tail = (
            "\n".join(part.text for part in parts if part.text or not part.is_display)
            for parts in (self._parts[: self._gap], self._parts[self._gap :])
        )
        if not self._left_out:
            return shorten_middle(tail, room, where=where)
        whole = f"{head}\n{tail}"
        if len(whole) > room:
            return shorten_middle(
                whole,
                room,
                where=where,
                missing_chars=self._left_out,
                missing_lines=self._lines_left_out,
            )
        marker = left_out_marker(self._left_out, self._lines_left_out, where=where)
        return f"{head}\n{marker}\n{tail}"

    @property
    def outputs(self) -> tuple[StructuredOutput, ...]:
        """The data beside the text, in order."""
        return tuple(output for _, output in self._outputs)

    def _clear(self) -> None:
        self._folders: dict[StreamName, LineFolder] = {
            "stdout": LineFolder(keep_colors=False),
            "stderr": LineFolder(keep_colors=False),
        }
        self._parts: list[_Part] = []
        self._outputs: list[tuple[str | None, StructuredOutput]] = []
        """Each with the id of its display, if that has one."""
        self._size = 0
        self._gap = 0
        """How many parts are before what was left out."""
        self._left_out = 0
        self._lines_left_out = 0

    def _clear_if_due(self) -> None:
        if self._is_clearing:
            self._is_clearing = False
            self._clear()

    def _update(self, event: DisplayUpdated) -> None:
        self._clear_if_due()
        shown = [part for part in self._parts if part.display_id == event.display_id]
        self._outputs = [one for one in self._outputs if one[0] != event.display_id]
        updated = self._read(event)
        for part in shown:
            self._size += len(updated.text) - len(part.text)
            part.text = updated.text
        if not shown:  # it was cleared, left out, or made by code before this
            self._end_lines()
            self._append(updated)

    def _read(self, event: DisplayProduced | DisplayUpdated) -> _Part:
        display = read_display(event.bundle)
        for output in display.outputs:
            self._keep(event.display_id, output)
        text = fold(display.text).rstrip("\n")
        return _Part(shorten_middle(text, self._max_chars), True, event.display_id)

    def _keep(self, display_id: str | None, output: StructuredOutput) -> None:
        if len(self._outputs) < MAX_OUTPUTS:
            self._outputs.append((display_id, output))

    def _add(self, lines: list[str], stream: StreamName) -> None:
        if not lines:
            return
        for other, folder in self._folders.items():
            if other != stream:  # what was complete before stays above
                lines = [*folder.release(), *lines]
        self._append(_Part("\n".join(lines)))

    def _append(self, part: _Part) -> None:
        self._parts.append(part)
        self._size += len(part.text) + 1
        self._leave_out_middle()

    def _end_lines(self) -> None:
        for stream, folder in self._folders.items():
            self._add(folder.close(), stream)

    def _leave_out_middle(self) -> None:
        """Keep more than will be told of both ends, and forget what is between."""
        if self._size <= 4 * self._max_chars:
            return
        if not self._left_out:
            self._gap = _count_to(self._parts, self._max_chars)
        tail = max(self._gap, len(self._parts) - _count_to(self._parts[::-1], self._max_chars))
        forgotten = self._parts[self._gap : tail]
        del self._parts[self._gap : tail]
        characters = sum(len(part.text) + 1 for part in forgotten)
        self._size -= characters
        self._left_out += characters
        self._lines_left_out += sum(part.text.count("\n") + 1 for part in forgotten)


def _count_to(parts: list[_Part], characters: int) -> int:
    """How many parts it takes to have so many characters."""
    for count, part in enumerate(parts):
        if characters <= 0:
            return count
        characters -= len(part.text) + 1
    return len(parts)
