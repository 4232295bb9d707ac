"""Project folders, from a checkout and from an installed wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from taskweaver_ext.config.folders import FILE_NAME
from taskweaver_ext.config.loading import load
from tests.support.command_line import exit_code_of

CHECKOUT = Path(__file__).resolve().parent.parent.parent


def files_in(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_init_makes_a_project_that_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "project"

    assert exit_code_of("init", str(target)) == 0

    assert files_in(target) == files_in(CHECKOUT / "project")
    assert load(target, environ={}).app_base_dir == target
    assert str(target) in capsys.readouterr().out


def test_a_project_is_not_overwritten_unless_that_is_wanted(tmp_path: Path) -> None:
    settings = tmp_path / FILE_NAME
    settings.write_text('{"llm.model": "mine"}')

    assert exit_code_of("init", str(tmp_path)) == 2
    assert json.loads(settings.read_text()) == {"llm.model": "mine"}

    assert exit_code_of("init", "--force", "-p", str(tmp_path)) == 0
    assert files_in(tmp_path) == files_in(CHECKOUT / "project")


def test_files_of_a_folder_that_is_no_project_are_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "plugins" / "line_chart.py"
    mine.parent.mkdir()
    mine.write_text("mine")

    assert exit_code_of("init", str(tmp_path)) == 2

    assert "plugins/line_chart.py" in capsys.readouterr().err
    assert files_in(tmp_path) == {"plugins/line_chart.py"}
    assert mine.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert exit_code_of("init", str(tmp_path / "file" / "project")) == 2

    message = f"error: {tmp_path / 'file' / 'project'} cannot be written: Not a directory."
    assert message in capsys.readouterr().err


def test_an_installed_wheel_brings_the_whole_template(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("taskweaver_ext", "project"):
        shutil.copytree(
            CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("setup.cfg", "pyproject.toml", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    (source / "README.md").touch()
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--target", str(installed), str(source)],
        check=True,
        timeout=120,
        capture_output=True,
    )

    done = subprocess.run(
        [sys.executable, "-m", "taskweaver_ext.cli", "init", str(tmp_path / "made")],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert files_in(tmp_path / "made") == files_in(CHECKOUT / "project")


def test_settings_which_may_hold_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert exit_code_of("init", str(tmp_path / "project")) == 0
    finally:
        os.umask(before)

    settings = tmp_path / "project" / FILE_NAME
    assert settings.stat().st_mode & 0o777 == 0o600
