"""HTML as basic Markdown: what a model needs of a page fragment, without its markup.

Pure: text in, text out, in linear time. Headings, emphasis, code, links, lists and
tables become Markdown; scripts and styles disappear; every other tag is dropped and its
text kept.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

_EMPHASIS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}
_BLOCKS = frozenset(
    "p div section article header footer main blockquote pre ul ol table form figure".split()
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_HIDDEN = frozenset(("script", "style", "head", "template"))

_SPACES = re.compile(r"[ \t\r\n\f]+")
_BLANK_LINES = re.compile(r"\n{3,}")


def html_to_markdown(html: str) -> str:
    """Return the text of a piece of HTML as Markdown, without blank lines around it."""
    converter = _Converter()
    converter.feed(html)
    converter.close()
    return converter.markdown()


class _Converter(HTMLParser):
    """Collect pieces of Markdown while the parser walks through the tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._hidden_depth = 0
        self._preformatted_depth = 0
        self._lists: list[int | None] = []
        """The lists around this place: the next number, or None where there are none."""
        self._links: list[str] = []
        self._cells_in_row = 0
        self._rows = 0
        self._table_depth = 0
        self._ends_with_space = True

    def markdown(self) -> str:
        """What has been collected."""
        lines = "".join(self._pieces).split("\n")
        return _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag that opens."""
        if tag in _HIDDEN:
            self._hidden_depth += 1
        elif tag in _HEADINGS:
            self._add("\n\n" + _HEADINGS[tag])
        elif tag in _EMPHASIS and not self._preformatted_depth:
            self._add(_EMPHASIS[tag])
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")
            self._add("[")
        elif tag in ("br", "hr"):
            self._add("\n" if tag == "br" else "\n\n---\n\n")
        elif tag == "img":
            self._add(f"![{dict(attrs).get('alt') or ''}]")
        elif tag == "li":
            self._open_item()
        elif tag in ("tr", "td", "th"):
            self._open_cell(tag, attrs)
        elif tag in _BLOCKS and self._is_in_cell(tag):
            self._add(" ")
        elif tag in _BLOCKS:
            self._open_block(tag)

    def handle_endtag(self, tag: str) -> None:
        """Take a tag that closes."""
        if tag in _HIDDEN:
            self._hidden_depth = max(0, self._hidden_depth - 1)
        elif tag in _EMPHASIS and not self._preformatted_depth:
            self._add(_EMPHASIS[tag])
        elif tag == "a" and self._links:
            target = self._links.pop()
            self._add(f"]({target})" if target else "]")
        elif tag == "tr":
            self._close_row()
        elif tag in _BLOCKS and self._is_in_cell(tag):
            self._add(" ")
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._close_block(tag)

    def handle_data(self, data: str) -> None:
        """Take text; outside of <pre> white space is only a separator."""
        if self._table_depth:
            data = data.replace("|", "\\|")
        if self._preformatted_depth and not self._table_depth:
            self._add(data)
            return
        text = _SPACES.sub(" ", data)
        self._add(text[1:] if self._ends_with_space and text.startswith(" ") else text)

    def _add(self, text: str) -> None:
        if not text or self._hidden_depth:
            return
        self._pieces.append(text)
        self._ends_with_space = text[-1] in " \n"

    def _open_block(self, tag: str) -> None:
        if tag in ("ul", "ol"):
            self._add("\n" if self._lists else "\n\n")
            self._lists.append(1 if tag == "ol" else None)
            return
        if tag == "table":
            self._table_depth += 1
            self._rows = 0
        self._add("\n\n")
        if tag == "pre":
            self._add("```\n")
            self._preformatted_depth += 1

    def _close_block(self, tag: str) -> None:
        if tag == "pre" and self._preformatted_depth:
            self._preformatted_depth -= 1
            self._add("\n```")
        if tag == "table":
            self._table_depth = max(0, self._table_depth - 1)
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        self._add("\n" if self._lists else "\n\n")

    def _open_item(self) -> None:
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        indentation = "  " * max(0, len(self._lists) - 1)
        self._add(f"\n{indentation}{'-' if number is None else f'{number}.'} ")

    def _is_in_cell(self, tag: str) -> bool:
        """Whether a block is inside of a table, where a row is a line."""
        return self._table_depth > 0 and tag != "table"

    def _open_cell(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self._cells_in_row = 0
            self._add("\n| ")
        else:
            self._add(" | " if self._cells_in_row else "")
            self._cells_in_row += 1
            span = dict(attrs).get("colspan") or "1"
            for _ in range(int(span) - 1 if len(span) < 3 and span.isdecimal() else 0):
                self._cells_in_row += 1
                self._add("| ")

    def _close_row(self) -> None:
        self._add(" |")
        self._rows += 1
        if self._rows == 1:
            self._add("\n|" + " --- |" * self._cells_in_row)
