"""What the settings say about a session's shell and its Python holds in the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import KernelStartError


def output_of_shell(project: Path, script: str, command: str) -> str:
    settings = {"execution_service.shell_init_script": script}
    with TaskWeaverApp(project, settings) as app:
        return "".join(app.get_session().run_code("bash", command).stdout)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "taskweaver_config.json").write_text("{}")
    (tmp_path / "shell setup.sh").write_text("greet() { echo from a file; }\n")
    return tmp_path


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("greet() { echo from the text; }", "from the text\n"),
        ("x=1\ngreet() { echo two lines $x; }\n", "two lines 1\n"),
        ("shell setup.sh", "from a file\n"),
    ],
)
def test_a_shell_begins_with_the_script_of_the_settings(
    project: Path, script: str, said: str
) -> None:
    assert output_of_shell(project, script, "greet") == said


def test_a_script_that_is_not_there_costs_no_shell(project: Path) -> None:
    assert output_of_shell(project, "./missing.sh", "echo all the same") == "all the same\n"


def test_a_python_that_is_not_there_says_what_is(project: Path) -> None:
    settings = {"execution_service.python": "0.9"}
    with (
        TaskWeaverApp(project, settings) as app,
        pytest.raises(KernelStartError, match=r"no Python 0\.9 here; there are: "),
    ):
        app.get_session().run_code("python", "1")
