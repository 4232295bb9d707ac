"""HTML becomes basic Markdown, whatever state it is in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.text.html_markdown import html_to_markdown


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<p><strong>Hello</strong></p>", "**Hello**"),
        ("<h2>Title</h2><p>a <em>b</em>\n  c</p><p>d</p>", "## Title\n\na *b* c\n\nd"),
        ("a<br>b", "a\nb"),
        ('<a href="https://x.org/?a=1&amp;b=2">here</a>', "[here](https://x.org/?a=1&b=2)"),
        (
            "<ul><li>a</li><li>b<ol><li>c</li><li>d</li></ol></li></ul>",
            "- a\n- b\n\n  1. c\n  2. d",
        ),
        (
            "<table><thead><tr><th></th><th>x</th></tr></thead>"
            "<tbody><tr><th>0</th><td>1.5</td></tr></tbody></table>",
            "|  | x |\n| --- | --- |\n| 0 | 1.5 |",
        ),
        (
            "<table><tr><th colspan=2>a|b</th></tr><tr><td><p>x</p><p>y</p></td><td>z</td></tr>"
            "</table>c|d",
            "| | a\\|b |\n| --- | --- |\n|  x  y  | z |\n\nc|d",
        ),
        ("<pre>a\n  <b>b</b></pre>", "```\na\n  b\n```"),
        ("<style>p {}</style><script>alert(1)</script>text", "text"),
        ("1 &lt; 2 &amp; <code>x</code>", "1 < 2 & `x`"),
        ('<img src="x.png" alt="a cat">', "![a cat]"),
        ("<p>never closed <b>bold", "never closed **bold"),
        ("", ""),
    ],
)
def test_what_a_model_needs_is_kept(html: str, markdown: str) -> None:
    assert html_to_markdown(html) == markdown


@given(st.text(alphabet="<>/ab \n&;=\"'-!prelitd", max_size=200))
def test_no_html_is_too_broken(html: str) -> None:
    assert isinstance(html_to_markdown(html), str)
