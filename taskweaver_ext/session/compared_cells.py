"""Compare what came of a cell in two runs: how it ended, what it wrote, showed and saved."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, TypeAlias

from taskweaver_ext.ces.execution.files_beneath import open_beneath
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.session.blocks.types import (
    ArtifactOutput,
    Cell,
    DisplayOutput,
    LeftOut,
    LogOutput,
    TextOutput,
)
from taskweaver_ext.text.volatile import TextComparison, compare_texts

Compared: TypeAlias = Literal[
    "status", "stdout", "stderr", "value", "display", "picture", "error", "log", "files"
]

STOPPED = ("cancelled", "timeout")
"""How code ended that was stopped at a moment that nobody can meet again."""

_MAX_DIFF_LINES = 12
_MAX_LINE_CHARS = 300
_MAX_RECORD_LINE = 1 << 16
_MAX_RECORD_BYTES = 1 << 30
_NOTHING = "(nothing)"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as it was."""

    what: Compared
    then: str
    now: str

    def lines(self) -> list[str]:
        """A short diff: from the first line that differs on, what was and what is."""
        then, now = self.then.splitlines(), self.now.splitlines()
        pairs = itertools.zip_longest(then, now)
        first = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
        return [*_marked("-", then[first:]), *_marked("+", now[first:])]


@dataclass(slots=True)
class CellComparison:
    """How a cell of then compares with its replay."""

    differences: list[Difference] = field(default_factory=list)
    put_aside: Counter[str] = field(default_factory=Counter)
    """What differs and was not to be compared: times, addresses and so on, by kind."""
    notes: list[str] = field(default_factory=list)
    """What could not be compared, a sentence each."""


@dataclass(frozen=True, slots=True)
class RunOfCell:
    """A cell, with the folder of its session and the one in which it ran."""

    cell: Cell
    folder: Path
    cwd: Path

    def stable(self, text: str) -> str:
        """A text without the names that belong to this run alone."""
        for name, word in (
            (str(self.cwd), "<folder>"),
            (str(self.folder), "<session>"),
            (self.cell.execution_id, "<execution>"),
        ):
            text = text.replace(name, word)
        return text

    def text_of(self, stream: StreamName) -> str:
        """What the code wrote to a stream until it ended."""
        return "".join(
            output.text
            for output in self.cell.outputs
            if isinstance(output, TextOutput) and output.stream == stream and not output.is_late
        )

    def displays(self, *, are_results: bool) -> list[DisplayOutput]:
        """What the code displayed, or the value of its last expression."""
        return [
            output
            for output in self.cell.outputs
            if isinstance(output, DisplayOutput) and output.is_result == are_results
        ]

    def open(self, path: str) -> io.BufferedReader:
        """Open a file of the session; raises OSError."""
        return open(open_beneath(self.folder, path), "rb")


def compare_runs(then: RunOfCell, now: RunOfCell) -> CellComparison:
    """Compare two runs of one cell."""
    return _Comparer(then, now).compare()


class _Comparer:
    """Collects what differs between two runs."""

    def __init__(self, then: RunOfCell, now: RunOfCell) -> None:
        self._then = then
        self._now = now
        self._found = CellComparison()

    def compare(self) -> CellComparison:
        then, now = self._then.cell, self._now.cell
        if then.status in STOPPED:
            self._found.notes.append(
                f"it was stopped then ({then.status}), so what it wrote is not compared"
            )
            return self._found
        self._texts("status", _status(then), _status(now))
        for stream in ("stdout", "stderr"):
            self._stream(stream)
        for are_results in (False, True):
            self._displays(are_results=are_results)
        self._texts("error", then.error, now.error)
        self._texts("log", _logs(then), _logs(now))
        self._texts("files", _files(then), _files(now))
        if any(isinstance(one, TextOutput) and one.is_late for one in then.outputs + now.outputs):
            self._found.notes.append("what came after its end is not compared")
        return self._found

    def _texts(self, what: Compared, then: str, now: str) -> None:
        self._add(what, self._compared(then, now))

    def _compared(self, then: str, now: str) -> TextComparison:
        return compare_texts(
            self._then.stable(then),
            self._now.stable(now),
            then_at=self._then.cell.at,
            now_at=self._now.cell.at,
        )

    def _add(self, what: Compared, compared: TextComparison) -> None:
        self._found.put_aside += compared.put_aside
        if not compared.is_same:
            self._found.differences.append(Difference(what, compared.then, compared.now))

    def _stream(self, stream: StreamName) -> None:
        records = [_record(run.cell, stream) for run in (self._then, self._now)]
        if not any(records):
            self._texts(stream, self._then.text_of(stream), self._now.text_of(stream))
            return
        name = f"ces/output/{{}}.{stream}"
        try:
            with (
                self._then.open(name.format(self._then.cell.execution_id)) as then,
                self._now.open(name.format(self._now.cell.execution_id)) as now,
            ):
                self._records(stream, then, now)
        except OSError as error:
            self._found.notes.append(f"all of its {stream} cannot be compared: {error.strerror}")
            self._texts(stream, self._then.text_of(stream), self._now.text_of(stream))

    def _records(self, stream: StreamName, then: IO[bytes], now: IO[bytes]) -> None:
        """Compare what is too long for memory, line by line, up to the first difference."""
        pairs = itertools.zip_longest(_lines(then), _lines(now))
        for number, (one, other) in enumerate(pairs, 1):
            compared = self._compared(one or "", other or "")
            self._found.put_aside += compared.put_aside
            if (one is None) != (other is None) or not compared.is_same:
                texts = [
                    f"line {number:,}: {text}" if line is not None else f"no line {number:,}"
                    for line, text in ((one, compared.then), (other, compared.now))
                ]
                self._found.differences.append(Difference(stream, *texts))
                return
        if then.tell() >= _MAX_RECORD_BYTES:
            self._found.notes.append(f"its {stream} is compared in the first 1 GiB alone")

    def _displays(self, *, are_results: bool) -> None:
        what: Compared = "value" if are_results else "display"
        pairs = itertools.zip_longest(
            self._then.displays(are_results=are_results),
            self._now.displays(are_results=are_results),
        )
        for one, other in pairs:
            self._texts(what, _shown(one, self._then), _shown(other, self._now))
            self._texts("picture", _pictures(one, self._then), _pictures(other, self._now))


def _marked(mark: str, lines: list[str]) -> list[str]:
    shown = [f"{mark} {line[:_MAX_LINE_CHARS]}" for line in lines[:_MAX_DIFF_LINES]]
    more = len(lines) - _MAX_DIFF_LINES
    return shown + ([f"{mark} ... {more:,} more lines"] if more > 0 else [])


def _status(cell: Cell) -> str:
    code = f", exit code {cell.exit_code}" if cell.exit_code else ""
    return f"{cell.status}{code}"


def _logs(cell: Cell) -> str:
    logs = (output for output in cell.outputs if isinstance(output, LogOutput))
    return "\n".join(f"[{log.level}] {log.tag}: {log.message}" for log in logs)


def _files(cell: Cell) -> str:
    """The names of the files that the code announced; pictures are compared as such."""
    artifacts = (one.artifact for one in cell.outputs if isinstance(one, ArtifactOutput))
    return "\n".join(f"{one.type} {one.original_name}" for one in artifacts)


def _record(cell: Cell, stream: StreamName) -> str | None:
    """Where the whole text of a stream is, if the cell does not have it."""
    paths = (output.paths for output in cell.outputs if isinstance(output, LeftOut))
    return next((found[stream] for found in paths if stream in found), None)


def _lines(file: IO[bytes]) -> Iterator[str]:
    while file.tell() < _MAX_RECORD_BYTES and (line := file.readline(_MAX_RECORD_LINE)):
        yield line.decode("utf-8", "replace")


def _shown(display: DisplayOutput | None, run: RunOfCell) -> str:
    """What a display says as text, or the digests of what it consists of."""
    if display is None:
        return _NOTHING
    text = display.bundle.get("text/plain")
    if isinstance(text, str):
        return text
    kinds = sorted({*display.bundle, *display.files})
    return "\n".join(
        f"{kind} {_digest(display, kind, run)}" for kind in kinds if not _is_picture(kind)
    )


def _pictures(display: DisplayOutput | None, run: RunOfCell) -> str:
    kinds = sorted({*display.bundle, *display.files}) if display is not None else []
    return "\n".join(f"{kind} {_digest(display, kind, run)}" for kind in kinds if _is_picture(kind))


def _is_picture(kind: str) -> bool:
    return kind.startswith("image/")


def _digest(display: DisplayOutput | None, kind: str, run: RunOfCell) -> str:
    assert display is not None
    if kind in display.files:
        try:
            with run.open(display.files[kind]) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except OSError as error:
            return f"(its file cannot be read: {error.strerror})"
    value = display.bundle[kind]
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    content = text.encode("utf-8", "surrogatepass")
    if _is_picture(kind):
        with contextlib.suppress(binascii.Error, ValueError):  # SVG is text
            content = base64.b64decode("".join(text.split()), validate=True)
    return hashlib.sha256(content).hexdigest()[:16]
