"""What an expression would give, as far as that is known without running it."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable
from typing import Any

from .static_look import MISSING, Known, attribute, class_name, own_dict, result_of

_MAX_DEPTH = 12
_MAX_CHARACTERS = 4000
_MAX_MENTIONS = 20

_TEXT_METHODS = (
    "capitalize casefold center expandtabs format format_map join ljust lower lstrip replace"
    " rjust rstrip strip swapcase title translate upper zfill removeprefix removesuffix"
)
_RETURNS: dict[Any, dict[str, Any]] = {
    str: {
        **dict.fromkeys(_TEXT_METHODS.split(), str),
        **dict.fromkeys(("split", "rsplit", "splitlines"), list),
        "encode": bytes,
    },
    bytes: {"decode": str},
    dict: {"copy": dict},
    list: {"copy": list},
}
_DISPLAYS: dict[Any, Any] = {
    ast.List: list,
    ast.ListComp: list,
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.Set: set,
    ast.SetComp: set,
    ast.Tuple: tuple,
    ast.JoinedStr: str,
}


class Expressions:
    """Finds what expressions give, by the user's variables and the code that is being typed."""

    def __init__(self, namespace: dict[str, Any], code: str = "") -> None:
        self._namespace = namespace
        self._code = code

    def find(self, expression: str, depth: int = 0) -> Known | None:
        """Return what is known of an expression's result; None when that is nothing."""
        if len(expression) > _MAX_CHARACTERS or depth > _MAX_DEPTH:
            return None
        try:
            tree = ast.parse(expression.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return self._of(tree, depth)

    def _of(self, node: ast.AST, depth: int) -> Known | None:
        if depth > _MAX_DEPTH:
            return None
        if isinstance(node, ast.Constant):
            return Known(node.value)
        if isinstance(node, ast.Name):
            return self._named(node.id, depth)
        if isinstance(node, ast.Attribute):
            owner = self._of(node.value, depth + 1)
            return owner and attribute(owner, node.attr)
        if isinstance(node, ast.Subscript):
            return self._item(node, depth)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        if isinstance(node, ast.Await):
            return None
        kind = _DISPLAYS.get(type(node))
        return None if kind is None else Known(kind=kind)

    def _named(self, name: str, depth: int) -> Known | None:
        value = self._namespace.get(name, MISSING)
        if value is not MISSING:
            return Known(value)
        return self._typed(name, depth) or _builtin(name)

    def _item(self, node: ast.Subscript, depth: int) -> Known | None:
        owner = self._of(node.value, depth + 1)
        index: Any = node.slice
        if type(index).__name__ == "Index":  # Python 3.8 and older trees
            index = index.value
        if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
            index = index.operand
            sign = -1
        else:
            sign = 1
        if owner is None or not owner.has_value or not isinstance(index, ast.Constant):
            return None
        key = -index.value if sign < 0 and type(index.value) is int else index.value
        try:
            if type(owner.value) is dict and type(key) in (str, int):
                return Known(owner.value[key])
            if type(owner.value) in (list, tuple) and type(key) is int:
                return Known(owner.value[key])
            if class_name(owner.kind) == "DataFrame" and type(key) is str:
                return attribute(owner, key)
        except (LookupError, TypeError):
            return None
        return None

    def _called(self, node: ast.Call, depth: int) -> Known | None:
        if isinstance(node.func, ast.Attribute):
            owner = self._of(node.func.value, depth + 1)
            returned = _RETURNS.get(owner.kind, {}).get(node.func.attr) if owner else None
            if returned is not None:
                return Known(kind=returned)
        called = self._of(node.func, depth + 1)
        return result_of(called.value) if called is not None and called.has_value else None

    def _typed(self, name: str, depth: int) -> Known | None:
        """What the code that is being typed makes of a name, when it runs."""
        if depth > 2 or name not in self._code:
            return None
        quoted = re.escape(name)

        def find(text: str) -> Known | None:
            return self.find(text, depth + 1)

        rules: tuple[tuple[str, Callable[[str], Known | None]], ...] = (
            (rf"\bimport[ \t]+([\w.]+)[ \t]+as[ \t]+{quoted}\b", _module),
            (rf"\bimport[ \t]+({quoted})\b", _module),
            (r"\b(from[ \t]+[\w.]+[ \t]+import[ \t][^\n;]*)", lambda line: _imported(line, name)),
            (rf"\b{quoted}[ \t]*=[ \t]*([^=\n;][^\n;]*)", find),
            (rf"\bwith[ \t]+([^\n]*?)[ \t]as[ \t]+{quoted}[ \t]*:", find),
        )
        for pattern, look in rules:
            for text in reversed(re.findall(pattern, self._code)[-_MAX_MENTIONS:]):
                found = look(text)
                if found is not None:
                    return found
        return None


def _builtin(name: str) -> Known | None:
    value = own_dict(builtins).get(name, MISSING)
    return None if value is MISSING else Known(value)


def _module(name: str) -> Known | None:
    module = sys.modules.get(name)
    return None if module is None else Known(module)


def _imported(line: str, name: str) -> Known | None:
    """What a `from` line would bind to a name, where its module has been imported before."""
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(statement, ast.ImportFrom) or statement.level:
        return None
    module = _module(statement.module or "")
    for alias in statement.names:
        if module is not None and (alias.asname or alias.name) == name:
            return attribute(module, alias.name) or _module(f"{statement.module}.{alias.name}")
    return None
