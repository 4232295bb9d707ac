"""Answers as Markdown, drawn in rows for a terminal."""

from __future__ import annotations

import io

from taskweaver_ext.text.terminal import message_text, strip_terminal

MAX_WIDTH = 100
"""Longer lines are hard to read."""
_MAX_CHARS = 200_000


def markdown_rows(text: str, width: int, *, has_color: bool) -> list[str]:
    """Draw a Markdown text; without colours its structure is still to be seen."""
    # A prompt need not wait for what the first answer needs.
    from rich.console import Console
    from rich.markdown import Markdown

    text = message_text(text)
    if len(text) > _MAX_CHARS:  # drawing it would take longer than reading its source
        return text.split("\n")
    console = Console(
        file=io.StringIO(),
        width=max(20, min(width, MAX_WIDTH)),
        force_terminal=True,
        color_system="standard" if has_color else None,
        no_color=not has_color,
        legacy_windows=False,
        emoji=False,
        _environ={},
    )
    # Links as text: an escape sequence with an address in it may go anywhere.
    console.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark"))
    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue()
    return (drawn if has_color else strip_terminal(drawn)).rstrip("\n").split("\n")
