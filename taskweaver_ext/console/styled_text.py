"""Text in several styles, broken between words into rows of cells.

Pure, and linear in the text. A run is a style (as in `ESC [ style m`, empty for none) and a text
without control characters; a newline in a run ends its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from taskweaver_ext.console.rows import cell_width, wrap
from taskweaver_ext.text import colors

Run: TypeAlias = tuple[str, str]

_WORDS = re.compile(r"\n| +|[^ \n]+")


def painted(runs: Iterable[Run], *, has_color: bool) -> str:
    """Join runs to one text, which closes the colours it opens."""
    return colors.paint(runs) if has_color else "".join(text for _, text in runs)


def width_of(runs: Iterable[Run]) -> int:
    """How many cells the runs take in one row."""
    return sum(cell_width(text) for _, text in runs)


def wrap_runs(runs: Iterable[Run], width: int, *, cuts_words: bool) -> list[list[Run]]:
    """Break runs into rows of at most `width` cells; at least one.

    Args:
        cuts_words: Whether a word that is wider is cut; else it has a row of its own, for a
            terminal to wrap, so that it is copied whole.
    """
    rows: list[list[Run]] = [[]]
    room = width
    space: list[Run] = []
    for word in _words(runs):
        if word[0][1] == "\n":
            rows.append([])
            room, space = width, []
        elif word[0][1].startswith(" "):
            space = word if rows[-1] else []
        else:
            taken = width_of(word) + width_of(space)
            if rows[-1] and taken > room:
                rows.append([])
                room, space, taken = width, [], width_of(word)
            if taken > room and cuts_words:
                *full, word = _cut(word, width)
                rows[-1:] = [*full, []]
                room, taken = width, width_of(word)
            rows[-1] += [*space, *word]
            room, space = room - taken, []
    return rows


def _words(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield words, spaces and newlines; a word may have several styles."""
    word: list[Run] = []
    for style, text in runs:
        for piece in _WORDS.findall(text):
            if piece[0] not in " \n":
                word.append((style, piece))
                continue
            if word:
                yield word
                word = []
            yield [(style, piece)]
    if word:
        yield word


def _cut(word: list[Run], width: int) -> list[list[Run]]:
    """Cut one word into rows."""
    rows: list[list[Run]] = [[]]
    room = width
    for style, text in word:
        while text:
            piece = wrap(text[: room + 1], room)[0] if room > 0 else ""
            if not piece or cell_width(piece) > room:
                if room < width:
                    rows.append([])
                    room = width
                    continue
                piece = text[0]  # wider than any row
            rows[-1].append((style, piece))
            room -= cell_width(piece)
            text = text[len(piece) :]
    return rows
