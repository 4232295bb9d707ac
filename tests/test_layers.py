"""The tree is the architecture: a module imports only what is listed before it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "taskweaver_ext"

ORDER = (
    "errors",
    "closing",
    "settings_reader",
    "config",
    "text.surrogates",
    "text.cell_row",
    "text.colors",
    "text.open_line",
    "text.terminal",
    "text.truncation",
    "text.json_stream",
    "text.html_markdown",
    "text.json_tree",
    "ces.forks",
    "ces.owned_folders",
    "ces.results",
    "ces.events",
    "ces.output_sink",
    "ces.delivery",
    "ces.late_output",
    "ces.files_beneath",
    "ces.artifacts",
    "ces.contract",
    "ces.audit",
    "ces.child_environment",
    "ces.shown_environment",
    "ces.interpreters",
    "ces.kernel_runtime",
    "ces.guardian",
    "ces.kernels.host",
    "ces.recorded_run",
    "ces.programs.exec_errors",
    "ces.programs.process_output",
    "ces.programs.site",
    "ces.programs.local_site",
    "ces.programs.run_records",
    "ces.programs.bash",
    "ces.programs.program",
    "ces.programs.shell_command",
    "ces.programs.shell_reader",
    "ces.programs.languages",
    "ces.programs.binary_record",
    "ces.programs.process_run",
    "ces.kernels.tracing",
    "ces.kernels.jupyter_messages",
    "ces.kernels.frames",
    "ces.kernels.wire",
    "ces.kernels.execution",
    "ces.kernels.reader",
    "ces.kernels.zygote",
    "ces.kernels.local",
    "ces.kernels.spare",
    "ces.kernels.containers.base_image",
    "ces.kernels.containers.engine_events",
    "ces.kernels.containers.engine_advice",
    "ces.kernels.containers.engine",
    "ces.kernels.containers.closed_network",
    "ces.kernels.containers.image",
    "ces.kernels.containers.limits",
    "ces.kernels.containers.folder_watch",
    "ces.kernels.containers.description",
    "ces.kernels.containers.connection",
    "ces.kernels.containers.failures",
    "ces.kernels.containers.leftovers",
    "ces.kernels.containers.life",
    "ces.kernels.containers.spawner",
    "ces.kernels.containers.program",
    "ces.kernels.containers.program_folder",
    "ces.kernels.containers.programs",
    "ces.kernels.containers.mounts",
    "ces.kernels.containers.box",
    "ces.kernels.containers.sites",
    "ces.kernels.container",
    "ces.kernels.gateways.address",
    "ces.kernels.gateways.api",
    "ces.kernels.gateways.messages",
    "ces.kernels.gateways.line",
    "ces.kernels.gateways.lasting_line",
    "ces.kernels.gateways.received_frames",
    "ces.kernels.gateways.connection",
    "ces.kernels.gateways.process",
    "ces.kernels.gateway",
    "ces.kernels.shared_gateway",
    "ces.sessions.startup_scripts",
    "ces.sessions.equipment",
    "ces.sessions.session_folder",
    "ces.sessions.session_info",
    "ces.sessions.kernel_keeper",
    "ces.sessions.current_kernel",
    "ces.sessions.turns",
    "ces.sessions.kernel_session",
    "ces.sessions.kernel_source",
    "ces.environment",
    "ces.shell",
    "ces.process",
    "ces.kernel_executor",
    "ces.registry",
    "ces.cells.display_text",
    "ces.cells.cell_record",
    "ces.cells.python_call",
    "ces.cells.tool_choice",
    "ces.cells.running_call",
    "ces.python_tool",
    "conversation",
    "session_events",
    "event_history",
    "event_dispatcher",
    "event_emitter",
    "output_batcher",
    "llm",
    "streaming.quoting",
    "streaming.channels",
    "streaming.subscriptions",
    "streaming.code_cleaning",
    "streaming.text_blocks",
    "streaming.decision",
    "streaming.exec_widget",
    "plugins",
    "approval",
    "roles",
    "session_folders",
    "session_files",
    "session_turns",
    "session",
    "app",
    "chat",
    "demo",
    "cli",
)
"""Modules, and packages whose modules may import each other as they like."""

KERNEL_RUNTIME = "ces.kernel_runtime"
"""Sent to kernels as source: there it has another name, and nothing of ours beside it."""
IN_EVERY_KERNEL = {"IPython", "ipykernel", "jupyter_client", "traitlets", "zmq"}
NAME_IN_KERNELS = "taskweaver_kernel"

MAY_IMPORT_LATE = {
    *("", "cli", "llm", "app", "chat", "roles"),
    *("ces.sessions.kernel_source", KERNEL_RUNTIME),
}
"""The root exports lazily, commands stay light, vendors' SDKs are optional, only who runs
containers or gateways pays for them, and a prompt appears before what only answers need."""
MAY_READ_THE_ENVIRONMENT = {
    *("config", "ces.child_environment", "ces.shown_environment"),
    KERNEL_RUNTIME,
}
ENVIRONMENT_NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def modules() -> Iterator[tuple[str, str]]:
    """Yield every module's name below the package ("" is its root) and its source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, path.read_text(encoding="utf-8")


def place_of(name: str) -> str | None:
    """Return the entry of ORDER that holds `name`, which may also be a name inside a module."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (entry := ".".join(parts[:length])) in ORDER:
            return entry
    return None


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of everything imported absolutely."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def complaints(module: str, source: str) -> list[str]:
    """Return what is wrong with the imports of a module, one sentence each."""
    tree = ast.parse(source)
    names = list(imported_names(tree))
    place = place_of(module)
    if module and place is None:
        is_package = (PACKAGE / module.replace(".", "/")).is_dir()
        if is_package and not names:
            return []  # an empty __init__.py
        return [f"{module} has no place in ORDER: list it after everything it imports."]
    found = [
        *complaints_about_late_imports(module, place, tree),
        *complaints_about_the_environment(module, place, tree),
    ]
    if place == KERNEL_RUNTIME:
        return found + complaints_about_kernel_imports(module, names)
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        found.append(f"{module} imports relatively: write the whole name.")
    return found + complaints_about_order(module, place, names)


def complaints_about_order(module: str, place: str | None, names: list[str]) -> list[str]:
    position = len(ORDER) if place is None else ORDER.index(place)
    found = []
    for name in names:
        root, _, inner_name = name.partition(".")
        if root != PACKAGE.name:
            continue
        target = place_of(inner_name)
        if target is None:
            found.append(f"{module} imports {name}, which has no place in ORDER.")
        elif ORDER.index(target) > position:
            found.append(f"{module} imports {target}, which comes after it.")
    return found


def complaints_about_kernel_imports(module: str, names: list[str]) -> list[str]:
    siblings = {path.stem for path in (PACKAGE / KERNEL_RUNTIME.replace(".", "/")).glob("*.py")}
    allowed = sys.stdlib_module_names | IN_EVERY_KERNEL | siblings | {NAME_IN_KERNELS}
    return [
        f"{module} imports {name}, which a kernel need not have."
        for name in names
        if name.partition(".")[0] not in allowed
    ]


def complaints_about_late_imports(module: str, place: str | None, tree: ast.AST) -> list[str]:
    if (place or "") in MAY_IMPORT_LATE:
        return []
    return [
        f"{module}, line {inner.lineno}: the import belongs to the top."
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]


def complaints_about_the_environment(module: str, place: str | None, tree: ast.AST) -> list[str]:
    if place in MAY_READ_THE_ENVIRONMENT:
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


def test_no_module_is_listed_twice() -> None:
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("brand_new", "import os", "brand_new has no place in ORDER"),
        ("text", "from taskweaver_ext.text.terminal import fold", "text has no place in ORDER"),
        ("errors", "from taskweaver_ext.config import load", "errors imports config"),
        ("errors", "from taskweaver_ext import config", "errors imports config"),
        ("errors", "import taskweaver_ext.ces.shell as shell", "errors imports ces.shell"),
        ("ces.results", "from taskweaver_ext.ces import events", "ces.results imports ces.events"),
        ("app", "from taskweaver_ext import Environment", "which has no place in ORDER"),
        ("app", "import taskweaver_ext", "which has no place in ORDER"),
        ("ces.shell", "from .results import ExecutionResult", "imports relatively"),
        (
            "ces.results",
            "if TYPE_CHECKING:\n    from taskweaver_ext.session import Session",
            "ces.results imports session",
        ),
        ("ces.shell", "def run():\n    import json", "line 2: the import belongs to the top"),
        ("session", "async def run():\n    from os import path", "belongs to the top"),
        ("session", "import os\nx = os.environ['A']", "line 2: the environment"),
        ("session", "import os\nx = os.getenv('A')", "line 2: the environment"),
        ("session", "from os import environ", "line 1: the environment"),
        ("ces.kernel_runtime.streams", "import numpy", "a kernel need not have"),
        (
            "ces.kernel_runtime.streams",
            "from taskweaver_ext.errors import KernelError",
            "a kernel need not have",
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
        ("ces.shell", "from taskweaver_ext.ces import results\nimport json, httpx"),
        ("cli.run", "def run():\n    from taskweaver_ext.ces.environment import Environment"),
        ("llm.openai_model", "from taskweaver_ext.llm.factory import create"),
        ("config", "import os\nx = os.environ"),
        ("ces.kernel_runtime.launch", "import os, zmq\nfrom .streams import TextStream"),
    ],
)
def test_the_rules_allow_what_follows_them(module: str, source: str) -> None:
    assert complaints(module, source) == []
