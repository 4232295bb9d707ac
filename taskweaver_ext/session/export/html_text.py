"""Texts of a session as HTML that does nothing: terminal output, code, Markdown, HTML, formulas.

Whatever comes from a session is hostile until proven otherwise. Text is escaped; Markdown knows no
HTML; HTML keeps a short list of elements, without scripts, styles, forms, and addresses other than
plain links; pictures are data, and SVG is shown as a picture, in which nothing runs.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import nh3
from latex2mathml.converter import convert as latex_to_mathml
from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from taskweaver_ext.session.export.page_style import CODE_CLASS
from taskweaver_ext.session.export.source import plain, whole_characters
from taskweaver_ext.text.colors import restyle
from taskweaver_ext.text.terminal import TerminalFilter

MAX_MARKUP_CHARS = 2_000_000
"""Longer HTML or Markdown is shown as it is written."""
_MAX_HIGHLIGHTED_CHARS = 50_000
_MAX_FORMULA_CHARS = 5_000
_MAX_DEPTH = 200
"""How deep elements of HTML may be inside each other."""
_MAX_REPEATED = 2_000_000
"""Elements times depth: a parser repeats what was left open in each that follows."""

_TEXT_TAGS = set(
    "a abbr b blockquote br caption cite code col colgroup dd del dfn div dl dt em figcaption"
    " figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q s samp small span strong sub"
    " sup table tbody td tfoot th thead tr u ul var".split()
)
_MATH_TAGS = set(
    "math mrow mi mo mn ms mtext mspace mfrac msqrt mroot msub msup msubsup munder mover"
    " munderover mtable mtr mtd mstyle mpadded mphantom menclose mmultiscripts".split()
)
_REMOVED_WHOLE = set("script style template noscript iframe object svg textarea title".split())
_ATTRIBUTES: dict[str, set[str]] = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title", "width", "height"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "ol": {"start"},
    "col": {"span"},
}
_MATH_ATTRIBUTES = {
    "math": {"display"},
    "mo": {"stretchy", "fence", "separator", "form", "minsize", "maxsize"},
    "mi": {"mathvariant"},
    "mfrac": {"linethickness"},
    "mtd": {"columnalign"},
    "mtable": {"columnalign", "rowspacing"},
    "mspace": {"width"},
}
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
_LINK = re.compile(r"(https?://|mailto:)[^\s\x00-\x1f]+", re.IGNORECASE)
_FORMULA_MARKS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_COLOR = re.compile(r"\x1b\[([0-9;:]*)m")
_STYLE_CLASSES = {"1": "b", "2": "d", "3": "i", "4": "u", "21": "u", "7": "r", "9": "s"}
_NESTING = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)")
_VISIBLE = re.compile(r"<img\b|[^\s]")


def escaped(text: str) -> str:
    """Any text, as nothing but text; also fit for an attribute in quotes."""
    return html.escape(plain(text), quote=True)


def terminal_html(text: str) -> str:
    """What a program wrote, with its colours."""
    terminal = TerminalFilter(keep_colors=True)
    kept = whole_characters(terminal.feed(text) + terminal.close())
    pieces = _COLOR.split(kept)
    parts, style = [html.escape(pieces[0])], ""
    for parameters, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        style = restyle(style, parameters)
        words = html.escape(piece)
        classes = " ".join(_classes_of(style))
        parts.append(f'<span class="{classes}">{words}</span>' if classes and words else words)
    return "".join(parts)


def code_html(code: str, language: str) -> str:
    """Code with its words coloured, where the language is known."""
    code = plain(code)
    if len(code) > _MAX_HIGHLIGHTED_CHARS:
        return html.escape(code)
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return html.escape(code)
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix=CODE_CLASS)))


def markdown_html(text: str) -> str:
    """Words that may be Markdown."""
    text = plain(text)
    if len(text) > MAX_MARKUP_CHARS:
        return f'<p class="verbatim">{html.escape(text)}</p>'
    return str(_markdown().render(text))


def clean_html(markup: str) -> str:
    """HTML that code has displayed, without all that could do something; empty if none is left."""
    markup = plain(markup)
    if len(markup) > MAX_MARKUP_CHARS or not _can_be_parsed(markup):
        return f"<pre>{html.escape(markup[:MAX_MARKUP_CHARS])}</pre>"
    cleaned = nh3.clean(
        markup,
        tags=_TEXT_TAGS,
        clean_content_tags=_REMOVED_WHOLE,
        attributes=_ATTRIBUTES,
        attribute_filter=_kept_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer nofollow",
    )
    is_visible = _VISIBLE.search(re.sub(r"<(?!img\b)[^>]*>", "", cleaned))
    return cleaned if is_visible else ""


def formula_html(latex: str, *, is_block: bool = True) -> str:
    """A formula in MathML; what cannot be read as one is shown as it is written."""
    words = plain(latex).strip().strip("$").strip()
    for begin, end in ((r"\[", r"\]"), (r"\(", r"\)"), (r"\displaystyle", "")):
        words = words.removeprefix(begin).removesuffix(end).strip()
    if not words or len(words) > _MAX_FORMULA_CHARS:
        return f"<code>{html.escape(words[:_MAX_FORMULA_CHARS])}</code>"
    try:
        markup = latex_to_mathml(words, display="block" if is_block else "inline")
    except Exception:  # noqa: BLE001 - it raises many things about what is no formula
        return f"<code>{html.escape(words)}</code>"
    return nh3.clean(markup, tags=_MATH_TAGS, attributes=_MATH_ATTRIBUTES)


def picture_html(kind: str, content: bytes, alternative: str) -> str:
    """A picture that the page holds itself."""
    data = base64.b64encode(content).decode("ascii")
    return f'<img src="data:{kind};base64,{data}" alt="{escaped(alternative)}">'


def _kept_attribute(tag: str, name: str, value: str) -> str | None:
    if name == "href":
        return value if _LINK.fullmatch(value.strip()) else None
    if name == "src":
        return value if _PICTURE.fullmatch(value.strip()) else None
    return value


def _can_be_parsed(markup: str) -> bool:
    """Whether a parser makes a tree of bounded depth and size of it."""
    depth = deepest = count = 0
    for found in _NESTING.finditer(markup):
        count += 1
        depth = max(0, depth - 1) if found[1] else depth + (found[2].lower() not in _EMPTY)
        deepest = max(deepest, depth)
    return deepest <= _MAX_DEPTH and deepest * count <= _MAX_REPEATED


_EMPTY = set("br col hr img input link meta source track wbr p li td th tr dt dd option".split())
"""Elements that need no end, so that many of them say nothing about depth."""


def _classes_of(style: str) -> Iterator[str]:
    codes = iter(style.replace(":", ";").split(";")) if style else iter(())
    for code in codes:
        if code in ("38", "48", "58"):
            color = _color_of(codes)
            if color is not None and code != "58":
                yield f"{'f' if code == '38' else 'g'}{color}"
        elif code in _STYLE_CLASSES:
            yield _STYLE_CLASSES[code]
        elif code.isdigit():
            number = int(code)
            for first, kind, base in ((30, "f", 0), (40, "g", 0), (90, "f", 8), (100, "g", 8)):
                if first <= number < first + 8:
                    yield f"{kind}{number - first + base}"


def _color_of(codes: Iterator[str]) -> int | None:
    """The number among 256 that comes nearest to the colour that follows."""
    mode = next(codes, "")
    if mode == "5":
        return min(255, int(next(codes, "0") or "0"))
    if mode != "2":
        return None
    values = [value for value in (next(codes, "") for _ in range(3)) if value.isdigit()]
    if len(values) < 3:
        return None
    red, green, blue = (round(min(255, int(value)) / 51) for value in values)
    return 16 + 36 * red + 6 * green + blue


@cache
def _markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "formula", _read_formula)
    for name, rule in (
        ("formula", _formula),
        ("fence", _fence),
        ("code_block", _fence),
        ("image", _image),
        ("link_open", _link),
        ("th_open", _table_cell),
        ("td_open", _table_cell),
    ):
        parser.add_render_rule(name, rule)
    return parser


def _read_formula(state: StateInline, silent: bool) -> bool:
    r"""Read a formula between $...$, $$...$$, \\(...\\) or \\[...\\]; a price is none."""
    text, start = state.src, state.pos
    found = next((pair for pair in _FORMULA_MARKS if text.startswith(pair[0], start)), None)
    if found is None:
        return False
    begin, end = found
    first = start + len(begin)
    last = text.find(end, first, min(state.posMax, first + _MAX_FORMULA_CHARS))
    words = text[first:last] if last > first else ""
    if not words.strip() or (begin == "$" and (words != words.strip() or "\n" in words)):
        return False
    if begin == "$" and text[last + 1 : last + 2].isdigit():
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content, token.markup = words, begin
    state.pos = last + len(end)
    return True


def _formula(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:  # noqa: ANN401
    is_block = tokens[index].markup in ("$$", r"\[")
    return formula_html(tokens[index].content, is_block=is_block)


def _fence(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:  # noqa: ANN401
    token = tokens[index]
    language = token.info.split()[0] if token.info.split() else ""
    return f"<pre><code>{code_html(token.content, language)}</code></pre>\n"


def _image(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:  # noqa: ANN401
    """Show a picture that is there; of one elsewhere, only the address, so that nothing loads."""
    address = str(tokens[index].attrs.get("src", ""))
    words = escaped(tokens[index].content or address)
    if _PICTURE.fullmatch(address):
        return f'<img src="{html.escape(address)}" alt="{words}">'
    return _anchor(address) + f"{words}</a>" if _LINK.fullmatch(address) else words


def _link(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:  # noqa: ANN401
    return _anchor(str(tokens[index].attrs.get("href", "")))


def _table_cell(_self: Any, tokens: Sequence[Token], index: int, *_rest: Any) -> str:  # noqa: ANN401
    """Align with a class: the page allows no style but its own."""
    token = tokens[index]
    side = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="{side}">' if side in ("right", "center") else f"<{token.tag}>"


def _anchor(address: str) -> str:
    if not _LINK.fullmatch(address):
        return "<a>"
    return f'<a href="{html.escape(address)}" rel="noopener noreferrer nofollow">'
