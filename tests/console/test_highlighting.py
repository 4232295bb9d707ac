"""Colours for code that arrives a line at a time."""

from __future__ import annotations

import re

from taskweaver_ext.console.highlighting import LineHighlighter

COLOR = re.compile("\x1b\\[[0-9;]*m")


def test_code_in_colors_says_the_same() -> None:
    code = 'def f(x):\n    """Doc\n    more"""\n    return f"{x}" + 1  # why\n\n@a\nclass B: pass\n'
    highlighter = LineHighlighter("python")

    colored = [highlighter.color(line) for line in code.split("\n")]

    assert [COLOR.sub("", line) for line in colored] == code.split("\n")
    assert "\x1b[35mdef\x1b[0m" in colored[0]
    assert "\x1b[32m" in colored[2], "the second line of a string is a string"
    assert "\x1b[35mreturn\x1b[0m" in colored[3], "after the string it is code again"


def test_a_string_that_never_ends_is_taken_for_code_after_a_hundred_lines() -> None:
    """What a line costs would otherwise grow with all the lines before it."""
    highlighter = LineHighlighter("python")
    highlighter.color('x = """')

    colored = [highlighter.color("return") for _ in range(200)]

    assert colored[:50] == ["\x1b[32mreturn\x1b[0m"] * 50
    assert colored[-50:] == ["\x1b[35mreturn\x1b[0m"] * 50


def test_an_unknown_language_has_no_colors() -> None:
    assert LineHighlighter("klingon").color("if x: pass") == "if x: pass"
