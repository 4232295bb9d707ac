"""Every example prints what its docstring says."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.containers import IMAGE, require_engine
from tests.support.server import ServerProcess

PROJECT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))
OF_A_SERVER = sorted((PROJECT / "examples").glob("*.sh")) + sorted(
    (PROJECT / "examples").glob("*.mjs")
)
LIMIT_SECONDS = 240


def run(source: str, folder: Path, **variables: str) -> str:
    """Run a program in a folder of its own; return all that it writes."""
    result = subprocess.run(
        [sys.executable, "-c", source],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return result.stdout


def promised_output(source: str) -> str:
    docstring = ast.get_docstring(ast.parse(source)) or ""
    _, _, promised = docstring.partition("Prints:\n")
    return textwrap.dedent(promised) + "\n"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    variables = {}
    if "EnvMode.Container" in source:
        variables["DOCKER_HOST"] = require_engine().url
        # The image that tests have built; the usual one is for its owner to make.
        source = source.replace("ContainerSettings(", f"ContainerSettings(image={IMAGE!r}, ")

    assert run(source, tmp_path, **variables) == promised_output(source)


@pytest.mark.parametrize("path", OF_A_SERVER, ids=lambda path: path.name)
def test_an_example_in_another_language_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    program, needed = {".sh": ("bash", "curl jq"), ".mjs": ("node", "node")}[path.suffix]
    if missing := [one for one in needed.split() if shutil.which(one) is None]:
        pytest.skip(f"{', '.join(missing)} is not installed")
    source = path.read_text(encoding="utf-8")
    [comment] = re.findall(r"Prints:\n((?:(?:#| \*) {5}.*\n)+)", source)
    promised = [line.lstrip("#* ") for line in comment.splitlines()]

    with ServerProcess(tmp_path) as server:
        printed = subprocess.run(
            [program, str(path), server.address],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )

    assert promised
    assert printed.stdout.splitlines() == promised, printed.stderr


def test_the_readme_names_every_example() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")

    assert EXAMPLES
    for path in (*EXAMPLES, *OF_A_SERVER):
        assert f"`examples/{path.name}`" in readme
