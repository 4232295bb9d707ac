"""Answers drawn as Markdown."""

from __future__ import annotations

from taskweaver_ext.console.markdown import markdown_rows


def test_headings_lists_and_code_are_drawn_within_the_width() -> None:
    text = "# Title\n\n* " + "word " * 30 + "\n\n```python\nprint(1)\n```"

    rows = markdown_rows(text, 40, has_color=False)

    assert all(len(row) <= 40 for row in rows)
    assert any("Title" in row for row in rows)
    assert any("print(1)" in row for row in rows)
    assert not any("```" in row or "\x1b" in row for row in rows)


def test_nothing_in_an_answer_drives_the_terminal() -> None:
    rows = markdown_rows("a\x1b[2Jb \x1b]0;t\x07[x](http://y/)", 40, has_color=True)

    drawn = "".join(rows)
    assert "\x1b[2J" not in drawn
    assert "\x1b]" not in drawn
    assert "http://y/" in drawn


def test_an_endless_answer_is_shown_as_it_is() -> None:
    rows = markdown_rows("**x**\n" * 100_000, 40, has_color=False)

    assert rows[0] == "**x**"
