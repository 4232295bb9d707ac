"""Markdown drawn in rows for a terminal: whole texts, and texts that are still being written.

Pure, and linear in the text. Nothing of a text but its characters and plain colours of our own
reaches a row. Links are shown with their addresses; a word that is wider than the screen is left
whole where no frame is in the way, so that it can be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from taskweaver_ext.console.markdown_formulas import FORMULA, read_formula
from taskweaver_ext.console.rows import BOLD, CYAN, DIM, UnframedRow, wrap
from taskweaver_ext.console.styled_text import Run, painted, width_of, wrap_runs
from taskweaver_ext.console.tables import Alignment, Cell, Table, draw_table
from taskweaver_ext.text.colors import restyle
from taskweaver_ext.text.terminal import message_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

MAX_WIDTH = 100
"""Longer lines are hard to read."""
MAX_CHARS = 100_000
"""Drawing more at a time would take longer than reading its source."""

_LEAST_WIDTH = 12
"""What is inside something else is not made narrower."""
_CODE_INDENT = "    "
_MAX_ADDRESS_CHARS = 2_000
_ITALIC, _UNDERLINED, _STRUCK = "3", "4", "9"
_STYLES = {"strong": BOLD, "em": _ITALIC, "s": _STRUCK}
_MARKS = {"strong": "*", "em": "_", "s": "~"}
"""What stands around words where there are no styles."""
_BREAKS = ("<br>", "<br/>", "<br />")


@dataclass(frozen=True, slots=True)
class Drawing:
    """How Markdown is drawn."""

    width: int
    has_color: bool
    is_framed: bool = False
    """Whether rows get a frame: no word may be wider then."""
    is_data: bool = False
    """Whether tables hold data, of which columns may be left out."""

    def rows(self, text: str) -> list[str]:
        """Draw a whole text."""
        text = message_text(text)
        if len(text) > MAX_CHARS:
            return text.split("\n")
        from markdown_it.tree import SyntaxTreeNode

        root = SyntaxTreeNode(_parser().parse(text))
        widest = self.width if self.is_data else MAX_WIDTH
        rows = self._blocks(root.children, max(_LEAST_WIDTH, min(self.width, widest)))
        return [UnframedRow(row) if self._is_wide(row) else row for row in rows]

    def _is_wide(self, row: str) -> bool:
        is_short = len(row) <= self.width and row.isascii()
        return not self.is_framed and not is_short and len(wrap(row, self.width)) > 1

    def _blocks(self, nodes: Sequence[SyntaxTreeNode], width: int, gap: bool = True) -> list[str]:
        rows: list[str] = []
        for node in nodes:
            drawn = self._block(node, width)
            rows += ["", *drawn] if rows and drawn and gap else drawn
        return rows

    def _block(self, node: SyntaxTreeNode, width: int) -> list[str]:
        match node.type:
            case "heading":
                return self._heading(node, width)
            case "paragraph":
                return self._prose(self._inline(node.children[:1]), width)
            case "fence" | "code_block":
                return self._code(node.content, node.info if node.type == "fence" else "", width)
            case "bullet_list" | "ordered_list":
                return self._list(node, width)
            case "blockquote":
                inner = self._blocks(node.children, self._inside(width, 2))
                return self._prefixed(inner, "│ ", "│ ")
            case "table":
                return self._table(node, width)
            case "hr":
                return [self._painted([(DIM, "─" * min(width, 40))])]
            case _:
                return self._prose([("", node.content)], width) if node.content else []

    def _heading(self, node: SyntaxTreeNode, width: int) -> list[str]:
        level = int(node.tag[1:] or "1")
        mark = "" if level < 3 else "#" * level + " "
        runs = [(_styled(BOLD, style), text) for style, text in self._inline(node.children[:1])]
        drawn = wrap_runs([(BOLD, mark), *runs] if mark else runs, width, cuts_words=self.is_framed)
        rows = [self._painted(row) for row in drawn]
        if level < 3:
            length = max(map(width_of, drawn))
            rows.append(self._painted([(DIM, "═─"[level - 1] * min(width, max(1, length)))]))
        return rows

    def _prose(self, runs: Iterable[Run], width: int) -> list[str]:
        return [self._painted(row) for row in wrap_runs(runs, width, cuts_words=self.is_framed)]

    def _painted(self, runs: Iterable[Run]) -> str:
        return painted(runs, has_color=self.has_color)

    def _inside(self, width: int, indent: int) -> int:
        return max(_LEAST_WIDTH, width - indent)

    def _prefixed(self, rows: list[str], first: str, rest: str) -> list[str]:
        return [
            self._painted([(DIM, rest if number else first)]) + row
            for number, row in enumerate(rows)
        ]

    def _code(self, code: str, info: str, width: int) -> list[str]:
        lines = code.rstrip("\n").split("\n")
        language = info.split()[0] if info.split() else ""
        if language and self.has_color:
            from taskweaver_ext.console.highlighting import LineHighlighter

            highlighter = LineHighlighter(language)
            lines = [highlighter.color(line) for line in lines]
        inner = self._inside(width, len(_CODE_INDENT))
        return [_CODE_INDENT + row for line in lines for row in wrap(line, inner)]

    def _list(self, node: SyntaxTreeNode, width: int) -> list[str]:
        is_ordered = node.type == "ordered_list"
        start = int(node.attrs.get("start", 1)) if is_ordered else 0
        last = f"{start + len(node.children) - 1}. "
        is_tight = all(child.hidden for item in node.children for child in item.children
                       if child.type == "paragraph")  # fmt: skip
        rows: list[str] = []
        for number, item in enumerate(node.children, start):
            mark = f"{number}. ".rjust(len(last)) if is_ordered else "• "
            inner = self._blocks(item.children, self._inside(width, len(mark)), gap=not is_tight)
            rows += [""] if rows and not is_tight else []
            rows += self._prefixed(inner or [""], mark, " " * len(mark))
        return rows

    def _table(self, node: SyntaxTreeNode, width: int) -> list[str]:
        lines = [row for part in node.children for row in part.children]
        cells = [[self._inline(cell.children[:1]) for cell in line.children] for line in lines]
        if not cells:
            return []
        table = Table(cells[0], _padded(cells[1:], len(cells[0])), _alignments(lines[0]))
        return draw_table(table, width, has_color=self.has_color, is_data=self.is_data)

    def _inline(self, nodes: Sequence[SyntaxTreeNode]) -> list[Run]:
        """The runs of the inline content of a block."""
        runs: list[Run] = []
        for node in nodes:
            runs += self._runs(node.children, "")
        return runs

    def _runs(self, nodes: Sequence[SyntaxTreeNode], style: str) -> Iterator[Run]:
        for node in nodes:
            match node.type:
                case "text" | "text_special" | "html_inline":
                    yield style, _with_breaks(node.content)
                case "code_inline":
                    mark = "" if self.has_color else "`"
                    yield _styled(style, CYAN), f"{mark}{node.content}{mark}"
                case "softbreak":
                    yield style, " "
                case "hardbreak":
                    yield style, "\n"
                case "link":
                    yield from self._link(node, style)
                case "image":
                    where = _short(str(node.attrs.get("src", "")))
                    yield style, f"[Picture] {node.content} <{where}>".replace("  ", " ")
                case "strong" | "em" | "s":
                    mark = "" if self.has_color else _MARKS[node.type]
                    yield style, mark
                    yield from self._runs(node.children, _styled(style, _STYLES[node.type]))
                    yield style, mark
                case _:
                    yield style, node.content

    def _link(self, node: SyntaxTreeNode, style: str) -> Iterator[Run]:
        words = list(self._runs(node.children, _styled(style, _UNDERLINED)))
        address = _short(str(node.attrs.get("href", "")))
        said = "".join(text for _, text in words).strip()
        yield from words
        if address and said not in (address, address.removeprefix("mailto:")):
            yield style, " (" if said else "("
            yield _styled(style, CYAN), address
            yield style, ")"


def markdown_rows(text: str, width: int, *, has_color: bool) -> list[str]:
    """Draw a Markdown text; without colours its structure is still to be seen."""
    return Drawing(width, has_color).rows(text)


def _styled(style: str, more: str) -> str:
    return restyle(style, more) if more else style


def _padded(rows: list[list[list[Run]]], count: int) -> list[Sequence[Cell]]:
    empty: list[Run] = []
    return [[*row[:count], *[empty] * (count - len(row))] for row in rows]


def _alignments(heading: SyntaxTreeNode) -> list[Alignment]:
    found: list[Alignment] = []
    for cell in heading.children:
        style = str(cell.attrs.get("style", ""))
        found.append(
            "right" if style.endswith("right") else "center" if style.endswith("center") else "left"
        )
    return found


def _with_breaks(text: str) -> str:
    for tag in _BREAKS:
        if tag in text:
            text = text.replace(tag, "\n")
    return text


def _short(address: str) -> str:
    return address if len(address) <= _MAX_ADDRESS_CHARS else address[:_MAX_ADDRESS_CHARS] + "…"


@cache
def _parser() -> MarkdownIt:
    # A prompt need not wait for what the first answer needs.
    from markdown_it import MarkdownIt

    class Parser(MarkdownIt):
        """Any address is shown as it is written: it is only text."""

        def validateLink(self, url: str) -> bool:  # noqa: N802 - its name there
            return True

        def normalizeLink(self, url: str) -> str:  # noqa: N802
            return url

    parser = Parser("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", FORMULA, read_formula)
    return parser
