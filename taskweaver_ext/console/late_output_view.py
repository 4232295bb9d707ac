"""What code writes after its end, as rows under frames of their own.

Threads and background jobs outlive the code that started them. What they write then comes
while a prompt waits or other code runs; its frame looks different from theirs, and names
the execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.console.output_block import OutputBlock
from taskweaver_ext.console.rows import DIM, Painter, clip
from taskweaver_ext.conversation import PostId

FRAMES: Mapping[StreamName, str] = {"stdout": " ┊   ", "stderr": " ┊ ! "}
MAX_REMEMBERED = 100
"""How many executions are known by what they ran; older ones by their ids."""

TITLE_CELLS = 50

NewBlock: TypeAlias = Callable[[int, Mapping[StreamName, str]], OutputBlock]


class LateOutputView:
    """The late output of the executions of one session, as rows."""

    def __init__(self, painter: Painter, new_block: NewBlock) -> None:
        """Begin with nothing.

        Args:
            new_block: Makes a block for the output of numbered code, with its frames.
        """
        self._painter = painter
        self._new_block = new_block
        self._titles: dict[PostId, str] = {}
        self._numbers: dict[PostId, int] = {}
        self._blocks: dict[PostId, OutputBlock] = {}
        self._current: PostId | None = None

    def remember(self, post_id: PostId, title: str, number: int = 0) -> None:
        """Note what an execution that has ended was about, and the number of its code."""
        self._titles[post_id] = title
        self._numbers[post_id] = number
        while len(self._titles) > MAX_REMEMBERED:
            oldest = next(iter(self._titles))
            del self._titles[oldest], self._numbers[oldest]
            self._blocks.pop(oldest, None)

    def end_frame(self) -> None:
        """Something else is shown: the next late output begins with a new head."""
        self._current = None

    def rows(self, post_id: PostId, width: int, stream: StreamName, text: str) -> list[str]:
        """Take the next piece an execution wrote, and return the rows to be shown of it."""
        block = self._blocks.get(post_id)
        if block is None:
            number = self._numbers.get(post_id, 0)
            block = self._blocks[post_id] = self._new_block(number, FRAMES)
        block.width = width
        was_whole = not block.is_collapsed
        rows = block.feed(stream, text)
        # Nothing waits for its line's end, but bars, which have many states.
        if "\r" not in text or text.endswith("\n"):
            rows += block.break_line(stream)
        if was_whole and block.is_collapsed:
            how = f": /expand {block.number}" if block.number else ""
            notice = f"⋯ more lines come{how}"
            rows.append(self._painter.paint(FRAMES["stdout"] + notice, DIM))
        return [*self._head(post_id), *rows] if rows else []

    def _head(self, post_id: PostId) -> list[str]:
        if self._current == post_id:
            return []
        self._current = post_id
        title = clip(self._titles.get(post_id) or post_id, TITLE_CELLS)
        return [self._painter.paint(f" ╭╌╌╌< late output of {title} >", DIM)]
