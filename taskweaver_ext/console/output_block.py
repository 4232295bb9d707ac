"""What one execution wrote, as rows under the frame: finished ones, and those still changing.

The last lines stay open for a while: displays are updated and output is cleared there
(`open_items.py`). Of long output a preview stays: its first lines, how many are hidden, and its
last lines. So a flood costs the screen and memory next to nothing; `/expand` and `/find` read
what is hidden from the record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.console.long_lines import LongLine, LongLines, beginning_of
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

OWN_PREVIEW_LINES = 20
AGENT_PREVIEW_LINES = 10
"""How many lines of long output stay on the screen."""
MAX_LINE_CHARS = 4000
"""How much of a line a preview shows."""
MAX_DISPLAY_LINES = 40
MAX_WHOLE_DISPLAYS = 20
"""Tables and pictures are shown whole amid a preview: so many, of so many lines at most."""
OPEN_LINES = 12
"""How many lines of running code stay open on a terminal."""
TAIL_ROWS = 20
"""How much of the end is shown while code runs."""
PARTIAL_ROWS = 3
"""How much of a line that may still change is shown."""

_PIECE_CHARS = 8192
_LONGEST_LINE = 1 << 16
"""Longer lines come in pieces: they are not to be measured again and again."""
_HEADING_CHARS = 75
_HEADING_END = "Traceback (most recent call last)"
_MAX_MISSING = 20
FRAMES: Mapping[StreamName, str] = {"stdout": OUTPUT, "stderr": ERROR_OUTPUT}
_COLORS: dict[StreamName, str] = {"stdout": "", "stderr": RED}


class OutputBlock:
    """The output of one execution.

    `feed` returns rows that will not change any more; `live_rows` are those that may.
    """

    def __init__(
        self,
        width: int,
        painter: Painter,
        *,
        number: int = 0,
        preview_lines: int = NO_LIMIT,
        open_lines: int = 0,
        frames: Mapping[StreamName, str] = FRAMES,
        is_markdown: bool = False,
    ) -> None:
        """Begin without output.

        Args:
            number: Of the block of code, for `/expand`; 0 where that cannot be asked for.
            preview_lines: How many lines of longer output stay.
            open_lines: How many lines at the end can still be replaced or cleared.
            frames: What rows of each stream begin with.
            is_markdown: Whether standard output is drawn as Markdown.
        """
        self._is_markdown = is_markdown
        self.width = width
        self.number = number
        self._painter = painter
        self._frames = frames
        self._is_preview = preview_lines != NO_LIMIT
        self._lines_left = (preview_lines + 1) // 2
        self._last_lines = preview_lines // 2
        self._displays_left = MAX_WHOLE_DISPLAYS
        self._hidden_lines = 0
        """How many lines came after the first ones of a preview."""
        self._open = OpenItems(open_lines)
        self._is_clearing = False
        self._has_cleared = False
        self._tail: deque[tuple[StreamName, str]] = deque(maxlen=TAIL_ROWS)
        # A multiple of the width: pieces of one long line then join without a gap.
        content = max(4, width - len(OUTPUT))
        piece = _LONGEST_LINE if self._is_preview else _PIECE_CHARS
        self._line_chars = piece if width == NO_LIMIT else max(1, piece // content) * content
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
        item = Item("stdout", lines, display_id, is_display=True)
        rows = self._add(item) if lines else []
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
        rows += self._finish(self._open.add_lines(stream, self._long_lines[stream].close()))
        return rows + (self._end_markdown() if stream == "stdout" else [])

    def close(self) -> list[str]:
        """Return the last rows: lines that were never completed, and the end of what is hidden."""
        return [*self._break_lines(), *self.settle(), *self._end_preview()]

    def _end_preview(self) -> list[str]:
        """Return the notice of what is hidden, and the last lines of it."""
        # A notice in the place of one line would gain nothing.
        is_long = self._hidden_lines > self._last_lines + 1
        last = list(self._tail)[-(self._last_lines if is_long else self._last_lines + 1) :]
        rows = self._notice(self._hidden_lines - len(last))
        rows += [row for stream, line in last for row in self._previewed(stream, line)]
        self._hidden_lines = 0
        self._tail.clear()
        return rows

    @property
    def is_collapsed(self) -> bool:
        """Whether some lines are hidden."""
        return self._hidden_lines > 0

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
        if self._hidden_lines:
            room = height - len(rows) - 1
            notice = self._notice(self._hidden_lines - len(self._tail))
            rows = [*notice, *self._tail_rows(min(TAIL_ROWS, max(1, room))), *rows]
        return rows[-max(1, height) :]

    def _begin_lines(self) -> None:
        self._folders: dict[StreamName, LineFolder] = {
            stream: LineFolder(self._painter.has_color, max_line_chars=self._line_chars)
            for stream in ("stdout", "stderr")
        }
        self._long_lines: dict[StreamName, LongLines] = {
            stream: LongLines() for stream in self._folders
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
        elif self._is_preview:
            lines = self._long_lines[stream].feed(lines)
        return rows + self._finish(self._open.add_lines(stream, lines))

    def _end_markdown(self) -> list[str]:
        """Draw what waits for the end of its block."""
        drawn = self._markdown.close() if self._markdown is not None else []
        return self._finish(self._open.add_lines("stdout", drawn))

    def _finish(self, items: Iterable[Item]) -> list[str]:
        return [row for item in items for row in self._finished_rows(item)]

    def _finished_rows(self, item: Item) -> list[str]:
        rows: list[str] = []
        if item.is_display and len(item.lines) <= MAX_DISPLAY_LINES and self._displays_left > 0:
            self._displays_left -= self._lines_left <= 0
            self._lines_left -= len(item.lines)
            whole = [row for line in item.lines for row in self._framed(item.stream, line)]
            return self._end_preview() + whole
        for number, line in enumerate(item.lines):
            if self._lines_left <= 0:
                self._hidden_lines += len(item.lines) - number
                self._tail.extend((item.stream, rest) for rest in item.lines[number:][-TAIL_ROWS:])
                break
            self._lines_left -= 1
            rows += self._previewed(item.stream, line, is_prose=item.is_prose)
        return rows

    def _notice(self, hidden: int, unit: str = "lines") -> list[str]:
        if hidden <= 0:
            return []
        how = f": /expand {self.number}" if self.number else ""
        return [self._painter.paint(f"{OUTPUT}⋯ {hidden:,} more {unit}{how}", DIM)]

    def _tail_rows(self, limit: int) -> list[str]:
        rows: deque[str] = deque()
        for stream, line in reversed(self._tail):
            rows.extendleft(reversed(self._framed(stream, line)))
            if len(rows) >= limit:
                break
        return list(rows)[-limit:]

    def _previewed(self, stream: StreamName, line: str, *, is_prose: bool = False) -> list[str]:
        """The rows of a line, or of its beginning where it is very long."""
        is_long = len(line) > MAX_LINE_CHARS or isinstance(line, LongLine)
        if not (self._is_preview and is_long):
            return self._framed(stream, line, is_prose=is_prose)
        start, hidden = beginning_of(line, MAX_LINE_CHARS)
        return self._framed(stream, start) + self._notice(hidden, "characters")

    def _framed(self, stream: StreamName, line: str, *, is_prose: bool = False) -> list[str]:
        frame = self._frames[stream]
        if isinstance(line, PictureLine):
            return [PictureRow.of(self._painter.paint(frame, DIM), line.picture)]
        return framed_output(frame, stream, line, self.width, self._painter, is_prose=is_prose)


def _live(lines: Iterable[str]) -> Iterator[str]:
    """Lines as they are shown while they may still change: a picture by what stands for it."""
    for line in lines:
        if isinstance(line, PictureLine):
            yield from line.preview or [str(line)]
        else:
            yield line


def framed_output(
    frame: str,
    stream: StreamName,
    line: str,
    width: int,
    painter: Painter,
    *,
    is_prose: bool = False,
) -> list[str]:
    """Return the rows of one line that code wrote."""
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
