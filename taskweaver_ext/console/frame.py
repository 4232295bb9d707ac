"""The frame around what one role shows: rows that are final, and the one thing that still grows.

Pure. One thing grows at a time; when another begins, the one before is finished.
"""

from __future__ import annotations

from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.console.output_block import OutputBlock
from taskweaver_ext.console.rows import BOLD, CYAN, DIM, END, ITEM, TOP, Painter
from taskweaver_ext.console.text_block import TextBlock
from taskweaver_ext.conversation import AttachmentId
from taskweaver_ext.text.terminal import message_text


class Frame:
    """What has been drawn of one post; `rows` collects what will not change any more."""

    def __init__(self, title: str, width: int, painter: Painter) -> None:
        """Begin with nothing drawn.

        Args:
            title: Stands above all else; empty for a frame that its first row begins.
        """
        self.rows: list[str] = []
        self.width = width
        self.painter = painter
        self.is_begun = False
        """Whether it has any rows, and no end yet."""
        self._title = title
        self._open: TextBlock | OutputBlock | None = None
        self._open_key: AttachmentId | ExecutionId | str = ""

    @property
    def has_open(self) -> bool:
        """Whether something grows in it."""
        return self._open is not None

    def resize(self, width: int) -> None:
        """Take another width from now on."""
        self.width = width
        if self._open is not None:
            self._open.width = width

    def begin(self) -> None:
        """Draw the title, if there is one and it is not there yet."""
        is_new, self.is_begun = not self.is_begun, True
        if is_new and self._title:
            title = self.painter.paint(message_text(self._title), BOLD)
            head, tail = (self.painter.paint(part, DIM) for part in (" ╭───< ", " >"))
            self.rows.append(f"{head}{title}{tail}")

    def begin_text(
        self, key: AttachmentId | str, label: str, *, color: str = "", language: str = ""
    ) -> None:
        """Let a labelled text grow from now on, which `key` names."""
        mark = ITEM if self.is_begun or self._title else TOP
        self.begin()
        self.finish_open()
        self._open_key = key
        self._open = TextBlock(
            message_text(label),
            self.width,
            self.painter,
            color=color,
            language=language,
            mark=mark,
        )

    def is_growing(self, key: AttachmentId | str) -> bool:
        """Whether the text that `key` names grows."""
        return isinstance(self._open, TextBlock) and self._open_key == key

    def feed(self, text: str) -> None:
        """Add to the text that grows."""
        if isinstance(self._open, TextBlock):
            self.rows += self._open.feed(text)

    def item(self, label: str, text: str, *, color: str = "") -> None:
        """Draw a complete labelled text."""
        self.begin_text("", label, color=color)
        self.feed(text)
        self.finish_open()

    def note(self, text: str, color: str = "") -> None:
        """Draw a line of its own."""
        self.finish_open()
        mark = ITEM if self.is_begun or self._title else TOP
        self.begin()
        self.rows.append(self.painter.paint(mark, CYAN) + self.painter.paint(text, color))

    def output_of(self, execution_id: ExecutionId) -> OutputBlock | None:
        """The output that grows, if it is that execution's."""
        is_same = isinstance(self._open, OutputBlock) and self._open_key == execution_id
        return self._open if is_same and isinstance(self._open, OutputBlock) else None

    def begin_output(self, execution_id: ExecutionId, block: OutputBlock) -> None:
        """Let the output of an execution grow from now on."""
        self.begin()
        self.finish_open()
        self._open, self._open_key = block, execution_id

    def clear_output(self, *, wait: bool) -> None:
        """Take away what has not become final of the output that grows."""
        if isinstance(self._open, OutputBlock):
            self._open.clear(wait=wait)

    def settle(self) -> None:
        """Let what is complete be final."""
        if isinstance(self._open, OutputBlock):
            self.rows += self._open.settle()

    def finish_open(self) -> None:
        """Let what grows be complete."""
        if self._open is not None:
            self.rows += self._open.close()
        self._open = None
        self._open_key = ""

    def end(self, text: str = "", color: str = DIM) -> None:
        """Draw the last row."""
        self.finish_open()
        self.begin()
        row = self.painter.paint(END, DIM) + self.painter.paint(message_text(text), color)
        self.rows.append(row if text else self.painter.paint(END.rstrip(), DIM))
        self.is_begun = False

    def live_rows(self, height: int) -> list[str]:
        """What may still change, in at most `height` rows."""
        match self._open:
            case TextBlock():
                return self._open.live_rows()[-height:]
            case OutputBlock():
                return self._open.live_rows(height)
            case None:
                return []
