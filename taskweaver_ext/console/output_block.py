"""What one execution wrote, as rows under the frame: finished ones, and those still changing.

The last lines stay open for a while: displays are updated and output is cleared there
(`open_items.py`). Output beyond `rows_in_full` rows is collapsed: the screen shows how much is
hidden and the last `TAIL_ROWS` rows, and the hidden lines are kept for `/expand`. So a flood
costs the screen next to nothing, and memory nothing at all: what is hidden is on the disk.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.console.markdown import Drawing
from taskweaver_ext.console.markdown_stream import MarkdownStream
from taskweaver_ext.console.open_items import Item, OpenItems
from taskweaver_ext.console.pictures import PictureLine, PictureRow
from taskweaver_ext.console.rows import (
    DIM,
    ERROR_OUTPUT,
    NO_LIMIT,
    OUTPUT,
    RED,
    Painter,
    framed,
)
from taskweaver_ext.text.terminal import LineFolder, fold, message_text

ROWS_IN_FULL = 200
OPEN_LINES = 12
"""How many lines of running code stay open on a terminal."""
TAIL_ROWS = 20
PARTIAL_ROWS = 3
"""How much of a line that may still change is shown."""

_LINE_CHARS = 8192
"""Longer lines go to the screen in pieces: they are not to be measured again and again."""
_MEMORY_BYTES = 1 << 20
_HEADING_CHARS = 75
_HEADING_END = "Traceback (most recent call last)"
_MAX_MISSING = 20
_ERROR_MARK = "\x01"
"""Before a kept line of standard error; no line contains it, because folders remove it."""
FRAMES: Mapping[StreamName, str] = {"stdout": OUTPUT, "stderr": ERROR_OUTPUT}
_COLORS: dict[StreamName, str] = {"stdout": "", "stderr": RED}


class HiddenLines:
    """The lines that were collapsed, in a file of their own until `close`."""

    def __init__(self) -> None:
        self.count = 0
        self._failure: OSError | None = None
        self._file: IO[str] = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - `close` ends it
            max_size=_MEMORY_BYTES, mode="w+", encoding="utf-8", errors="replace", newline="\n"
        )

    def add(self, stream: StreamName, lines: list[str]) -> None:
        """Keep lines of one stream, as long as there is room on the disk."""
        self.count += len(lines)
        if self._failure is not None:
            return
        mark = _ERROR_MARK if stream == "stderr" else ""
        try:
            self._file.write(mark + f"\n{mark}".join(lines) + "\n")
        except OSError as error:
            self._failure = error

    def rows(self, width: int, painter: Painter) -> Iterator[list[str]]:
        """Yield all of them again as framed rows, a line at a time."""
        if self._failure is not None:
            text = f"These lines were not kept: {self._failure.strerror}."
            yield _framed(OUTPUT, "stdout", text, width, painter)
            return
        self._file.seek(0)
        try:
            for line in self._file:
                stream: StreamName = "stderr" if line.startswith(_ERROR_MARK) else "stdout"
                text = line.removeprefix(_ERROR_MARK).removesuffix("\n")
                yield _framed(FRAMES[stream], stream, text, width, painter)
        finally:
            self._file.seek(0, 2)

    def close(self) -> None:
        """Forget them."""
        with contextlib.suppress(OSError):  # what was never written is not missed
            self._file.close()


class OutputBlock:
    """The output of one execution.

    `feed` returns rows that will not change any more; `live_rows` are those that may.
    """

    def __init__(
        self,
        width: int,
        painter: Painter,
        *,
        number: int = 1,
        rows_in_full: int = ROWS_IN_FULL,
        open_lines: int = 0,
        frames: Mapping[StreamName, str] = FRAMES,
        is_markdown: bool = False,
    ) -> None:
        """Begin without output.

        Args:
            number: What `/expand` calls it; 0 where there is no such command.
            rows_in_full: From here on output is collapsed.
            open_lines: How many lines at the end can still be replaced or cleared.
            frames: What rows of each stream begin with.
            is_markdown: Whether standard output is drawn as Markdown.
        """
        self._is_markdown = is_markdown
        self.width = width
        self.number = number
        self.hidden: HiddenLines | None = None
        """What was collapsed, if anything was."""
        self._painter = painter
        self._frames = frames
        self._rows_left = rows_in_full
        self._open = OpenItems(open_lines)
        self._is_clearing = False
        self._has_cleared = False
        self._tail: deque[tuple[StreamName, str]] = deque(maxlen=TAIL_ROWS)
        # A multiple of the width: pieces of one long line then join without a gap.
        content = max(4, width - len(OUTPUT))
        self._line_chars = (
            _LINE_CHARS if width == NO_LIMIT else max(1, _LINE_CHARS // content) * content
        )
        self._begin_lines()

    def feed(self, stream: StreamName, text: str) -> list[str]:
        """Take the next piece of output and return the rows that are final now."""
        self._clear_if_due()
        rows: list[str] = []
        if lines := self._folders[stream].feed(text):
            for other, folder in self._folders.items():
                if other != stream:  # what was complete before stays above
                    rows += self._receive(other, folder.release())
        return rows + self._receive(stream, lines)

    def add(self, stream: StreamName, text: str, display_id: str | None = None) -> list[str]:
        """Add a whole text, such as a display, on lines of its own; as `feed` does."""
        lines = fold(text, keep_colors=self._painter.has_color).rstrip("\n").split("\n")
        return self._add(Item(stream, lines, display_id))

    def note(self, stream: StreamName, text: str) -> list[str]:
        """Add something of our own; a sentence is cut between words, and no path is cut."""
        lines = message_text(text).rstrip("\n").split("\n")
        return self._add(Item(stream, lines, is_prose=len(lines) == 1))

    def show(self, lines: list[str], display_id: str | None = None) -> list[str]:
        """Add a display that is drawn already, on lines of its own; as `feed` does."""
        rows = self._add(Item("stdout", lines, display_id)) if lines else []
        # A picture is itself only once it is final; code that clears shows one after another.
        is_final = display_id is None and not self._has_cleared
        if is_final and any(isinstance(line, PictureLine) for line in lines):
            rows += self.settle()
        return rows

    def update(self, display_id: str, lines: list[str]) -> list[str]:
        """Show something else in place of a display, or below where it cannot be replaced."""
        self._clear_if_due()
        if self._open.replace(display_id, lines):
            return []
        return self.show(lines, display_id)

    def _add(self, item: Item) -> list[str]:
        self._clear_if_due()
        rows = self._break_lines()
        return rows + self._finish(self._open.add(item))

    def clear(self, *, wait: bool) -> None:
        """Take away what has not become final; if so wanted, only when more comes."""
        self._is_clearing = self._has_cleared = True
        if not wait:
            self._clear_if_due()

    def settle(self) -> list[str]:
        """Return the rows of complete lines that could still have changed."""
        return self._finish(self._open.release())

    def break_line(self, stream: StreamName) -> list[str]:
        """Return the rows of a line that is not complete; what follows begins another."""
        rows = self._receive(stream, self._folders[stream].close())
        return rows + (self._end_markdown() if stream == "stdout" else [])

    def close(self) -> list[str]:
        """Return the last rows: lines that were never completed, and the end of what is hidden."""
        rows = [*self._break_lines(), *self.settle()]
        if self.hidden is not None:
            rows += [*self._notice(), *self._tail_rows(TAIL_ROWS)]
        return rows

    def forget(self) -> None:
        """Give up what was collapsed."""
        if self.hidden is not None:
            self.hidden.close()
            self.hidden = None

    def live_rows(self, height: int) -> list[str]:
        """What may still change, in at most `height` rows."""
        rows = [
            row
            for item in self._open
            for line in _live(item.lines)
            for row in self._framed(item.stream, line, is_prose=item.is_prose)
        ]
        for line in self._markdown.open_lines[-height:] if self._markdown is not None else ():
            rows += self._framed("stdout", line)
        for stream, folder in self._folders.items():
            for line in folder.open_lines:
                rows += self._framed(stream, line)[-PARTIAL_ROWS:]
        if self.hidden is not None:
            room = height - len(rows) - 1
            rows = [*self._notice(), *self._tail_rows(min(TAIL_ROWS, max(1, room))), *rows]
        return rows[-max(1, height) :]

    def _begin_lines(self) -> None:
        self._folders: dict[StreamName, LineFolder] = {
            stream: LineFolder(self._painter.has_color, max_line_chars=self._line_chars)
            for stream in ("stdout", "stderr")
        }
        self._markdown = MarkdownStream(self._drawing) if self._is_markdown else None

    @property
    def _drawing(self) -> Drawing:
        return Drawing(self.width - len(OUTPUT), self._painter.has_color, is_framed=True)

    def _break_lines(self) -> list[str]:
        return [row for stream in self._folders for row in self.break_line(stream)]

    def _clear_if_due(self) -> None:
        if self._is_clearing:
            self._is_clearing = False
            self._open.clear()
            self._begin_lines()

    def _receive(self, stream: StreamName, lines: list[str]) -> list[str]:
        rows: list[str] = []
        if self._markdown is not None and lines:
            if stream == "stdout":
                self._markdown.drawing = self._drawing
                lines = [row for line in lines for row in self._markdown.feed(line)]
            else:
                rows = self._end_markdown()
        return rows + self._finish(self._open.add_lines(stream, lines))

    def _end_markdown(self) -> list[str]:
        """Draw what waits for the end of its block."""
        drawn = self._markdown.close() if self._markdown is not None else []
        return self._finish(self._open.add_lines("stdout", drawn))

    def _finish(self, items: Iterable[Item]) -> list[str]:
        return [row for item in items for row in self._finished_rows(item)]

    def _finished_rows(self, item: Item) -> list[str]:
        rows: list[str] = []
        for number, line in enumerate(item.lines):
            if self._rows_left <= 0:
                self._hide(item.stream, item.lines[number:])
                break
            new = self._framed(item.stream, line, is_prose=item.is_prose)
            self._rows_left -= len(new)
            rows += new
        return rows

    def _hide(self, stream: StreamName, lines: list[str]) -> None:
        if self.hidden is None:
            self.hidden = HiddenLines()
        self.hidden.add(stream, lines)
        self._tail.extend((stream, line) for line in lines[-TAIL_ROWS:])

    def _notice(self) -> list[str]:
        count = self.hidden.count - len(self._tail) if self.hidden else 0
        if count <= 0:
            return []
        how = f"; /expand {self.number} shows them" if self.number else ""
        what = f"⋯ {count:,} more lines{how}"
        return [self._painter.paint(OUTPUT + what, DIM)]

    def _tail_rows(self, limit: int) -> list[str]:
        rows: deque[str] = deque()
        for stream, line in reversed(self._tail):
            rows.extendleft(reversed(self._framed(stream, line)))
            if len(rows) >= limit:
                break
        return list(rows)[-limit:]

    def _framed(self, stream: StreamName, line: str, *, is_prose: bool = False) -> list[str]:
        frame = self._frames[stream]
        if isinstance(line, PictureLine):
            return [PictureRow.of(self._painter.paint(frame, DIM), line.picture)]
        return _framed(frame, stream, line, self.width, self._painter, is_prose=is_prose)


def _live(lines: Iterable[str]) -> Iterator[str]:
    """Lines as they are shown while they may still change: a picture by what stands for it."""
    for line in lines:
        if isinstance(line, PictureLine):
            yield from line.preview or [str(line)]
        else:
            yield line


def _framed(
    frame: str,
    stream: StreamName,
    line: str,
    width: int,
    painter: Painter,
    *,
    is_prose: bool = False,
) -> list[str]:
    color = _COLORS[stream]
    if stream == "stderr":
        line = _fit_heading(line, width - len(frame))
    return framed(
        line,
        width,
        painter,
        first=frame,
        rest=frame,
        first_color=color or DIM,
        color=color,
        is_prose=is_prose,
    )


def _fit_heading(line: str, width: int) -> str:
    """Return the first lines of a traceback, which are made for 75 columns, for a few less."""
    missing = _HEADING_CHARS - width
    if len(line) != _HEADING_CHARS or not 0 < missing <= _MAX_MISSING:
        return line
    if line == "-" * _HEADING_CHARS:
        return line[missing:]
    name, gap, rest = line.partition(" " * (missing + 1))
    return f"{name} {rest}" if gap and line.endswith(_HEADING_END) else line
