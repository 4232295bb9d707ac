"""ARCHITECTURE.md is true: what it names is there, in the order that the layers have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import ORDER

PROJECT = Path(__file__).resolve().parent.parent
PAGE = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")

PATHS = sorted({name for name in re.findall(r"`([\w./]+(?:\.py|/))`", PAGE) if "/" in name})
THREADS = re.findall(r"`(taskweaver-[\w-]+)\*?`", PAGE)


def test_the_page_names_modules() -> None:
    assert len(PATHS) > 30
    assert len(THREADS) > 10


@pytest.mark.parametrize("name", PATHS)
def test_what_the_page_names_exists(name: str) -> None:
    assert (PROJECT / "taskweaver_ext" / name).exists() or (PROJECT / name).exists()


@pytest.mark.parametrize("name", THREADS)
def test_threads_have_the_names_that_the_page_gives_them(name: str) -> None:
    sources = (path.read_text() for path in (PROJECT / "taskweaver_ext").rglob("*.py"))

    assert any(f'"{name}' in source for source in sources)


def test_the_tree_of_the_page_is_in_the_order_of_the_layers() -> None:
    tree = PAGE.split("```")[1]
    shown = [
        name.strip("/").removesuffix(".py") for name in re.findall(r"^  (\w+[/.]\w*)", tree, re.M)
    ]
    first_words = [entry.partition(".")[0] for entry in ORDER]

    positions = [first_words.index(name) for name in shown]

    assert positions == sorted(positions)
    assert len(shown) > 12


def test_modules_that_other_modules_speak_of_exist() -> None:
    modules = [str(path) for path in (PROJECT / "taskweaver_ext").rglob("*.py")]
    named = {
        (str(path.relative_to(PROJECT)), name)
        for path in (PROJECT / "taskweaver_ext").rglob("*.py")
        for name in re.findall(r"`([a-z_/]+\.py)`", path.read_text(encoding="utf-8"))
    }

    assert len(named) > 10
    assert {pair for pair in named if not any(m.endswith("/" + pair[1]) for m in modules)} == set()


def test_the_readme_leads_to_the_page() -> None:
    assert "ARCHITECTURE.md" in (PROJECT / "README.md").read_text(encoding="utf-8")
