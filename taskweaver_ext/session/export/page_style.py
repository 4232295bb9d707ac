"""The style sheet of exported pages: one fixed text, so that a page can name its hash."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pygments.formatters import HtmlFormatter

CODE_CLASS = "k-"
"""Begins the classes of highlighted code, so that they meet no others."""

_LIGHT, _DARK = "friendly", "github-dark"
_LEVELS = (0, 95, 135, 175, 215, 255)


@cache
def page_style() -> str:
    """Everything that a page's style element holds."""
    own = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return f"{own}\n{word_style()}"


@cache
def word_style() -> str:
    """The colours of words in code and in terminal output; the first 16 are `--a0` to `--a15`."""
    dark = "@media screen and (prefers-color-scheme: dark) {\n" + _code_style(_DARK) + "\n}"
    return "\n".join([_code_style(_LIGHT), dark, *_terminal_colors()])


@cache
def content_policy() -> str:
    """What a page may load and run: pictures that it holds itself, and its own style."""
    digest = base64.b64encode(hashlib.sha256(page_style().encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}';"
        " base-uri 'none'; form-action 'none'"
    )


def _code_style(name: str) -> str:
    formatter = HtmlFormatter(style=name, classprefix=CODE_CLASS)
    definitions = formatter.get_style_defs(["pre"])  # type: ignore[no-untyped-call]  # untyped
    # Ground and margins are the page's own; only the colours of words are wanted.
    wanted = [line for line in definitions.split("\n") if f"pre .{CODE_CLASS}" in line]
    return "\n".join(wanted)


def _terminal_colors() -> Iterator[str]:
    """A class for each of the 256 colours of a terminal, as ink (f) and as ground (g)."""
    for number in range(16):
        yield f".f{number}{{color:var(--a{number})}}.g{number}{{background:var(--a{number})}}"
    for number in range(16, 256):
        if number < 232:
            red, rest = divmod(number - 16, 36)
            rgb = (_LEVELS[red], _LEVELS[rest // 6], _LEVELS[rest % 6])
        else:
            rgb = (8 + 10 * (number - 232),) * 3
        color = "#{:02x}{:02x}{:02x}".format(*rgb)
        yield f".f{number}{{color:{color}}}.g{number}{{background:{color}}}"
