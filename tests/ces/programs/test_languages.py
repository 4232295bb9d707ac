"""Languages are found by any of their names, and added by configuration."""

from __future__ import annotations

from typing import Any

import pytest

from taskweaver_ext.ces.programs.languages import (
    ALIASES,
    BUILT_IN,
    Language,
    canonical_name,
    find_language,
    language_from_settings,
)
from taskweaver_ext.errors import ConfigError


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("py", "python"),
        ("sh", "bash"),
        ("js", "javascript"),
        ("node", "javascript"),
        ("Python", "python"),
        (" bash ", "bash"),
        ("rust", "rust"),
    ],
)
def test_a_language_is_known_by_its_aliases(called: str, name: str) -> None:
    assert canonical_name(called) == name


def test_the_languages_of_seeds_and_machines_are_built_in() -> None:
    assert {"bash", "c", "cpp", "go", "java", "javascript", "perl", "python", "ruby"} <= {*BUILT_IN}
    assert {"rust", "typescript"} <= {*BUILT_IN}
    assert find_language("cobol") is None
    assert all(name == language.name for name, language in BUILT_IN.items())
    assert {*ALIASES.values()} <= {*BUILT_IN}


def test_a_version_stands_behind_the_name() -> None:
    language = find_language("py@3.12")

    assert language is not None
    assert (language.name, language.version) == ("python", "3.12")
    assert canonical_name("Node@20") == "javascript@20"
    assert find_language("cobol@3") is None


def test_a_configured_language_comes_before_a_built_in_one() -> None:
    mine = Language(name="python", command="/opt/python3.9/bin/python3")

    assert find_language("py", {"python": mine}) is mine


@pytest.mark.parametrize("configured_as", ["Python", "py", " python "])
def test_it_may_be_configured_under_any_of_its_names(configured_as: str) -> None:
    mine = Language(name="python", command="/opt/python3.9/bin/python3")

    assert find_language("python", {configured_as: mine}) is mine


def test_a_language_is_made_from_settings() -> None:
    settings = {
        "command": "{program}",
        "arguments": [],
        "suffix": ".zig",
        "build": ["zig", "build-exe", "{file}", "-femit-bin={program}"],
    }

    language = language_from_settings("Zig", settings)

    assert language == Language(
        name="zig",
        command="{program}",
        arguments=(),
        suffix=".zig",
        build=("zig", "build-exe", "{file}", "-femit-bin={program}"),
    )


@pytest.mark.parametrize(
    ("settings", "mistakes"),
    [
        ({}, ["'command' is missing"]),
        ({"command": 5}, ["'command' must be a text"]),
        ({"command": "x", "arguments": "-c"}, ["'arguments' must be a list of texts"]),
        ({"command": "x", "build": [1]}, ["'build' must be a list of texts"]),
        ({"command": "{program}"}, ["there is no 'build' that makes it"]),
        (
            {"comand": "x", "suffix": 1},
            ["unknown setting 'comand'", "'suffix' must be a text", "'command' is missing"],
        ),
    ],
)
def test_all_mistakes_of_a_configured_language_are_named(
    settings: dict[str, Any], mistakes: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        language_from_settings("mine", settings)

    for mistake in mistakes:
        assert mistake in str(raised.value)


@pytest.mark.parametrize(
    ("code", "needs_file"),
    [
        ("echo hi", False),
        ("x" * 100_000, False),
        ("x" * 100_001, True),
        ("é" * 60_000, True),
        ("a\0b", True),
        ("\ud800", True),
    ],
)
def test_code_that_no_command_line_can_hold_needs_a_file(code: str, needs_file: bool) -> None:
    assert BUILT_IN["bash"].needs_file(code) is needs_file
