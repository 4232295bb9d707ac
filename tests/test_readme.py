"""Every block of the README does what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
LIMIT_SECONDS = 240


class Block(NamedTuple):
    """A fenced block: its language ("" for a drawing), its text, and its line."""

    language: str
    text: str
    line: int


BLOCKS = [
    Block(match[1], match[2], README[: match.start()].count("\n") + 1)
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
]


def blocks_in(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def name_of(block: Block) -> str:
    return f"line {block.line}"


def run(arguments: list[str], cwd: Path) -> str:
    """Run something where our program is on the path; return all it writes, as a screen would."""
    search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        arguments,
        cwd=cwd,
        env={**os.environ, "PATH": search_path, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return result.stdout


def test_every_block_is_of_a_kind_that_is_tried() -> None:
    assert {block.language for block in BLOCKS} == {"", "sh", "python", "output", "console"}
    for block, following in zip(BLOCKS, BLOCKS[1:], strict=False):
        assert (block.language == "python") == (following.language == "output"), name_of(block)


@pytest.mark.parametrize("block", blocks_in("python"), ids=name_of)
def test_a_program_prints_what_is_shown(block: Block, tmp_path: Path) -> None:
    shown = BLOCKS[BLOCKS.index(block) + 1]

    assert run([sys.executable, "-c", block.text], tmp_path) == shown.text


@pytest.mark.parametrize("block", blocks_in("console"), ids=name_of)
def test_commands_print_what_is_shown(block: Block, tmp_path: Path) -> None:
    for session in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = session.partition("\n")

        assert run(["bash", "-c", command], tmp_path) == shown


@pytest.mark.parametrize("block", blocks_in("sh"), ids=name_of)
def test_a_script_that_is_named_exists_and_can_be_run(block: Block) -> None:
    for line in block.text.splitlines():
        assert os.access(PROJECT / shlex.split(line)[0], os.X_OK), line


def test_both_scripts_are_shown() -> None:
    assert [block.text for block in blocks_in("sh")] == ["scripts/start\n", "scripts/test\n"]


@pytest.mark.parametrize("path", re.findall(r"`([\w/]+\.(?:py|json))`", README))
def test_a_file_that_is_named_exists(path: str) -> None:
    assert (PROJECT / path).is_file()
