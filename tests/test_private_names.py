"""Tests, benchmarks and examples use what the package shows; only a module's own tests look inside.

`tests/a/test_b.py` tests `taskweaver_ext/a/b.py`, and may use the private names which that module
defines: its functions, classes and constants, and the members of its classes.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tests", "scripts", "examples")
PACKAGE = "taskweaver_ext"

NAMEDTUPLE_METHODS = {"_asdict", "_fields", "_make", "_replace"}
"""Public: the underscore only keeps them apart from the fields."""
TAKE_A_NAME = {"attrgetter", "delattr", "getattr", "hasattr", "object", "patch", "setattr"}
"""Calls that reach an attribute by its name: Python's own, `monkeypatch`'s, `mock`'s."""
SELF = "self"


class Use(NamedTuple):
    """A private name in a file."""

    line: int
    owner: str
    """What it belongs to: SELF, the full name of something imported, or "" for anything else."""
    name: str


def files() -> list[str]:
    """Return the path of every file that the rule is for; this one shows what breaks it."""
    found = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    return sorted(path.relative_to(ROOT).as_posix() for path in found - {Path(__file__).resolve()})


def is_private(name: str) -> bool:
    return any(re.match(r"_(?!_)\w", part) for part in name.split("."))


def is_below(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")


def module_tested_by(path: str) -> str:
    """Return the module that a file is the test of, or ""."""
    found = re.fullmatch(r"tests/((?:\w+/)*)test_(\w+)\.py", path)
    module = f"{PACKAGE}/{found[1]}{found[2]}".replace("/", ".") if found else ""
    return module if names_in_module(module) else ""


@cache
def names_in_module(module: str) -> frozenset[str]:
    """Return the private names that a module of ours defines."""
    path = ROOT / (module.replace(".", "/") + ".py")
    return private_names(ast.parse(path.read_text("utf-8"))) if path.is_file() else frozenset()


def private_names(tree: ast.AST) -> frozenset[str]:
    """Return the private names that are defined: variables, functions, classes and members."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store())
            ) if is_private(name):
                found.add(name)
    return frozenset(found)


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Return the full name of everything that is imported, by its name in the file."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                found |= {alias.asname or alias.name: alias.name for alias in aliases}
            case ast.ImportFrom(module=module, names=aliases):
                found |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in aliases}
    return found


def programs(source: str) -> Iterator[ast.AST]:
    """Yield a file, and the programs in its strings that import the package."""
    file = ast.parse(source)
    yield file
    for node in ast.walk(file):
        match node:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=parts):
                text = "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
            case _:
                continue
        if re.search(rf"^\s*(from|import) {PACKAGE}", text, re.MULTILINE):
            with suppress(SyntaxError):  # prose, or a part of a program
                yield ast.increment_lineno(ast.parse(text), node.lineno - 1)


def private_uses(tree: ast.AST) -> Iterator[Use]:
    """Yield every private name that is read, set, imported, replaced or overridden."""
    imported = imported_names(tree)

    def owner(expression: ast.expr) -> str:
        written = ast.unparse(expression)
        if written in ("self", "cls"):
            return SELF
        first, dot, rest = written.partition(".")
        return imported[first] + dot + rest if first in imported else ""

    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=name) if is_private(name):
                yield Use(node.lineno, owner(value), name)
            case ast.keyword(arg=str(name)) if is_private(name):
                yield Use(node.value.lineno, "", name)
            case ast.Import(names=aliases):
                yield from (Use(node.lineno, alias.name, alias.name) for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases):
                yield from (Use(node.lineno, str(module), alias.name) for alias in aliases)
                yield Use(node.lineno, str(module), str(module))
            case ast.Call(args=[value, ast.Constant(value=str(name)), *_]) if takes_a_name(node):
                yield Use(node.lineno, owner(value), name)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if takes_a_name(node):
                yield Use(node.lineno, name.rpartition(".")[0], name)
            case ast.ClassDef(bases=bases):
                for base in map(owner, bases):
                    overridden = private_names(node) & names_in_module(base.rpartition(".")[0])
                    yield from (Use(node.lineno, base, name) for name in sorted(overridden))


def takes_a_name(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in TAKE_A_NAME


def complaints(path: str, source: str) -> list[str]:
    """Return what is wrong with the private names in a file, one sentence each."""
    tested = module_tested_by(path)
    inside = names_in_module(tested)
    here = private_names(ast.parse(source))

    def is_allowed(use: Use) -> bool:
        if not is_private(use.name) or use.name in NAMEDTUPLE_METHODS:
            return True
        if use.owner == SELF:
            return use.name in here | inside
        if use.owner.partition(".")[0] in sys.stdlib_module_names:
            return True
        is_elsewhere = is_below(use.owner, PACKAGE) and not is_below(use.owner, tested)
        return use.name.rpartition(".")[2] in inside and not is_elsewhere

    return [
        f"{path}, line {use.line}: {use.name} is private."
        for tree in programs(source)
        for use in private_uses(tree)
        if not is_allowed(use)
    ]


@pytest.mark.parametrize("path", files())
def test_a_file_uses_no_private_names_of_others(path: str) -> None:
    assert complaints(path, (ROOT / path).read_text(encoding="utf-8")) == []


TEST_OF_FILES_BENEATH = "tests/ces/execution/test_files_beneath.py"
FILES_BENEATH = "taskweaver_ext.ces.execution.files_beneath"


@pytest.mark.parametrize(
    "source",
    [
        "environment._source.start()",
        "environment._source = None",
        "print(f'{environment._source}')",
        "from taskweaver_ext.ces.environment import Environment, _let_go",
        "import taskweaver_ext._hidden",
        "from taskweaver_ext._hidden import x",
        "from taskweaver_ext.llm import fetch\nfetch._walk()",
        "import zmq\nzmq.Context._shared",
        "monkeypatch.setattr(environment, '_source', None)",
        "monkeypatch.setattr('taskweaver_ext.ces.environment._let_go', None)",
        "mock.patch('taskweaver_ext.ces.environment._let_go')",
        "mock.patch.object(environment, '_source')",
        "getattr(environment, '_source')",
        "Environment(_source=None)",
        "class Mine:\n    def find(self):\n        return self._not_mine",
        "class Mine:\n    def _find(self):\n        return super()._find()",
        "from taskweaver_ext.console.screen import TerminalScreen\n"
        "class Mine(TerminalScreen):\n    def _write(self, text): ...",
        "program = 'from taskweaver_ext import Environment\\nEnvironment()._source'",
        "program = f'import taskweaver_ext\\n{name}.x._source'",
    ],
)
@pytest.mark.parametrize("path", [TEST_OF_FILES_BENEATH, "tests/support/x.py", "examples/x.py"])
def test_the_rule_catches_what_breaks_it(path: str, source: str) -> None:
    assert len(complaints(path, source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        f"from {FILES_BENEATH} import _walk",
        f"import {FILES_BENEATH} as files_beneath\nfiles_beneath._walk()",
        f"monkeypatch.setattr('{FILES_BENEATH}._walk', None)",
        "monkeypatch.setattr(files_beneath, '_walk', None)",
        "opened._walk()",
    ],
)
def test_only_the_tests_of_a_module_may_use_its_private_names(source: str) -> None:
    assert complaints(TEST_OF_FILES_BENEATH, source) == []
    assert len(complaints("tests/ces/execution/test_artifacts.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import os, sys, _thread\nos._exit(sys._getframe().f_lineno)",
        "from ctypes import _SimpleCData",
        "usage._replace(free=1)._asdict()",
        "environment.__class__.__name__",
        "_mine = 1\ndef _my_own(): return _mine\n_my_own()",
        "class Mine:\n    def __init__(self):\n        self._mine = 1\n        print(self._mine)",
        "class Mine:\n    _made = 0\n    @classmethod\n    def make(cls): cls._made += 1",
        "for _, _ in pairs: getattr(module, 'public')",
        "code = 'import os; kernel._anything'",
    ],
)
def test_the_rule_allows_what_follows_it(source: str) -> None:
    assert complaints("tests/x.py", source) == []
