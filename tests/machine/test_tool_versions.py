"""Versions of tools are found where projects and version managers keep them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.interpreters import find_python
from taskweaver_ext.machine.tool_versions import (
    ToolVersion,
    ask_version,
    describe_versions,
    find_version,
    find_versions,
    parse_version,
)


def make_program(path: Path, version: str) -> str:
    """A program that says its version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return str(path)


def make_environment(folder: Path, line: str) -> str:
    """A virtual environment, which says its version in a file."""
    python = make_program(folder / "bin" / "python", "unasked")
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\n{line}\n")
    return python


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def environment_at(home: Path, **variables: str) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/nowhere", **variables}


@pytest.mark.parametrize(
    ("tool", "place", "origin"),
    [
        ("python", ".pyenv/versions/3.12.4/bin/python", "pyenv"),
        (
            "python",
            ".local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu/bin/python3",
            "uv",
        ),
        ("python", ".asdf/installs/python/3.12.4/bin/python", "asdf"),
        ("node", ".nvm/versions/node/v3.12.4/bin/node", "nvm"),
        ("node", ".local/share/fnm/node-versions/v3.12.4/installation/bin/node", "fnm"),
        ("node", ".volta/tools/image/node/3.12.4/bin/node", "volta"),
        ("node", ".local/share/mise/installs/nodejs/3.12.4/bin/node", "mise"),
        ("ruby", ".rbenv/versions/3.12.4/bin/ruby", "rbenv"),
        ("rustc", ".rustup/toolchains/3.12.4-x86_64-unknown-linux-gnu/bin/rustc", "rustup"),
    ],
)
def test_a_version_is_found_in_its_managers_folder(
    home: Path, tool: str, place: str, origin: str
) -> None:
    path = make_program(home / place, "unasked")

    found = find_versions(tool, environment_at(home), home)

    assert found == [ToolVersion("3.12.4", path, origin)]


@pytest.mark.parametrize(
    ("tool", "variable", "place"),
    [
        ("python", "PYENV_ROOT", "versions/3.12.4/bin/python"),
        ("python", "UV_PYTHON_INSTALL_DIR", "cpython-3.12.4-linux/bin/python3"),
        ("node", "NVM_DIR", "versions/node/v3.12.4/bin/node"),
        ("node", "FNM_DIR", "node-versions/v3.12.4/installation/bin/node"),
    ],
)
def test_a_variable_says_where_the_managers_folder_is(
    home: Path, tmp_path: Path, tool: str, variable: str, place: str
) -> None:
    path = make_program(tmp_path / "elsewhere" / place, "unasked")

    environment = environment_at(home, **{variable: str(tmp_path / "elsewhere")})
    found = find_version(tool, "3.12", environment, home)

    assert found is not None
    assert found.path == path


def test_environments_come_first_then_the_path_then_the_newest(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    venv = make_environment(project / ".venv", "version = 3.12.1")
    on_path = make_program(tmp_path / "bin" / "python3", "Python 3.12.2")
    old = make_program(home / ".pyenv/versions/3.9.18/bin/python", "unasked")
    new = make_program(home / ".pyenv/versions/3.12.10/bin/python", "unasked")
    (home / ".pyenv/versions/3.12").symlink_to(home / ".pyenv/versions/3.12.10")

    found = find_versions(
        "python", environment_at(home, PATH=f"{tmp_path}/bin:{home}/.pyenv/shims"), project
    )

    assert [one.path for one in found] == [venv, on_path, new, old]
    assert describe_versions(found) == (
        "3.12.1 (.venv), 3.12.2 (PATH), 3.12.10 (pyenv), 3.9.18 (pyenv)"
    )


def test_the_active_environment_counts_once(home: Path, tmp_path: Path) -> None:
    venv = make_environment(tmp_path / ".venv", "version_info = 3.12.1.final.0")

    environment = environment_at(
        home, VIRTUAL_ENV=str(tmp_path / ".venv"), PATH=f"{tmp_path}/.venv/bin"
    )
    found = find_versions("python", environment, tmp_path)

    assert found == [ToolVersion("3.12.1", venv, "VIRTUAL_ENV")]


def test_a_shim_is_no_version(home: Path) -> None:
    make_program(home / ".pyenv/shims/python3", "Python 3.12.1")

    environment = environment_at(home, PATH=str(home / ".pyenv/shims"))

    assert find_versions("python", environment, home) == []


def test_an_environment_of_pyenv_has_the_version_that_it_says(home: Path) -> None:
    make_environment(home / ".pyenv/versions/my-project", "version = 3.11.5")

    found = find_versions("python", environment_at(home), home)

    assert [one.version for one in found] == ["3.11.5"]


@pytest.mark.parametrize(
    ("wanted", "is_found"), [("3", True), ("3.1", False), ("3.12", True), ("3.12.40", False)]
)
def test_a_version_is_matched_part_by_part(home: Path, wanted: str, is_found: bool) -> None:
    make_program(home / ".pyenv/versions/3.12.4/bin/python", "unasked")

    assert (find_version("python", wanted, environment_at(home), home) is not None) is is_found


@pytest.mark.parametrize(
    ("text", "version"), [("3.12", "3.12"), ("v20", "20"), ("latest", None), ("", None)]
)
def test_a_version_is_numbers_with_dots(text: str, version: str | None) -> None:
    assert parse_version(text) == version


def test_a_program_without_a_version_has_none(tmp_path: Path) -> None:
    assert ask_version(make_program(tmp_path / "quiet", "")) == ""
    assert ask_version(str(tmp_path / "absent")) == ""


def test_a_kernel_runs_on_the_version_that_is_configured(home: Path) -> None:
    make_program(home / ".pyenv/versions/3.12.9/bin/python", "unasked")
    with_ipykernel = home / ".pyenv/versions/3.12.4"
    expected = make_program(with_ipykernel / "bin/python", "unasked")
    (with_ipykernel / "lib/python3.12/site-packages/ipykernel").mkdir(parents=True)

    assert find_python("3.12", home, environment_at(home)) == expected


def test_a_missing_version_says_what_is_there(home: Path) -> None:
    make_program(home / ".pyenv/versions/3.12.9/bin/python", "unasked")

    with pytest.raises(
        KernelStartError, match=r"no Python 3\.8 here; there are: 3\.12\.9 \(pyenv\)"
    ):
        find_python("3.8", home, environment_at(home))


def test_the_version_of_this_very_python_is_found(home: Path) -> None:
    folder = str(Path(sys.executable).parent)
    version = ".".join(map(str, sys.version_info[:3]))

    found = find_version("python", version, environment_at(home, PATH=folder), home)

    assert found is not None
    assert found.path.startswith(folder)
