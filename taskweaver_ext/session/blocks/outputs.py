"""Collect what one cell wrote and showed: the beginning and the end of much, in bounded memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from itertools import chain, groupby

from taskweaver_ext.ces.execution.events import DisplayUpdated
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.session.blocks.types import (
    ArtifactOutput,
    DisplayOutput,
    LeftOut,
    LogOutput,
    Output,
    QuestionOutput,
    TextOutput,
)
from taskweaver_ext.text.terminal import LineFolder
from taskweaver_ext.text.truncation import shorten_middle

MAX_OUTPUT_CHARS = 200_000
"""How much of a cell's output is kept: half of it from the beginning, half from the end."""

_DISPLAY_WEIGHT = 2_000
"""What a display, of any size, counts as: about a hundred of them are kept."""
_ITEM_WEIGHT = 50
"""What each piece counts as besides its text, so that a million tiny ones are bounded too."""
_MAX_LOG_CHARS = 20_000


class OutputCollector:
    """Takes the outputs of one cell in order, and keeps a bounded part of them."""

    def __init__(self, execution_id: ExecutionId, max_chars: int = MAX_OUTPUT_CHARS) -> None:
        self._execution_id = execution_id
        self._max_side = max_chars // 2
        self._run: TextOutput | None = None
        """The stream that is being written; its text is in the folder until lines are final."""
        self._folder = LineFolder()
        self._clears_next = False
        self._displays: dict[str, list[DisplayOutput]] = {}
        self._forget()

    def write(self, stream: StreamName, text: str, *, is_late: bool = False) -> None:
        """Take what was written next."""
        self._clear_if_due()
        if self._run is None or (self._run.stream, self._run.is_late) != (stream, is_late):
            self._end_run()
            self._run = TextOutput(stream=stream, text="", is_late=is_late)
        if lines := self._folder.feed(text):
            self._put_text("\n".join(lines) + "\n")

    def add(self, output: DisplayOutput | LogOutput | ArtifactOutput | QuestionOutput) -> None:
        """Take something that is no text of a stream."""
        self._clear_if_due()
        self._end_run()
        if isinstance(output, LogOutput) and len(output.message) > _MAX_LOG_CHARS:
            message = shorten_middle(output.message, _MAX_LOG_CHARS)
            output = LogOutput(level=output.level, tag=output.tag, message=message)
        if isinstance(output, DisplayOutput) and output.display_id:
            self._displays.setdefault(output.display_id, []).append(output)
        self._put(output)

    def extend(self, outputs: Iterable[Output]) -> None:
        """Take outputs that were collected elsewhere."""
        self._end_run()
        for output in outputs:
            self._put(output)

    def update(self, event: DisplayUpdated, seq: int) -> None:
        """Let the displays of that id show something else, unless they were changed later."""
        for display in self._displays.get(event.display_id, ()):
            if display.seq <= seq:
                display.bundle, display.metadata = event.bundle, event.metadata
                display.files, display.seq = event.files, seq

    @property
    def display_ids(self) -> list[str]:
        """The ids under which displays can be changed later."""
        return list(self._displays)

    def clear(self, *, wait: bool) -> None:
        """Take away what was written and shown so far, or once something follows."""
        self._clears_next = True
        if not wait:
            self._clear_if_due()

    def outputs(self) -> list[Output]:
        """What is kept, in order; adjoining texts of one stream are one."""
        self._end_run()
        kept: list[Output] = []
        for run, group in groupby(chain(self._head, self._middle(), self._tail), _run_of):
            if run is None:
                kept += group
            else:
                text = "".join(output.text for output in group if isinstance(output, TextOutput))
                kept.append(TextOutput(stream=run[0], text=text, is_late=run[1]))
        return kept

    def _forget(self) -> None:
        self._head: list[Output] = []
        self._head_weight = 0
        self._tail: deque[Output] = deque()
        self._tail_weight = 0
        self._lost: Counter[str] = Counter()
        self._lost_streams: set[StreamName] = set()

    def _clear_if_due(self) -> None:
        if not self._clears_next:
            return
        self._clears_next = False
        self._end_run()
        lasting = [
            output
            for output in chain(self._head, self._tail)
            if isinstance(output, LogOutput | ArtifactOutput | QuestionOutput)
        ]
        self._displays.clear()
        self._forget()
        for output in lasting:
            self._put(output)

    def _end_run(self) -> None:
        if self._run is not None:
            complete, last = self._folder.end()
            self._put_text("".join(f"{line}\n" for line in complete) + last)
            self._run, self._folder = None, LineFolder()

    def _put_text(self, text: str) -> None:
        if text and self._run is not None:
            stream, is_late = self._run.stream, self._run.is_late
            self._put(TextOutput(stream=stream, text=text, is_late=is_late))

    def _put(self, output: Output) -> None:
        room = self._max_side - self._head_weight
        if not self._tail and room > 0:
            if isinstance(output, TextOutput) and _weight(output) > room:
                output, rest = _divided(output, room)
                self._put_in_tail(rest)
                self._head_weight = self._max_side
            self._head_weight += _weight(output)
            self._head.append(output)
        else:
            self._put_in_tail(output)

    def _put_in_tail(self, output: Output) -> None:
        if isinstance(output, TextOutput) and len(output.text) > self._max_side:
            start, output = _divided(output, len(output.text) - self._max_side)
            self._lose(start)
        self._tail.append(output)
        self._tail_weight += _weight(output)
        while self._tail_weight > self._max_side and len(self._tail) > 1:
            oldest = self._tail.popleft()
            self._tail_weight -= _weight(oldest)
            self._lose(oldest)

    def _lose(self, output: Output) -> None:
        if isinstance(output, TextOutput):
            self._lost["characters"] += len(output.text)
            self._lost["lines"] += output.text.count("\n")
            self._lost_streams.add(output.stream)
        else:
            self._lost["others"] += 1

    def _middle(self) -> list[Output]:
        if not self._lost:
            return []
        return [
            LeftOut(
                characters=self._lost["characters"],
                lines=self._lost["lines"],
                others=self._lost["others"],
                paths={
                    stream: f"ces/output/{self._execution_id}.{stream}"
                    for stream in sorted(self._lost_streams)
                },
            )
        ]


def _weight(output: Output) -> int:
    match output:
        case TextOutput(text=text) | LogOutput(message=text):
            return len(text) + _ITEM_WEIGHT
        case DisplayOutput() | ArtifactOutput():
            return _DISPLAY_WEIGHT
        case _:
            return _ITEM_WEIGHT


def _divided(output: TextOutput, limit: int) -> tuple[TextOutput, TextOutput]:
    """Cut a text in two at about `limit` characters, between lines where one ends near."""
    text = output.text
    line_end = text.rfind("\n", limit // 2, limit) + 1
    cut = line_end or limit
    stream, is_late = output.stream, output.is_late
    return (
        TextOutput(stream=stream, text=text[:cut], is_late=is_late),
        TextOutput(stream=stream, text=text[cut:], is_late=is_late),
    )


def _run_of(output: Output) -> tuple[StreamName, bool] | None:
    """What texts have in common that belong together."""
    return (output.stream, output.is_late) if isinstance(output, TextOutput) else None
