"""The tree is the architecture: a folder imports only what is listed before it."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "taskweaver_ext"

ORDER = (
    *("errors", "closing", "text", "config", "machine"),
    *(
        "ces.execution",
        "ces.inside.kernel",
        "ces.inside.spawner",
        "ces.inside.sandbox",
        "ces.inside",
    ),
    *("ces.sandbox", "ces.programs"),
    *("ces.kernels.client", "ces.kernels.local", "ces.kernels.container"),
    *("ces.kernels.sandbox", "ces.kernels.gateway"),
    *("ces.kernels", "ces.sessions", "ces"),
    *("tools", "conversation", "events", "llm", "traces", "streaming", "plugins", "approval"),
    *("roles.base", "roles.planner", "roles.code_interpreter", "roles.echo", "roles"),
    *("session.blocks", "session.export", "session", "app", "demo", "chat", "console", "stdio"),
    *("server", "client", "cli"),
)
"""Folders, and the modules beside them; a folder after those in it: none imports its parent."""

INSIDE = "ces.inside"
"""Sent away as source: there it has another name, and nothing of ours beside it."""
IN_EVERY_KERNEL = {"IPython", "ipykernel", "jupyter_client", "traitlets", "zmq"}
NAME_INSIDE = "taskweaver_inside"

MAY_IMPORT_LATE = (
    *("cli", "llm", "app", "console", "roles", "session.export", "ces.kernels.modes"),
    INSIDE,
)
"""Commands stay light, vendors' SDKs are optional, only users of containers or gateways pay for
them, and a prompt appears before what only answers need."""
MAY_READ_THE_ENVIRONMENT = ("config", "machine.child_environment", INSIDE)
MAY_READ_VARIABLES = ("cli", "console", "llm.fetch", "tools", "ces.environment")
"""Doors, which hand down what `config.variables` says."""
ENVIRONMENT_NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def modules() -> Iterator[tuple[str, str]]:
    """Yield every module's name below the package ("" is its root) and its source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, path.read_text(encoding="utf-8")


def is_below(module: str, *folders: str) -> bool:
    return any(module == folder or module.startswith(f"{folder}.") for folder in folders)


def place_of(module: str) -> str | None:
    """Return the entry of ORDER that holds a module: its folder, or itself where it has none."""
    return next((entry for entry in (module, module.rpartition(".")[0]) if entry in ORDER), None)


def imported_modules(module: str, tree: ast.AST) -> Iterator[str]:
    """Yield the full name of every module that is imported, of ours or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = f"{PACKAGE.name}.{module}".split(".")[: -node.level or None]
            start = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            for alias in node.names:
                name = f"{start}.{alias.name}"
                yield name if is_module(name) else start


def is_module(name: str) -> bool:
    path = PACKAGE.parent / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def ours(names: Iterator[str]) -> list[str]:
    """Return the modules of the package among them, without its name."""
    found = (name.split(".", 1) for name in names if is_below(name, PACKAGE.name))
    return ["".join(parts[1:]) for parts in found]


def complaints(module: str, source: str) -> list[str]:
    """Return what is wrong with the imports of a module, one sentence each."""
    tree = ast.parse(source)
    if module and place_of(module) is None:
        return [f"{module} has no place in ORDER: list its folder after all that it imports."]
    found = [
        *complaints_about_late_imports(module, tree),
        *complaints_about_the_environment(module, tree),
        *complaints_about_variables(module, tree),
        *complaints_about_order(module, tree),
    ]
    if is_below(module, INSIDE):
        return found + complaints_about_what_is_sent_away(module, tree)
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        found.append(f"{module} imports relatively: write the whole name.")
    return found


def complaints_about_variables(module: str, tree: ast.AST) -> list[str]:
    variables = "config.variables"
    if is_below(module, *MAY_READ_VARIABLES) or variables not in ours(
        imported_modules(module, tree)
    ):
        return []
    return [f"{module} reads {variables}: have it handed down instead."]


def complaints_about_order(module: str, tree: ast.AST) -> list[str]:
    place = place_of(module)
    position = len(ORDER) if place is None else ORDER.index(place)
    found = []
    for name in ours(imported_modules(module, tree)):
        target = place_of(name)
        if target is None:
            found.append(f"{module} imports {name or PACKAGE.name}, which has no place in ORDER.")
        elif ORDER.index(target) > position:
            found.append(f"{module} imports {name}, but {target} comes after it.")
    return found


def complaints_about_what_is_sent_away(module: str, tree: ast.AST) -> list[str]:
    scripts = {path.stem for path in (PACKAGE / INSIDE.replace(".", "/")).glob("*.py")}
    allowed = sys.stdlib_module_names | IN_EVERY_KERNEL | scripts | {NAME_INSIDE}
    return [
        f"{module} imports {name}, which a kernel need not have."
        for name in imported_modules(module, tree)
        if name.partition(".")[0] not in allowed and not is_below(name, f"{PACKAGE.name}.{INSIDE}")
    ]


def complaints_about_late_imports(module: str, tree: ast.AST) -> list[str]:
    if not module or is_below(module, *MAY_IMPORT_LATE):
        return []  # the root exports lazily
    return [
        f"{module}, line {inner.lineno}: the import belongs to the top."
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]


def complaints_about_the_environment(module: str, tree: ast.AST) -> list[str]:
    if is_below(module, *MAY_READ_THE_ENVIRONMENT):
        return []
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT_NAMES)
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and any(alias.name in ENVIRONMENT_NAMES for alias in node.names)
        )
    ]
    return [f"{module}, line {line}: the environment is config's to read." for line in lines]


@pytest.mark.parametrize(
    ("module", "source"), [pytest.param(*m, id=m[0] or ".") for m in modules()]
)
def test_a_module_imports_only_what_is_listed_before_it(module: str, source: str) -> None:
    assert complaints(module, source) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: ours(imported_modules(name, ast.parse(text))) for name, text in modules()}

    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names them


def test_every_folder_is_listed_once_and_before_its_parent() -> None:
    folders = {name.rpartition(".")[0] for name, _ in modules()} - {""}

    assert folders <= set(ORDER)
    assert len(set(ORDER)) == len(ORDER)
    for folder in ORDER:
        parent = folder.rpartition(".")[0]
        assert parent not in ORDER or ORDER.index(folder) < ORDER.index(parent)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("brand_new", "import os", "brand_new has no place in ORDER"),
        ("errors", "from taskweaver_ext.config.settings import load", "but config comes after it"),
        ("errors", "from taskweaver_ext.config import settings", "errors imports config.settings"),
        ("errors", "import taskweaver_ext.ces.shell as shell", "errors imports ces.shell"),
        ("text.terminal", "from taskweaver_ext.ces.execution import events", "ces.execution comes"),
        ("ces.sessions.turns", "from taskweaver_ext.ces.shell import x", "but ces comes after it"),
        ("app", "from taskweaver_ext import Environment", "which has no place in ORDER"),
        ("app", "import taskweaver_ext", "which has no place in ORDER"),
        ("ces.shell", "from .environment import Environment", "imports relatively"),
        (
            "ces.execution.results",
            "if TYPE_CHECKING:\n    from taskweaver_ext.session.session import Session",
            "ces.execution.results imports session.session",
        ),
        ("ces.shell", "def run():\n    import json", "line 2: the import belongs to the top"),
        ("session.session", "async def run():\n    from os import path", "belongs to the top"),
        ("session.session", "import os\nx = os.environ['A']", "line 2: the environment"),
        ("session.session", "import os\nx = os.getenv('A')", "line 2: the environment"),
        ("session.session", "from os import environ", "line 1: the environment"),
        (
            "ces.sessions.turns",
            "from taskweaver_ext.config import variables",
            "have it handed down instead",
        ),
        ("ces.inside.kernel.streams", "import numpy", "a kernel need not have"),
        (
            "ces.inside.kernel.streams",
            "from taskweaver_ext.errors import KernelError",
            "a kernel need not have",
        ),
        (
            "ces.inside.kernel.streams",
            "from ..spawner.copying import Copying",
            "but ces.inside.spawner comes after it",
        ),
    ],
)
def test_the_rules_catch_what_breaks_them(module: str, source: str, complaint: str) -> None:
    found = complaints(module, source)

    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("", "from taskweaver_ext.cli.main import main"),
        ("text", '"""Nothing."""'),
        ("ces.shell", "from taskweaver_ext.ces.execution import results\nimport json, httpx"),
        ("cli.run", "def run():\n    from taskweaver_ext.ces.environment import Environment"),
        ("llm.openai_model", "from taskweaver_ext.llm.factory import create"),
        ("config.variables", "import os\nx = os.environ"),
        ("ces.inside.kernel.launch", "import os, zmq\nfrom .streams import TextStream"),
    ],
)
def test_the_rules_allow_what_follows_them(module: str, source: str) -> None:
    assert complaints(module, source) == []
