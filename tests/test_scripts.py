"""The scripts work from any folder, through a link, and install only what has changed.

They run here in a copy of the project, on a stand-in for Python that writes down what it is
asked to do: making real environments belongs to the first start, not to the tests.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from scripts.campaigns import __main__ as campaigns

PROJECT = Path(__file__).resolve().parent.parent

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $*" in
    "$FAILING "* | *" -m $FAILING"*) echo "it fails"; exit 3 ;;
    *" -m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/taskweaver-ext" ;;
esac
exit 0
"""


@dataclass
class Copy:
    """A copy of the project's scripts, and the calls they made."""

    root: Path
    calls_path: Path

    def run(
        self, script: Path | str, *arguments: str, failing: str = "nothing", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as CI does, from a folder that has nothing to do with the project."""
        self.calls_path.write_text("")
        environ = {k: v for k, v in os.environ.items() if not k.startswith("TASKWEAVER_")}
        return subprocess.run(
            [self.root / script, *arguments],
            cwd="/",
            env={
                **environ,
                "CI": "true",
                "CALLS": str(self.calls_path),
                "FAILING": failing,
                "PATH": f"{self.root}/bin:{environ['PATH']}",
                "TASKWEAVER_PYTHON": str(self.root / "stand-in"),
                **variables,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def calls(self) -> list[str]:
        """What Python was asked for, but for questions about itself."""
        calls = self.calls_path.read_text().splitlines()
        return [call for call in calls if " -c " not in call and "pip --version" not in call]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    root = tmp_path / "a project"
    root.mkdir()
    for name in ("scripts", ".ci"):
        shutil.copytree(PROJECT / name, root / name)
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(PROJECT / name, root)
    stand_in = root / "stand-in"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    (root / "bin").mkdir()
    (root / "bin" / "node").symlink_to(stand_in)  # so that no test installs it
    compiler = root / ".cache" / "typescript" / "node_modules" / ".bin" / "tsc"
    compiler.parent.mkdir(parents=True)
    compiler.symlink_to(stand_in)  # so that none fetches it
    return Copy(root, tmp_path / "calls")


def test_the_first_start_makes_and_fills_an_environment_and_the_second_only_starts(
    copy: Copy,
) -> None:
    first = copy.run("scripts/start", "run", "a b.py")

    assert first.returncode == 0, first.stderr
    assert copy.calls == [
        f"stand-in -m venv {copy.root}/.venv",
        "python -m pip install --disable-pip-version-check --no-input --editable " + str(copy.root),
        "taskweaver-ext run a b.py",
    ]
    assert first.stdout == ""
    assert "Making a Python environment" in first.stderr

    second = copy.run("scripts/start", "doctor")

    assert copy.calls_path.read_text() == "taskweaver-ext doctor\n"
    assert (second.stdout, second.stderr) == ("", "")


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml"])
def test_a_change_of_what_is_needed_installs_again(copy: Copy, name: str) -> None:
    copy.run("scripts/start")
    with (copy.root / name).open("a") as file:
        file.write("\n# changed\n")

    copy.run("scripts/start")

    assert [call.split()[0:4] for call in copy.calls] == [
        ["python", "-m", "pip", "install"],
        ["taskweaver-ext"],
    ]


def test_tests_get_what_they_need_and_leave_nothing_to_do_for_a_start(copy: Copy) -> None:
    copy.run("scripts/start")

    copy.run("scripts/test", "tests/cli", "-k", "help")

    install, pytest_call = copy.calls
    assert install.endswith(f"--editable {copy.root}[test]")
    assert pytest_call.startswith("stand-in -m tests.support.docker_engine with ")
    assert " -m pytest " in pytest_call
    assert pytest_call.endswith(" tests/cli -k help")
    copy.run("scripts/start")
    assert copy.calls == ["taskweaver-ext "]


def test_a_script_works_through_a_link(copy: Copy, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "start"
    link.parent.mkdir()
    link.symlink_to(copy.root / "scripts" / "start")

    result = copy.run(link, "--version")

    assert result.returncode == 0
    assert copy.calls[0] == f"stand-in -m venv {copy.root}/.venv"
    assert copy.calls[-1] == "taskweaver-ext --version"


def test_another_environment_can_be_named(copy: Copy, tmp_path: Path) -> None:
    copy.run("scripts/start", TASKWEAVER_VENV=str(tmp_path / "mine"))

    assert copy.calls[0] == f"stand-in -m venv {tmp_path}/mine"
    assert not (copy.root / ".venv").exists()


def test_a_failed_installation_shows_why_and_is_tried_again(copy: Copy) -> None:
    failed = copy.run("scripts/start", failing="pip install")

    assert failed.returncode == 1
    assert "it fails" in failed.stderr
    assert "error: the installation failed" in failed.stderr
    assert not any(call.startswith("taskweaver-ext") for call in copy.calls)

    copy.run("scripts/start")
    assert copy.calls[-1].startswith("taskweaver-ext")


def test_without_a_python_that_is_new_enough_it_says_so(copy: Copy) -> None:
    result = copy.run("scripts/start", TASKWEAVER_PYTHON="/bin/false")

    assert result.returncode == 1
    assert "error: Python 3.11 or newer is needed" in result.stderr
    assert "hint: " in result.stderr


@pytest.mark.parametrize(
    "failing", ["nothing", "ruff check", "ruff format", "mypy", "tsc", "pytest"]
)
def test_check_runs_everything_and_fails_when_one_part_fails(copy: Copy, failing: str) -> None:
    copy.run("scripts/test")

    result = copy.run("scripts/check", failing=failing)

    assert copy.calls == [
        "python -m ruff check .",
        "python -m ruff format --check .",
        "python -m mypy",
        f"tsc --project {copy.root}/scripts/page_types.json",
        "python -m pytest -q tests/test_layers.py tests/test_public_api.py",
    ]
    assert result.returncode == (0 if failing == "nothing" else 1)


def test_check_explains_itself_without_making_anything(copy: Copy) -> None:
    result = copy.run("scripts/check", "--help")

    assert result.returncode == 0
    assert "usage: scripts/check" in result.stdout
    assert copy.calls == []


@pytest.mark.parametrize(
    ("failing", "code"), [("nothing", 0), ("mypy", 1), ("tests.support", 3), ("ruff", 1)]
)
def test_ci_checks_and_tests_and_fails_when_one_of_them_does(
    copy: Copy, failing: str, code: int
) -> None:
    copy.run("scripts/test")

    result = copy.run(".ci/run", failing=failing)

    modules = [call.split()[2] for call in copy.calls if call.split()[1] == "-m"]
    assert modules == ["ruff", "ruff", "mypy", "pytest", "tests.support.docker_engine"]
    assert " -m pytest " in copy.calls[-1]
    assert result.returncode == code


def test_a_campaign_gets_what_tests_need(copy: Copy) -> None:
    copy.run("scripts/campaign", "interrupts", "--rounds", "3")

    assert copy.calls[-2].endswith(f"--editable {copy.root}[test]")
    assert copy.calls[-1] == "python -m scripts.campaigns interrupts --rounds 3"


def test_help_names_each_campaign_with_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        campaigns.main(["--help"])

    text = capsys.readouterr().out
    files = (PROJECT / "scripts" / "campaigns").glob("[a-z]*.py")
    for name in [path.stem for path in files]:
        module = importlib.import_module(f"scripts.campaigns.{name}")
        assert f"{name} " in text
        assert f"{(module.__doc__ or '').splitlines()[0].rstrip('.')} ({module.ROUNDS} " in text


@pytest.mark.parametrize(("names", "code"), [(["good"], 0), ([], 1)])
def test_campaigns_are_played_one_after_another_even_if_one_fails(
    monkeypatch: pytest.MonkeyPatch, names: list[str], code: int
) -> None:
    played: list[tuple[str, int, int]] = []

    def campaign(name: str) -> ModuleType:
        def play(rounds: int, seed: int) -> int:
            played.append((name, rounds, seed))
            assert name != "raises"
            return int(name == "fails")

        module = ModuleType(name, "What it shows.")
        module.__dict__.update(ROUNDS=20, main=play)
        return module

    found = {name: campaign(name) for name in ("fails", "raises", "good")}
    monkeypatch.setattr(campaigns, "find_campaigns", lambda: found)

    assert campaigns.main([*names, "--seed", "5"]) == code
    assert played == [(name, 20, 5) for name in names or found]
    assert campaigns.main([*names, "--rounds", "3", "--seed", "5"]) == code
    assert played[-1] == ("good", 3, 5)


def test_an_unknown_campaign_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        campaigns.main(["crusade"])

    assert exit_.value.code == 2
    assert "there is no campaign called crusade" in capsys.readouterr().err


UNSTEADY = """
import pathlib, pytest

@pytest.mark.parametrize("failures", [0, 1, 2])
def test_it(failures):
    tries = pathlib.Path(__file__).with_name(f"tries{failures}")
    with tries.open("a") as file:
        file.write("x")
    assert len(tries.read_text()) > failures
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_tests_that_were_tried_again_are_named_at_the_end(tmp_path: Path, workers: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def run(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path)]
        command += ["-p", "tests.support.tried_again", "-n", workers, "--reruns", "2", *options]
        return subprocess.run(
            [*command, "test_unsteady.py"],
            cwd=tmp_path,
            env={**environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout

    (tmp_path / "test_unsteady.py").write_text(UNSTEADY)

    *_, title, first, second, totals = filter(None, run().splitlines())

    assert title.strip("= ") == "tried again"
    assert first == "test_unsteady.py::test_it[1] (once)"
    assert second == "test_unsteady.py::test_it[2] (2 times)"
    assert "3 passed, 3 rerun" in totals
    assert "tried again" not in run("-k", "0")
