"""A terminal hears of us through four doors, and no other module writes to one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "taskweaver_ext"
INSIDE = PACKAGE / "ces" / "inside"

DOORS = {
    "cli/gated_streams.py": "messages: what click, logging, warnings and tracebacks write",
    "cli/screen.py": "what programs write",
    "console/screen.py": "the rows of a chat",
    "console/prompt.py": "where a person types",
}
WRITES_TO_DESCRIPTORS = {
    **DOORS,
    "cli/signal_watch.py": "a fixed sentence, when nothing else works any more",
    "cli/standard_input.py": "a pipe that wakes a thread",
    "cli/main.py": "makes sure that there are streams at all",
    "stdio/line_reader.py": "a pipe that wakes a thread",
    "ces/execution/audit.py": "a file",
    "ces/execution/output_sink.py": "files",
    "ces/kernels/client/wire.py": "a pipe that wakes a thread",
    "ces/kernels/gateway/process.py": "a file",
    "ces/programs/bash.py": "a pipe to the shell",
    "ces/programs/program.py": "a pipe that wakes a thread",
    "ces/programs/shell_reader.py": "a pipe that wakes a thread",
    "ces/sessions/session_info.py": "files",
}
DRAWS = {"console/rows.py", "console/highlighting.py"}
"""May use rich: into a text, whose rows go through a door."""
TYPES = {"console/prompt.py", "console/completion.py", "console/offered_completions.py"}
RUNS_IN_KERNELS = {"cli/script_setup.py"}
"""Sent away as source."""


def modules() -> list[Path]:
    paths = (path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(INSIDE))
    return sorted(path for path in paths if name_of(path) not in RUNS_IN_KERNELS)


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def complaints(name: str, source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        wrote = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Call) else ""
        if isinstance(node, ast.Call) and wrote.startswith(("print(", "pprint(")):
            found.append(f"line {node.lineno} prints: click.echo goes through the door")
        if isinstance(node, ast.Attribute):
            is_raw = wrote.startswith(("sys.__std", "sys.stdout.buffer", "sys.stderr.buffer"))
            if is_raw or wrote in ("sys.stdout.write", "sys.stderr.write"):
                found.append(f"line {node.lineno} writes to {wrote}")
            if wrote in ("os.write", "os.writev") and name not in WRITES_TO_DESCRIPTORS:
                found.append(f"line {node.lineno} writes to a descriptor")
        if isinstance(node, ast.Constant) and node.value == "/dev/tty":
            found.append(f"line {node.lineno} opens the terminal")
        names = (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        for imported in names:
            library = imported.partition(".")[0]
            if library == "rich" and name not in DRAWS:
                found.append("uses rich")
            if library == "prompt_toolkit" and name not in TYPES:
                found.append("uses prompt_toolkit")
    return found if name not in DOORS else []


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_no_module_writes_to_a_terminal_past_the_doors(path: Path) -> None:
    assert complaints(name_of(path), path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "import sys\nsys.stderr.write('x')",
        "import sys\nsys.stdout.buffer.write(b'x')",
        "import sys\nprint('x', file=sys.__stderr__)",
        "import os\nos.write(2, b'x')",
        "open('/dev/tty', 'w')",
        "from rich.console import Console",
        "from prompt_toolkit import print_formatted_text",
    ],
)
def test_a_write_past_the_doors_is_found(source: str) -> None:
    assert complaints("cli/doctor.py", source)


PICTURES = {"console/screen.py": "writes them", "console/terminal_answers.py": "reads answers"}
"""Know the sequences of pictures; only the first of them is a door."""


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_pictures_reach_a_terminal_through_one_door(path: Path) -> None:
    texts = [node.value for node in ast.walk(ast.parse(path.read_text("utf-8")))
             if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
    has_sequences = any("\x1b_" in text or "\x1b]" in text for text in texts)

    assert not has_sequences or name_of(path) in PICTURES


def test_the_lists_name_modules_that_exist() -> None:
    for name in {*WRITES_TO_DESCRIPTORS, *PICTURES, *DRAWS, *TYPES, *RUNS_IN_KERNELS}:
        assert (PACKAGE / name).is_file(), name
