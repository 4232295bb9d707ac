"""An agent gets the tools that were asked for, or is told why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from taskweaver_ext.config.variables import ToolMode
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.tools.tool_choice import choose_tools


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TASKWEAVER_PY", "TASKWEAVER_PYTHON_SKIP_CHECK"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        ("", "both"),
        ("0", "bash"),
        ("bash", "bash"),
        ("1", "python"),
        ("py", "python"),
        ("python", "python"),
        ("mix", "both"),
        ("BOTH", "both"),
    ],
)
def test_the_environment_says_which_tools(
    value: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKWEAVER_PY", value)

    choice = choose_tools(python=sys.executable)

    assert choice.mode == mode
    assert choice.notice == ""
    assert (choice.offers_python, choice.offers_bash) == (mode != "bash", mode != "python")


def test_the_environment_beats_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_tools("python", python=sys.executable).mode == "python"

    monkeypatch.setenv("TASKWEAVER_PY", "bash")

    assert choose_tools("python", python=sys.executable).mode == "bash"


def test_a_value_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKWEAVER_PY", "perl")

    with pytest.raises(ConfigError, match="TASKWEAVER_PY is 'perl'; it must be one of 0, bash"):
        choose_tools()


@pytest.mark.parametrize("mode", ["python", "both"])
def test_where_python_cannot_run_kernels_bash_is_left_and_it_is_said(
    mode: ToolMode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ipykernel'\" >&2; exit 1\n"
    )
    python.chmod(0o755)

    choice = choose_tools(mode, python=str(python))

    assert choice.mode == "bash"
    assert f"only bash is: The Python at {python} has no ipykernel" in choice.notice
    assert f"{python} -m pip install ipykernel" in choice.notice
    assert choice.notice in caplog.text


def test_without_the_check_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKWEAVER_PYTHON_SKIP_CHECK", "1")

    assert choose_tools(python="/nowhere/python").mode == "both"
