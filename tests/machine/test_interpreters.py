"""The nearest interpreter runs the kernels, and one that cannot says what it needs."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import venv
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.interpreters import environment_of, explain_why_unusable, find_python
from tests.support.executions import run

PLACES = ("active", "cwd/.venv", "cwd/venv", "home/.taskweaver/python-env")
"""Where an interpreter may be, the nearest first."""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The variables of a machine with an interpreter in every place."""
    for place in PLACES:
        _make_python(tmp_path / place / "bin" / "python")
    _make_python(tmp_path / "path" / "python3")
    return {
        "VIRTUAL_ENV": str(tmp_path / "active"),
        "HOME": str(tmp_path / "home"),
        "PATH": str(tmp_path / "path"),
    }


def _make_python(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o755)


@pytest.mark.parametrize("missing", range(len(PLACES)))
def test_the_nearest_interpreter_is_taken(
    missing: int, variables: dict[str, str], tmp_path: Path
) -> None:
    for place in PLACES[:missing]:
        (tmp_path / place / "bin" / "python").unlink()

    found = find_python(None, tmp_path / "cwd", variables)

    assert found == str(tmp_path / PLACES[missing] / "bin" / "python")


def test_the_configured_interpreter_beats_every_other(
    variables: dict[str, str], tmp_path: Path
) -> None:
    assert find_python("/some/python", tmp_path / "cwd", variables) == "/some/python"


def test_the_configured_interpreter_may_be_a_name_a_path_or_an_environment(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    python = str(tmp_path / "active" / "bin" / "python")

    found = {
        written: find_python(written, tmp_path / "cwd", variables)
        for written in ("python3", "nonsuch", "active", "./active", "~/active/bin/python", "")
    }

    assert found == {
        "python3": str(tmp_path / "path" / "python3"),
        "nonsuch": "nonsuch",
        "active": "active",  # a name, which no folder of this name answers to
        "./active": python,
        "~/active/bin/python": python,
        "": python,
    }


def test_without_any_environment_ours_is_taken_and_then_the_one_on_the_path(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path_only = {"PATH": variables["PATH"]}

    ours = find_python(None, tmp_path, on_path_only)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    on_path = find_python(None, tmp_path, on_path_only)

    assert ours == sys.executable
    assert on_path == str(tmp_path / "path" / "python3")


def test_the_interpreters_folder_comes_first_on_the_path() -> None:
    environment = environment_of("/opt/env/bin/python", {"PATH": "/usr/bin", "LANG": "C"})

    assert environment == {"PATH": "/opt/env/bin:/usr/bin", "LANG": "C"}
    assert environment_of("/opt/env/bin/python", environment) == environment


def test_a_name_that_is_not_on_the_path_does_not_put_the_current_folder_there() -> None:
    assert environment_of("nonsuch", {"PATH": "/usr/bin"}) == {"PATH": "/usr/bin"}


@pytest.mark.parametrize(
    ("tools", "command"),
    [
        ((), "{} -m ensurepip && {} -m pip install ipykernel"),
        (("uv",), "uv pip install --python {} ipykernel"),
    ],
)
def test_an_environment_without_pip_is_told_how_to_do_without(
    tools: tuple[str, ...], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "with space", with_pip=False)
    python = str(tmp_path / "with space" / "bin" / "python")
    for tool in tools:
        _make_python(tmp_path / "tools" / tool)
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))

    error = explain_why_unusable(python, {})

    assert str(error).endswith(command.format(*[shlex.quote(python)] * 2))


def test_one_without_ipykernel_gives_the_command_that_installs_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")

    with (
        Environment(tmp_path / "work", python=python) as environment,
        pytest.raises(KernelStartError) as raised,
    ):
        environment.start_session("s1")

    assert f"{python} -m pip install ipykernel" in str(raised.value)


def test_one_with_an_ancient_ipykernel_is_told_to_take_a_newer(tmp_path: Path) -> None:
    (tmp_path / "ipykernel.py").write_text("version_info = (5, 5, 6)")

    error = explain_why_unusable(sys.executable, {"PYTHONPATH": str(tmp_path)})

    assert "too old to run a kernel" in str(error)
    assert str(error).endswith("-m pip install 'ipykernel>=6.29'")


def test_one_that_is_not_there_or_does_not_run_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    broken.chmod(0o755)

    missing = explain_why_unusable(str(tmp_path / "nowhere"), {})
    failing = explain_why_unusable(str(broken), {})

    assert "There is no Python at" in str(missing)
    assert "fails to start: broken" in str(failing)
    assert explain_why_unusable(sys.executable, {}) is None


def test_a_kernel_runs_on_its_folders_environment_in_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    home = tmp_path / "project"
    _make_python(home / ".venv" / "bin" / "python")
    (home / "neighbour.py").write_text("name = 'next door'")
    code = "import os, neighbour; print(os.getcwd(), neighbour.name, os.environ['PATH'])"

    with Environment(tmp_path / "work") as environment:
        environment.start_session("s1", cwd=home)
        words = run(environment, code).text().split(maxsplit=3)

    assert words[0] == str(home)
    assert words[1:3] == ["next", "door"]
    assert words[3].split(os.pathsep)[0] == str(home / ".venv" / "bin")


def test_the_callers_variables_are_data_whatever_is_in_them(tmp_path: Path) -> None:
    value = "\"'''\\\n'); raise SystemExit(3) # ünïcode {x} %s"

    with Environment(tmp_path, env={"GIVEN": value}) as environment:
        environment.start_session("s1")
        result = run(environment, "import os; os.environ['GIVEN']").result

    assert result.output == repr(value)
