"""Texts that grow: thoughts, plans, code."""

from __future__ import annotations

import pytest

from taskweaver_ext.console.rows import Painter
from taskweaver_ext.console.text_block import TextBlock

PLAIN = Painter(has_color=False)


def grown(block: TextBlock, text: str, size: int) -> list[str]:
    rows: list[str] = []
    for start in range(0, len(text), size):
        rows += block.feed(text[start : start + size])
    return [*rows, *block.close()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("language", "text", "rows"),
    [
        ("", "one", [" ├─► [x] one"]),
        ("", "one\ntwo", [" ├─► [x] one", " │   two"]),
        ("", "\n\none\n\n\ntwo\n\n", [" ├─► [x] one", " │", " │", " │   two"]),
        ("", "", [" ├─► [x]"]),
        ("python", "print(1)", [" ├─► [x] print(1)"]),
        ("python", "print(1)\n\n", [" ├─► [x] print(1)"]),
        ("python", "if a:\n    b", [" ├─► [x]", " │   if a:", " │       b"]),
        ("python", "a\n\nb\n", [" ├─► [x]", " │   a", " │", " │   b"]),
    ],
)
def test_it_looks_the_same_however_it_arrives(
    language: str, text: str, rows: list[str], size: int
) -> None:
    assert grown(TextBlock("x", 60, PLAIN, language=language), text, size) == rows


def test_code_grows_line_by_line() -> None:
    block = TextBlock("code", 60, PLAIN, language="python")

    assert block.feed("import ti") == []
    assert block.live_rows() == [" ├─► [code] import ti"]
    assert block.feed("me\nfor") == [" ├─► [code]", " │   import time"]
    assert block.live_rows() == [" │   for"]


def test_control_characters_of_a_model_do_not_reach_the_screen() -> None:
    block = TextBlock("thought", 60, PLAIN)

    assert grown(block, "a\x1b[2Jb\x1b]52;c;eA==\x07\x1b[31mc\x9b3A", 2) == [" ├─► [thought] abc"]
