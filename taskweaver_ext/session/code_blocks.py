"""The numbered code blocks of a session: their code, how they stand, and all that they wrote.

Nothing of them is held in memory: it is read from the session's events when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from taskweaver_ext.conversation import PostId
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.extras import CodeBlockExtra, LateOutputExtra
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import PostEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.session.blocks import BlockNumbers, Cell, CellStatus, fold_blocks, numbered
from taskweaver_ext.session.blocks.lines import (
    OutputLine,
    OutputLines,
    is_cleared_by,
    output_lines,
)
from taskweaver_ext.text.terminal import CutLine

MAX_FOUND = 50
"""How many lines a search returns; of the others it says how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """One block of code, as it stands now."""

    number: int
    language: str
    code: str
    by: Literal["person", "agent"]
    status: CellStatus
    post_id: PostId
    is_proposed: bool = False
    """Whether it stands in the text of an answer, where nothing runs by itself."""
    repeats: int | None = None
    """The number of the block that a person ran again with it."""
    duration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line of output that holds what was searched for."""

    number: int
    """Of the code block."""
    line: int
    """Of the block's output, from 1."""
    text: str


class _SearchedBlock:
    """The output of one block while it is searched."""

    def __init__(self, number: int, text: str, max_found: int) -> None:
        self.found: list[FoundLine] = []
        self.more = 0
        self._number = number
        self._has_capitals = text != text.lower()
        self._text = text
        self._max_found = max_found
        self._output = OutputLines()
        self._line = 0
        self._found_in = 0
        """The last line that was found."""
        self._goes_on = False
        """Whether the next line is another piece of the one before."""

    def receive(self, event: TaskWeaverEvent) -> None:
        """Search the lines that an event completes."""
        if is_cleared_by(event):
            self.found, self.more, self._line = [], 0, 0
            self._found_in, self._goes_on = 0, False
        lines = self._output.feed(event)
        if event.t is PostEventType.post_end:
            lines += self._output.close()
        for line in lines:
            self._line += not self._goes_on
            self._goes_on = isinstance(line.text, CutLine)
            if self._line == self._found_in:
                continue  # another piece of a line that was found
            if self._text not in (line.text if self._has_capitals else line.text.lower()):
                continue
            self._found_in = self._line
            if len(self.found) < self._max_found:
                self.found.append(FoundLine(self._number, self._line, line.text))
            else:
                self.more += 1


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the events of a block are."""

    told: TaskWeaverEvent
    """The event that tells its number."""
    after: int
    """The number of the event before it."""
    is_in_journal: bool
    """Whether the journal has its events; else they are looked for everywhere."""

    @property
    def extra(self) -> CodeBlockExtra:
        return cast(CodeBlockExtra, self.told.extra)


class CodeBlocks:
    """What a session knows of its code blocks; for any thread, at any time."""

    def __init__(
        self, folder: Path, numbers: BlockNumbers, read: Callable[[], Iterable[TaskWeaverEvent]]
    ) -> None:
        """Look at a session.

        Args:
            folder: Where its journal is.
            numbers: What gives blocks their numbers.
            read: Returns its events from the first on, anew each time; asked where the journal
                does not say where a block is.
        """
        self._folder = folder
        self._numbers = numbers
        self._read = read

    @property
    def last_number(self) -> int:
        """The number of the newest block, 0 before the first."""
        return self._numbers.count

    def number_of(self, post_id: str) -> int | None:
        """The number of the code that a post of the current round runs, or wants to run.

        An execution has the id of its post.
        """
        return self._numbers.number_of(PostId(post_id))

    def numbers(self) -> dict[PostId, int]:
        """The number of each block that runs or was to run, by its post."""
        found: dict[PostId, int] = {}
        for event in self._told_numbers():
            told = cast(CodeBlockExtra, event.extra)
            if not told["part"]:
                found[cast(PostId, event.post_id)] = told["number"]
        return found

    def get(self, number: int | None = None) -> CodeBlock:
        """Return a block with its code; without a number, the last.

        Raises:
            SessionError: There is no such block, or it is no longer kept.
        """
        place = self._find(number)
        told = place.extra
        post_id = cast(PostId, place.told.post_id)
        if told["part"]:
            return CodeBlock(
                number=told["number"],
                language=told["language"],
                code=place.told.msg,
                by=told["by"],
                status="not_run",
                post_id=post_id,
                is_proposed=True,
            )
        with closing(self._events_of(place, with_output=False)) as events:
            cell = next((one for one in fold_blocks(events) if isinstance(one, Cell)), None)
        if cell is None:
            raise SessionError(f"The code of block {told['number']} was taken back.")
        return CodeBlock(
            number=cell.number,
            language=cell.language,
            code=cell.code,
            by=cell.by,
            status=cell.status,
            post_id=post_id,
            repeats=cell.repeats,
            duration_seconds=cell.duration_seconds,
        )

    def lines(
        self, number: int | None = None, *, keep_colors: bool = False
    ) -> Iterator[OutputLine]:
        """Give all that a block has written and shown, also after its end.

        Raises:
            SessionError: There is no such block, or it is no longer kept.
        """
        place = self._find(number)
        cleared = 0
        with closing(self._events_of(place, with_output=False)) as events:
            for event in events:
                cleared = event.seq if is_cleared_by(event) else cleared
        with closing(self._events_of(place, with_output=True)) as events:
            kept = (event for event in events if event.seq > cleared)
            yield from output_lines(kept, keep_colors=keep_colors)
        yield from output_lines(self._late_output(place), keep_colors=keep_colors)

    def find(
        self,
        text: str,
        number: int | None = None,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        max_found: int = MAX_FOUND,
    ) -> tuple[list[FoundLine], int]:
        """Search what code has written, all of it; return lines, and how many more there are.

        Args:
            text: Capitals in it count; a text without any is found in all its forms.
            number: Of the block that is searched; None: all of them.
            is_stopped: Asked again and again; once it says so, what was found so far is returned.

        Raises:
            SessionError: There is no such block.
        """
        if number is not None:
            self._find(number)
        searched: dict[PostId, _SearchedBlock] = {}
        for event in numbered(self._read()):
            if is_stopped():
                break
            if event.t is PostEventType.post_code_block:
                told = cast(CodeBlockExtra, event.extra)
                if not told["part"] and number in (None, told["number"]):
                    new = _SearchedBlock(told["number"], text, max_found)
                    searched[cast(PostId, event.post_id)] = new
            elif one := searched.get(_execution_of(event)):
                one.receive(event)
        found = [line for one in searched.values() for line in one.found]
        more = sum(one.more for one in searched.values())
        return found[:max_found], more + len(found[max_found:])

    def _told_numbers(self) -> Iterator[TaskWeaverEvent]:
        try:
            with JournalReader(self._folder) as reader:
                yield from reader.events_of(PostEventType.post_code_block)
        except SessionError:
            events = numbered(self._read())
            yield from (one for one in events if one.t is PostEventType.post_code_block)

    def _find(self, number: int | None) -> _Place:
        last = self.last_number
        if not last:
            raise SessionError("There is no code in this session yet.")
        wanted = last if number is None else number
        place = None
        if 0 < wanted <= last:
            place = self._place_in_journal(wanted) or self._place_in_events(wanted)
        if place is None:
            raise SessionError(
                f"There is no block {wanted} in this session; "
                + (f"they are numbered 1 to {last}." if last > 1 else "the only one is 1.")
            )
        return place

    def _place_in_journal(self, number: int) -> _Place | None:
        try:
            with JournalReader(self._folder) as reader:
                for told in reader.events_of(PostEventType.post_code_block):
                    if cast(CodeBlockExtra, told.extra)["number"] == number:
                        return _Place(told, told.seq - 1, is_in_journal=True)
        except SessionError:
            pass  # it may be in memory
        return None

    def _place_in_events(self, number: int) -> _Place | None:
        """Look at every event: earlier versions told no numbers, and a full disk keeps none."""
        seq = 0
        for event in numbered(self._read()):
            is_number = event.t is PostEventType.post_code_block
            if is_number and cast(CodeBlockExtra, event.extra)["number"] == number:
                return _Place(event, seq, is_in_journal=False)
            seq = event.seq or seq
        return None

    def _events_of(self, place: _Place, *, with_output: bool) -> Generator[TaskWeaverEvent]:
        """Give the events of a block's post, from its number to its end."""
        yield place.told
        for event in self._events_after(place, with_output=with_output):
            if event.post_id == place.told.post_id and event.seq != place.told.seq:
                yield event
                if event.t is PostEventType.post_end:
                    return

    def _events_after(self, place: _Place, *, with_output: bool) -> Generator[TaskWeaverEvent]:
        if place.is_in_journal:
            with JournalReader(self._folder) as reader:
                yield from reader.events(place.after, with_output=with_output)
        else:
            yield from (event for event in self._read() if event.seq > place.after)

    def _late_output(self, place: _Place) -> Generator[TaskWeaverEvent]:
        kind = SessionEventType.session_late_output
        if place.is_in_journal:
            with JournalReader(self._folder) as reader:
                events = reader.events_of(kind)
                yield from (one for one in events if _execution_of(one) == place.told.post_id)
        else:
            for one in self._events_after(place, with_output=True):
                if one.t is kind and _execution_of(one) == place.told.post_id:
                    yield one


def _execution_of(event: TaskWeaverEvent) -> PostId:
    if event.t is SessionEventType.session_late_output:
        return PostId(cast(LateOutputExtra, event.extra)["execution_id"])
    return event.post_id or PostId("")
