"""What fits at a place in code that is being typed.

Names, attributes, parameters, keys, modules, magics and paths, found without running code of the
user: see `static_look.py`.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.machinery
import keyword
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from .inspection import Parameter, parameters_of, signature_of
from .known_expressions import Expressions
from .short_values import type_name
from .source_text import OpenString, SourceText, Token
from .static_look import Known, attribute, is_well_known, kind_of, names_of, own_dict

MAX_MATCHES = 500

_MAX_TEXT = 300
_MAX_DETAILED = 100
_MAX_ENTRIES = 5000
_MAX_MODULE_BYTES = 2_000_000
_IMPORT = re.compile(r"\s*import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*([\w.]*)")
_FROM = re.compile(r"\s*from\s+([\w.]*)")
_FROM_IMPORT = re.compile(r"\s*from\s+([\w.]+)\s+import\s+\(?(?:\w+(?:\s+as\s+\w+)?\s*,\s*)*(\w*)")
_MAGIC = re.compile(r"\s*(%{1,2})(\w*)")
_COMMAND = re.compile(r"\s*(?:%\w+|!)(?:.*[\s=])?([^\s=]*)")
_WORD = re.compile(r"\w*\Z")
_SUFFIXES = tuple(importlib.machinery.all_suffixes())

Match = tuple[str, str, str]
"""A text, its kind in Jupyter's words, and what more is known of it."""


class Completer:
    """Finds what fits, among the variables of the user and what Python knows."""

    def __init__(
        self,
        namespace: dict[str, Any],
        hidden: Iterable[str],
        magics: Callable[[], list[str]],
        folder: str = ".",
    ) -> None:
        """Find in a namespace.

        Args:
            hidden: Names in it that are not the user's.
            folder: What paths are relative to.
        """
        self._namespace = namespace
        self._hidden = frozenset(hidden)
        self._magics = magics
        self._folder = folder

    def complete(self, code: str, cursor: int) -> dict[str, Any]:
        """Return what fits before the cursor, and which part of the code it would replace."""
        before = code[:cursor]
        line = before.rpartition("\n")[2]
        expressions = Expressions(self._namespace, code)
        source = SourceText(before)
        start, matches = self._find(before, line, source, expressions)
        found = list(islice(_unique(matches), MAX_MATCHES + 1))
        return {
            "start": start,
            "end": cursor,
            "matches": [list(match) for match in found[:MAX_MATCHES]],
            "is_cut": len(found) > MAX_MATCHES,
        }

    def _find(
        self, before: str, line: str, source: SourceText, expressions: Expressions
    ) -> tuple[int, Iterator[Match]]:
        end = len(before)
        if source.open_string is None and (magic := _MAGIC.fullmatch(line)):
            return end - len(magic[0].lstrip()), self._magic_names(magic[1], magic[2])
        if source.open_string is None and (command := _COMMAND.fullmatch(line)):
            return end - len(command[1].rpartition("/")[2]), _paths(self._folder, command[1], "")
        if source.open_string is not None:
            return self._in_string(before, source, source.open_string, expressions)
        if source.is_comment:
            return end, iter(())
        if (found := _imports(line)) is not None:
            return end - len(found[0]), found[1]
        word = _WORD.search(before)
        prefix = word[0] if word else ""
        start = end - len(prefix)
        if prefix[:1].isdigit() or (source.tokens and _is_number_at(source.tokens[-1], end)):
            return end, iter(())
        last = len(source.tokens) - (1 if prefix else 0)
        if last and source.tokens[last - 1].text == ".":
            owner = expressions.find(source.expression_before(last - 1))
            return start, _attributes(owner, prefix)
        return start, self._names(source, expressions, last, prefix)

    def _magic_names(self, signs: str, start: str) -> Iterator[Match]:
        for name in sorted(self._magics(), key=lambda name: (name.count("%"), name)):
            if name.lstrip("%").startswith(start) and (signs == "%" or name.startswith("%%")):
                yield name, "magic", ""

    def _in_string(
        self, before: str, source: SourceText, string: OpenString, expressions: Expressions
    ) -> tuple[int, Iterator[Match]]:
        content = before[string.content_start :]
        if "f" in string.prefix or "t" in string.prefix:
            hole = content.replace("{{", "  ").rfind("{")
            if hole > content.rfind("}"):
                code = content[hole + 1 :]
                start, matches = self._find(code, code, SourceText(code), expressions)
                return len(before) - len(code) + start, matches
        opener = source.open_brackets[-1] if source.open_brackets else -1
        if opener >= 0 and opener == len(source.tokens) - 1 and source.tokens[opener].text == "[":
            owner = expressions.find(source.expression_before(opener))
            keys = [key for key in _keys(owner) if type(key) is str]
            if keys:
                return string.content_start, _texts_for(keys, content, string.quote)
        if "\n" in content:
            return len(before), iter(())
        return len(before) - len(content.rpartition("/")[2]), _paths(
            self._folder, content, string.quote
        )

    def _names(
        self, source: SourceText, expressions: Expressions, last: int, prefix: str
    ) -> Iterator[Match]:
        if source.open_brackets:
            yield from self._of_bracket(source, expressions, last, prefix)
        is_private = prefix.startswith("_")
        namespace = self._namespace
        names = [
            name
            for name in list(namespace)
            if type(name) is str
            and name.startswith(prefix)
            and (is_private or not name.startswith("_"))
            and name not in self._hidden
        ]
        names.sort()
        for count, name in enumerate(names):
            yield _described(name, Known(namespace.get(name)), count)
        for name in sorted(source.words() - {prefix}):
            if prefix and name.startswith(prefix) and not keyword.iskeyword(name):
                yield name, "statement", ""
        for name in keyword.kwlist:
            if name.startswith(prefix):
                yield name, "keyword", ""
        built_in = own_dict(builtins)
        hidden = [name for name in self._hidden if name in namespace and name not in built_in]
        for count, name in enumerate(sorted([*built_in, *hidden])):
            if name.startswith(prefix) and (is_private or not name.startswith("_")):
                yield _described(name, Known(namespace.get(name, built_in.get(name))), count)

    def _of_bracket(
        self, source: SourceText, expressions: Expressions, last: int, prefix: str
    ) -> Iterator[Match]:
        opener = source.open_brackets[-1]
        called = expressions.find(source.expression_before(opener))
        if called is None:
            return
        if source.tokens[opener].text == "(" and called.has_value:
            given = _given(source, opener)
            for one in parameters_of(called.value) or ():
                if one.can_be_named and one.name.startswith(prefix) and one.name not in given:
                    yield f"{one.name}=", "param", _default_of(one)
        elif source.tokens[opener].text == "[" and not prefix and opener == last - 1:
            for key in _keys(called):
                if type(key) in (str, int):
                    yield repr(key)[:_MAX_TEXT], "key", ""


def _is_number_at(token: Token, end: int) -> bool:
    return token.kind == "number" and token.end == end


def _unique(matches: Iterator[Match]) -> Iterator[Match]:
    seen: set[str] = set()
    for match in matches:
        if match[0] not in seen and len(match[0]) <= _MAX_TEXT:
            seen.add(match[0])
            yield match


def _described(name: str, found: Known | None, count: int) -> Match:
    """A name with its kind and, for the first ones, its signature or type."""
    kind = kind_of(found)
    detail = ""
    if count < _MAX_DETAILED and found is not None and found.has_value:
        detail = type_name(found.value) if kind == "instance" else signature_of(found.value)
    return name, kind, detail[:_MAX_TEXT]


def _attributes(owner: Known | None, prefix: str) -> Iterator[Match]:
    if owner is None:
        return
    names = [name for name in names_of(owner) if name.startswith(prefix)]
    names = [name for name in names if prefix.startswith("_") or not name.startswith("_")]
    for count, name in enumerate(sorted(names)):
        # Of those that are too many to be described only what is cheap is found.
        is_cheap = count < MAX_MATCHES and not is_well_known(owner.kind)
        found = attribute(owner, name) if is_cheap else _on_class(owner, name)
        yield _described(name, found, count)


def _on_class(owner: Known, name: str) -> Known | None:
    """An attribute of an object of a package, without asking the object: it may compute it."""
    return attribute(Known(kind=owner.kind), name)


def _given(source: SourceText, opener: int) -> set[str]:
    """The parameters that a call names already."""
    tokens = source.tokens[opener + 1 :]
    return {tokens[i - 1].text for i in range(1, len(tokens)) if tokens[i].text == "="}


def _default_of(parameter: Parameter) -> str:
    return parameter.text if "=" in parameter.text else ""


def _keys(owner: Known | None) -> list[Any]:
    """The keys of a mapping, or the columns of a table."""
    if owner is None or not owner.has_value:
        return []
    value = owner.value
    if issubclass(owner.kind, dict):
        with contextlib.suppress(RuntimeError):  # it is being changed at this moment
            return list(islice(dict.__iter__(value), _MAX_ENTRIES))
    if is_well_known(owner.kind):
        try:
            columns = getattr(value, "columns", None)
            if columns is None:
                columns = getattr(getattr(value, "dtype", None), "names", None) or ()
            return list(islice(columns, _MAX_ENTRIES))
        except Exception:  # noqa: BLE001 - it is the code of other packages
            return []
    return []


def _texts_for(keys: list[str], start: str, quote: str) -> Iterator[Match]:
    for key in keys:
        text = _escaped(key, quote)
        if text.startswith(start):
            yield text, "key", ""


def _escaped(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace(quote, f"\\{quote}") if quote else escaped


def _paths(home: str, typed: str, quote: str) -> Iterator[Match]:
    folder, _, start = typed.rpartition("/")
    place = os.path.join(home, os.path.expanduser(f"{folder}/" if "/" in typed else "."))
    try:
        with os.scandir(place) as entries:
            found = sorted(
                (entry.name, entry.is_dir())
                for entry in islice(entries, _MAX_ENTRIES)
                if entry.name.startswith(start) and (start or not entry.name.startswith("."))
            )
    except (OSError, ValueError):
        return
    for name, is_folder in found:
        yield _escaped(name, quote) + ("/" if is_folder else ""), "path", ""


def _imports(line: str) -> tuple[str, Iterator[Match]] | None:
    """What an import statement would go on with, and which part of it is typed."""
    if found := _FROM_IMPORT.fullmatch(line):
        return found[2], _members(found[1], found[2])
    if found := _FROM.fullmatch(line) or _IMPORT.fullmatch(line):
        package, _, start = found[1].rpartition(".")
        return start, _modules(package, start)
    return None


def _modules(package: str, start: str) -> Iterator[Match]:
    places = _places_of(package) if package else [place or "." for place in sys.path]
    names = set() if package else {*sys.builtin_module_names, *_standard_modules()}
    for place in places:
        names.update(_modules_in(place))
    if not package:
        names.update(name for name in list(sys.modules) if "." not in name)
    for name in sorted(names):
        is_offered = name.startswith(start) and (start or not name.startswith("_"))
        if is_offered and name.isidentifier():
            yield name, "module", ""


def _standard_modules() -> Iterable[str]:
    return getattr(sys, "stdlib_module_names", ())


def _places_of(package: str) -> list[str]:
    """The folders of a package, without importing it."""
    module = sys.modules.get(package)
    if module is not None:
        path = own_dict(module).get("__path__")
        return [one for one in path if type(one) is str] if type(path) is list else []
    parent, _, name = package.rpartition(".")
    folders = _places_of(parent) if parent else [place or "." for place in sys.path]
    return [place for folder in folders if os.path.isdir(place := os.path.join(folder, name))]


def _modules_in(folder: object) -> Iterator[str]:
    if type(folder) is not str:
        return
    with contextlib.suppress(OSError, ValueError), os.scandir(folder) as entries:
        for entry in islice(entries, _MAX_ENTRIES):
            name, dot, ending = entry.name.partition(".")
            if (
                dot
                and f".{ending}" in _SUFFIXES
                or not dot
                and entry.is_dir()
                and name != "__pycache__"
            ):
                yield name


def _members(package: str, start: str) -> Iterator[Match]:
    module = sys.modules.get(package)
    if module is not None:
        yield from _attributes(Known(module), start)
    else:
        for name in sorted(_names_in_file(package)):
            if name.startswith(start) and (start.startswith("_") or not name.startswith("_")):
                yield name, "statement", ""
    yield from _modules(package, start)


def _names_in_file(package: str) -> set[str]:
    """What a module that was not imported yet defines, by its source."""
    parent, _, name = package.rpartition(".")
    folders = _places_of(parent) if parent else [place or "." for place in sys.path]
    for folder in folders:
        if type(folder) is not str:
            continue
        for file in (f"{name}.py", os.path.join(name, "__init__.py")):
            path = os.path.join(folder, file)
            try:
                if os.path.getsize(path) > _MAX_MODULE_BYTES:
                    continue
                with open(path, "rb") as source:
                    return _names_in(ast.parse(source.read()))
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return set()


def _names_in(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((one.asname or one.name).partition(".")[0] for one in node.names)
        elif isinstance(node, ast.Assign):
            names.update(one.id for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names - {"*"}
