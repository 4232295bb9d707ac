"""Answers and displays drawn as Markdown, whole and while they are written."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.console.markdown import MAX_CHARS, Drawing, markdown_rows
from taskweaver_ext.console.markdown_stream import MarkdownStream
from taskweaver_ext.console.rows import UnframedRow, cell_width
from taskweaver_ext.text.terminal import row_text
from tests.support.growth import growth
from tests.support.hostile_text import EVIL, complaints_about

EVERYTHING = """\
# A *title*

Some **bold** words and `code`, then [a link](https://example.com/page) and <https://a.b/>.
They go on in a second line.

### Deeper

1. one
2. two
   - inner words that are many, so that they have to be wrapped
     ```sh
     ls

     pwd
     ```

10) other

* loose

* items

> said
> > before

```python
def f(x):
    return "a" + x  # why
```

---

| name | what | count |
|:-----|:----:|------:|
| 好的 | a long description that is wrapped where there is no room | 1 |
| b \\| c | x<br>y | 22 |

![a picture](http://x/y.png) ~~gone~~
"""
WIDTHS = (80, 40, 20)


def fed(text: str, drawing: Drawing) -> list[str]:
    stream = MarkdownStream(drawing)
    rows = [row for line in text.split("\n") for row in stream.feed(line)]
    return [*rows, *stream.close()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_framed", [True, False])
def test_everything_fits_the_width_and_nothing_is_lost(width: int, is_framed: bool) -> None:
    rows = Drawing(width, has_color=False, is_framed=is_framed).rows(EVERYTHING)

    assert all(
        cell_width(row) <= width or (isinstance(row, UnframedRow) and not is_framed) for row in rows
    )
    words = "".join("".join(rows).split())
    for word in ("title", "https://example.com/page", "https://a.b/", "pwd", "#why", "http://x/y"):
        assert word in words
    assert not any("```" in row for row in rows)


def test_structure_is_to_be_seen_without_colors() -> None:
    rows = markdown_rows(EVERYTHING, 80, has_color=False)

    assert rows[:2] == ["A _title_", "═════════"]
    assert "Some *bold* words and `code`, then a link (https://example.com/page) and" in rows
    assert rows[rows.index("### Deeper") + 2 :][:3] == [
        "1. one",
        "2. two",
        "   • inner words that are many, so that they have to be wrapped",
    ]
    assert "│ │ before" in rows
    assert '        return "a" + x  # why' in rows
    assert rows[rows.index("─" * 40) + 2 :][:5] == [
        "name                             what                             count",
        "─────  ─────────────────────────────────────────────────────────  ─────",
        "好的   a long description that is wrapped where there is no room      1",
        "b | c                              x                                 22",
        "                                   y",
    ]


def test_words_and_code_have_their_colors() -> None:
    rows = markdown_rows("**b** *i* `c`\n\n```python\nreturn 1\n```", 80, has_color=True)

    assert rows[0] == "\x1b[1mb\x1b[0m \x1b[3mi\x1b[0m \x1b[36mc\x1b[0m"
    assert rows[2] == "    \x1b[35mreturn\x1b[0m \x1b[36m1\x1b[0m"


def test_a_table_without_room_for_columns_is_told_as_lists() -> None:
    table = "| first | second | third |\n|--|--|--|\n| aaaaaaaaa | bbbbbbbbb | ccccccccc |\n"

    assert markdown_rows(table, 20, has_color=False) == [
        "first: aaaaaaaaa",
        "second: bbbbbbbbb",
        "third: ccccccccc",
    ]


def test_a_word_wider_than_the_screen_stays_whole_where_there_is_no_frame() -> None:
    address = "https://example.com/" + "path/" * 30

    rows = markdown_rows(f"See <{address}> now.", 40, has_color=False)

    assert f"{address}" in rows
    assert isinstance(rows[rows.index(address)], UnframedRow)
    assert "now." in rows
    framed = Drawing(40, has_color=False, is_framed=True).rows(f"See <{address}> now.")
    assert all(len(row) <= 40 for row in framed)


@pytest.mark.parametrize(
    "text",
    [
        EVIL,
        f"# {EVIL}",
        f"| {EVIL} | b |\n|---|---|\n| {EVIL} | {EVIL} |",
        f"```{EVIL}\n{EVIL}\n```",
        f"[x](<http://{EVIL}>) ![{EVIL}](<{EVIL}>)",
        f"`{EVIL}` **{EVIL}**",
        "&#27;]0;title&#7; &#x9b;2J &#8238;",
        "a\x1b[2Jb \x1b]0;t\x07[x](http://y/)",
    ],
)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_in_a_text_drives_the_terminal(text: str, width: int) -> None:
    rows = [row_text(row) for row in markdown_rows(text, width, has_color=True)]

    assert complaints_about("\n".join(rows).encode()) == []
    assert "]8;" not in "".join(rows)


@pytest.mark.parametrize("width", WIDTHS)
def test_block_by_block_it_is_drawn_as_in_one_piece(width: int) -> None:
    drawing = Drawing(width, has_color=True)

    assert fed(EVERYTHING, drawing) == drawing.rows(EVERYTHING)


def test_blocks_are_drawn_as_soon_as_they_are_complete() -> None:
    stream = MarkdownStream(Drawing(80, has_color=False))

    assert stream.feed("# One") == ["One", "═══"]
    assert stream.feed("") == []
    assert stream.feed("two") == []
    assert stream.open_lines == ["two"]
    assert stream.feed("```") == []
    assert stream.feed("x = 1") == []
    assert stream.feed("```") == ["", "two", "", "    x = 1"]
    assert stream.feed("- a") == []
    assert stream.feed("") == []
    assert stream.feed("- b") == []
    assert stream.feed("") == []
    assert stream.feed("end") == ["", "• a", "", "• b"]
    assert stream.close() == ["", "end"]


def test_code_without_an_end_is_drawn_in_pieces_that_stay_code() -> None:
    stream = MarkdownStream(Drawing(80, has_color=False))
    lines = ["```", *["# no heading " + "x" * 50] * (2 * MAX_CHARS // 60), "```", "# Heading"]

    rows = [row for line in lines for row in stream.feed(line)] + stream.close()

    assert rows[:-3] == ["    # no heading " + "x" * 50] * (len(lines) - 3)
    assert rows[-2:] == ["Heading", "═══════"]


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="ab 1.-*_`~#>|[]()<>!$^\\\n\t好e\u0301\x1b", max_size=200), st.integers(1, 50)
)
def test_any_text_can_be_drawn_at_any_width(text: str, width: int) -> None:
    for is_framed in (True, False):
        drawing = Drawing(width, has_color=True, is_framed=is_framed)
        for row in itertools.chain(drawing.rows(text), fed(text, drawing)):
            assert "\n" not in row


def test_an_endless_answer_is_shown_as_it_is() -> None:
    rows = markdown_rows("**x**\n" * 100_000, 40, has_color=False)

    assert rows[0] == "**x**"


@pytest.mark.parametrize(
    "line",
    ["word *and* `code`", "- item", "> quote", "[[*_", "$a_1 $$b \\(c \\[d", "$x^2$ $$"],
)
def test_the_time_is_in_proportion_to_the_text(line: str) -> None:
    def start() -> Callable[[str], object]:
        return lambda text: fed(text, Drawing(40, has_color=True))

    text = f"{line}\n" * 5_000
    gc.disable()  # its share grows with all that is there, also with what other tests left
    try:
        ratio = growth(start, [text], [text * 2])
    finally:
        gc.enable()

    assert ratio < 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            r"With $\frac{a}{b}$ and $x^2$, for a variable $n$.",
            "With a/b and x², for a variable n.",
        ),
        (r"$$\sum_{i=0}^n \alpha_i$$", "∑ᵢ₌₀ⁿ αᵢ"),
        ("so\n$$\nE = m c^2\n$$\nholds", "so E = m c² holds"),
        (r"So \(\beta \leq 1\), and \[ y = \sqrt{2} \]", "So β ≤ 1, and y = √2"),
        (r"**$a_1$** is *not* $a_2$.", "*a₁* is _not_ a₂."),
        ("It costs $5 and $6, or 7$ = 8$.", "It costs $5 and $6, or 7$ = 8$."),
        ("From $HOME to $A_B/$C_D, `$x^2$`.", "From $HOME to $A_B/$C_D, `$x^2$`."),
        (r"A \$x^2\$ and a \[note = 1\].", "A $x^2$ and a [note = 1]."),
        ("An open $x^2 and $$ y", "An open $x^2 and $$ y"),
    ],
)
def test_formulas_are_text_and_money_stays_money(text: str, shown: str) -> None:
    assert " ".join(markdown_rows(text, 80, has_color=False)) == shown
