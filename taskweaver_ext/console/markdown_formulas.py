"""Formulas in Markdown, as answers write them: `$x^2$`, `$$...$$`, `\\(...\\)`, `\\[...\\]`.

A rule for the inline parser of markdown-it. Money and variables of a shell are no formulas: a
dollar sign stands for itself unless what is between two of them touches both and looks like
mathematics.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from taskweaver_ext.text.latex_text import latex_to_text

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline

FORMULA = "formula"
"""The type of the tokens that the rule makes; their content is text for a person."""

_MAX_FORMULA_CHARS = 1000
_DOLLARS = re.compile(
    rf"(\${{1,2}})(?![$\s])(?P<inside>[^$]{{1,{_MAX_FORMULA_CHARS}}}?)(?<![\s\\])\1(?![\w$])"
)
_DISPLAY = re.compile(rf"\$\$\s*(?P<inside>[^$]{{1,{_MAX_FORMULA_CHARS}}})\$\$")
_BRACKETS = re.compile(
    rf"\\\((?P<round>[^$]{{1,{_MAX_FORMULA_CHARS}}}?)\\\)"
    rf"|\\\[(?P<square>[^$]{{1,{_MAX_FORMULA_CHARS}}}?)\\\]"
)
_MATHEMATICS = re.compile(r"[\\^_=]|^[A-Za-z]$")
_COMMAND = re.compile(r"(?<!\\)\\[A-Za-z]")
"""Brackets are escaped in plain Markdown, too: only a command tells that they hold a formula."""


def read_formula(state: StateInline, silent: bool) -> bool:
    """Make a token of the formula that begins here, if one does."""
    inside, end = _formula_at(state.src, state.pos)
    if not inside:
        return False
    if not silent:
        token = state.push(FORMULA, "", 0)
        token.content = latex_to_text(inside)
    state.pos = end
    return True


def _formula_at(text: str, position: int) -> tuple[str, int]:
    """The formula that begins at a position, and where it ends; empty where there is none."""
    if text[position] == "$" and not text[max(0, position - 1) : position].isalnum():
        found = _DISPLAY.match(text, position) or _DOLLARS.match(text, position)
        if found and _MATHEMATICS.search(found["inside"].strip()):
            return found["inside"], found.end()
    elif text[position] == "\\" and (found := _BRACKETS.match(text, position)):
        inside = found["round"] or found["square"]
        if _COMMAND.search(inside):
            return inside, found.end()
    return "", position
