"""Tables as rows of a screen: aligned in cells, and fitted to the width.

Pure. A table of prose that is too wide has its widest columns wrapped, and where there is no room
even for that, its rows are told as lists; nothing of it is lost. A table of data loses its middle
columns instead, which is said, and long cells their ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from taskweaver_ext.console.rows import BOLD, DIM, cell_width
from taskweaver_ext.console.styled_text import Run, painted, width_of, wrap_runs

Alignment: TypeAlias = Literal["left", "right", "center"]
Cell: TypeAlias = Sequence[Run]

_GAP = "  "
_LEAST_PROSE = 8
"""A column of prose is not wrapped to fewer cells."""
_LEAST_DATA = 6
_MOST_DATA = 40
_NUMBER = re.compile(r"[+-]?[0-9][0-9,]{0,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,4})?%?")
_ELIDED: list[Run] = [("", "…")]


@dataclass(frozen=True, slots=True)
class Table:
    """A heading and rows, all of the same number of cells."""

    heading: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    alignments: Sequence[Alignment]


def draw_table(table: Table, width: int, *, has_color: bool, is_data: bool = False) -> list[str]:
    """Draw a table in rows of at most `width` cells, where that is possible at all."""
    if is_data:
        return _draw_data(_as_data(table), width, has_color=has_color)
    naturals = _widths(table)
    widths = _narrowed(naturals, width - len(_GAP) * (len(naturals) - 1))
    if widths is None:
        return _draw_as_lists(table, width, has_color=has_color)
    return _draw(table, widths, has_color=has_color)


def _as_data(table: Table) -> Table:
    """Numbers to the right; without a column that only says that others are missing."""
    columns = [[_said(cell) for cell in column] for column in zip(*table.rows, strict=True)] or [
        [] for _ in table.heading
    ]
    kept = [number for number, cells in enumerate(columns) if not cells or {*cells} - {"..."}]
    return Table(
        [table.heading[number] for number in kept],
        [[row[number] for number in kept] for row in table.rows],
        [
            "right" if _holds_numbers(columns[number]) else table.alignments[number]
            for number in kept
        ],
    )


def _said(cell: Cell) -> str:
    return "".join(text for _, text in cell).strip()


def _holds_numbers(cells: Sequence[str]) -> bool:
    """Whether most of a column are numbers; some may be missing, or stand for others."""
    return 2 * sum(_NUMBER.fullmatch(cell) is not None for cell in cells) > len(cells)


def _draw_data(table: Table, width: int, *, has_color: bool) -> list[str]:
    widths = [min(one, _MOST_DATA) for one in _widths(table)]
    shown = _columns_that_fit(widths, width)
    count = len(widths)
    if len(shown) == count:
        return _draw(_clipped(table, widths), widths, has_color=has_color)
    middle = (len(shown) + 1) // 2
    picked = [*shown[:middle], None, *shown[middle:]]
    fitted = Table(
        _pick(table.heading, picked),
        [_pick(row, picked) for row in table.rows],
        ["left" if one is None else table.alignments[one] for one in picked],
    )
    chosen = [1 if one is None else min(widths[one], max(_LEAST_DATA, width)) for one in picked]
    rows = _draw(_clipped(fitted, chosen), chosen, has_color=has_color)
    has_index = not _said(table.heading[0])
    note = f"… {len(shown) - has_index} of {count - has_index} columns are shown"
    return [*rows, painted([(DIM, note)], has_color=has_color)]


def _columns_that_fit(widths: list[int], width: int) -> list[int]:
    """The columns that are shown: from both ends, the first one always."""
    if sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
        return list(range(len(widths)))
    left: list[int] = [0]
    right: list[int] = []
    room = width - widths[0] - len(_GAP) - 1
    first, last = 1, len(widths) - 1
    while first <= last:
        takes_left = len(left) <= len(right)
        column = first if takes_left else last
        room -= widths[column] + len(_GAP)
        if room < 0:
            break
        (left if takes_left else right).append(column)
        first, last = (first + 1, last) if takes_left else (first, last - 1)
    return [*left, *reversed(right)]


def _pick(cells: Sequence[Cell], columns: Sequence[int | None]) -> list[Cell]:
    return [_ELIDED if one is None else cells[one] for one in columns]


def _clipped(table: Table, widths: Sequence[int]) -> Table:
    def clip_all(cells: Sequence[Cell]) -> list[Cell]:
        return [_clip(cell, width) for cell, width in zip(cells, widths, strict=True)]

    return Table(clip_all(table.heading), [clip_all(row) for row in table.rows], table.alignments)


def _clip(cell: Cell, width: int) -> Cell:
    flat = [(style, text.replace("\n", " ")) for style, text in cell]
    if width_of(flat) <= width:
        return flat
    return [*wrap_runs(flat, max(1, width - 1), cuts_words=True)[0], ("", "…")]


def _widths(table: Table) -> list[int]:
    """How wide each column is without being wrapped."""
    columns = zip(table.heading, *table.rows, strict=True)
    return [max(1, *(_cell_width(cell) for cell in column), 1) for column in columns]


def _cell_width(cell: Cell) -> int:
    if any("\n" in text for _, text in cell):
        return max(cell_width(line) for line in "".join(text for _, text in cell).split("\n"))
    return width_of(cell)


def _narrowed(widths: list[int], room: int) -> list[int] | None:
    """Widths that fit, the widest columns made narrower first; None when none do."""
    least = [min(one, _LEAST_PROSE) for one in widths]
    if sum(least) > room:
        return None
    low, high = 1, max(widths)
    while low < high:  # the widest that a column may be
        limit = (low + high + 1) // 2
        fits = sum(max(a, min(b, limit)) for a, b in zip(least, widths, strict=True)) <= room
        low, high = (limit, high) if fits else (low, limit - 1)
    return [max(a, min(b, low)) for a, b in zip(least, widths, strict=True)]


def _draw(table: Table, widths: Sequence[int], *, has_color: bool) -> list[str]:
    heading = [[(style or BOLD, text) for style, text in cell] for cell in table.heading]
    rule = painted([(DIM, _GAP.join("─" * width for width in widths))], has_color=has_color)
    rows = [*_draw_row(heading, table.alignments, widths, has_color=has_color), rule]
    for cells in table.rows:
        rows += _draw_row(cells, table.alignments, widths, has_color=has_color)
    return rows


def _draw_row(
    cells: Sequence[Cell],
    alignments: Sequence[Alignment],
    widths: Sequence[int],
    *,
    has_color: bool,
) -> list[str]:
    columns = [
        wrap_runs(cell, width, cuts_words=True) for cell, width in zip(cells, widths, strict=True)
    ]
    rows = []
    for number in range(max(map(len, columns), default=0)):
        parts = []
        for lines, width, alignment in zip(columns, widths, alignments, strict=True):
            line = lines[number] if number < len(lines) else []
            parts.append(_aligned(line, width, alignment, has_color=has_color))
        rows.append(_GAP.join(parts).rstrip())
    return rows


def _aligned(line: Cell, width: int, alignment: Alignment, *, has_color: bool) -> str:
    free = max(0, width - width_of(line))
    before = {"left": 0, "right": free, "center": free // 2}[alignment]
    return " " * before + painted(line, has_color=has_color) + " " * (free - before)


def _draw_as_lists(table: Table, width: int, *, has_color: bool) -> list[str]:
    rows: list[str] = []
    for cells in table.rows:
        rows += [""] if rows else []
        for name, cell in zip(table.heading, cells, strict=True):
            named: list[Run] = [*((BOLD, text) for _, text in name), ("", ": "), *cell]
            rows += [
                painted(line, has_color=has_color)
                for line in wrap_runs(named, width, cuts_words=True)
            ]
    return rows or [
        painted(line, has_color=has_color)
        for name in table.heading
        for line in wrap_runs(name, width, cuts_words=True)
    ]
