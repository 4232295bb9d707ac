"""Every example prints what its docstring says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.containers import IMAGE, require_engine

PROJECT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))
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


def test_the_readme_names_every_example() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")

    assert EXAMPLES
    assert [path.name for path in EXAMPLES if f"`examples/{path.name}`" not in readme] == []
