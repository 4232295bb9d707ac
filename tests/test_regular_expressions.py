"""Regular expressions mean the same on every Python that the package runs on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "taskweaver_ext"
POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+|\(\?>")
"""Before Python 3.11.5 such a group may match less than it should."""


def texts(source: str) -> list[str]:
    """Return every text in a source, those within f-strings included."""
    constants = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return [node.value for node in constants if isinstance(node.value, str)]


def test_no_group_is_possessive() -> None:
    found = {
        str(path.relative_to(PACKAGE)): text
        for path in PACKAGE.rglob("*.py")
        for text in texts(path.read_text(encoding="utf-8"))
        if POSSESSIVE_GROUP.search(text)
    }

    assert found == {}


@pytest.mark.parametrize("pattern", [r"(?:a|b)*+", r"(a)++", r"(?:a)?+", r"(?:ab){1,3}+", r"(?>a)"])
def test_the_rule_catches_what_breaks_it(pattern: str) -> None:
    assert POSSESSIVE_GROUP.search(pattern)


@pytest.mark.parametrize("pattern", [r"[ab]*+", r"a++", r"\s{0,8}+", r"(?:a|b)*", r"\)++"])
def test_the_rule_allows_what_follows_it(pattern: str) -> None:
    assert not POSSESSIVE_GROUP.search(pattern)
