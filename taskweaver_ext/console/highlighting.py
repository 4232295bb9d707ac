"""Syntax colours for code that arrives a line at a time.

Pure. A line is coloured when it is complete, together with the lines before it that it
depends on (an open string), so that the work stays in proportion to the code.
"""

from __future__ import annotations

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token, _TokenType
from pygments.util import ClassNotFound

_COLORS = {
    Comment: "2",
    Keyword: "35",
    Operator.Word: "35",
    String: "32",
    Number: "36",
    Name.Builtin: "36",
    Name.Function: "34",
    Name.Class: "34",
    Name.Decorator: "33",
}
_MAX_CONTEXT_LINES = 100
_PROBE = "probe"
"""A name put behind the code: as long as it is read as a name, no string is open."""


class LineHighlighter:
    """Colours the lines of one piece of code, one after another."""

    def __init__(self, language: str) -> None:
        self._lexer = _lexer(language)
        self._context: list[str] = []

    def color(self, line: str) -> str:
        """Return the next line in colours; each is closed before the line ends."""
        if self._lexer is None:
            return line
        self._context.append(line)
        source = "\n".join([*self._context, _PROBE])
        colored = ""
        lines: list[str] = [""]
        last_kind: _TokenType = Token
        for kind, text in self._lexer.get_tokens(source):
            if text.strip():
                last_kind = kind
            first, *others = text.split("\n")
            lines[-1] += _paint(first, kind)
            lines += [_paint(other, kind) for other in others]
        if len(lines) >= len(self._context):
            colored = lines[len(self._context) - 1]
        if _is_name(last_kind) or len(self._context) > _MAX_CONTEXT_LINES:
            self._context.clear()
        return colored


def _is_name(kind: _TokenType) -> bool:
    return kind is Name or kind.parent is Name


def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _paint(text: str, kind: _TokenType) -> str:
    if not text or text.isspace():
        return text
    while kind is not Token and kind not in _COLORS and kind.parent is not None:
        kind = kind.parent
    color = _COLORS.get(kind)
    return f"\x1b[{color}m{text}\x1b[0m" if color else text
