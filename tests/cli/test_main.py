"""The command line finds commands without importing them, and turns errors into one line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import types
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import TypeAlias

import click
import pytest

from taskweaver_ext.cli import main as cli
from taskweaver_ext.errors import ConfigError, KernelStartError, TaskWeaverError
from tests.support.command_line import exit_code_of

AddCommand: TypeAlias = Callable[[str, Callable[..., object]], None]


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> AddCommand:
    """Make a function a command of the given name."""

    def add(name: str, function: Callable[..., object]) -> None:
        module = types.ModuleType(f"taskweaver_ext.cli.{name}")
        module.command = click.command(name)(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.COMMANDS, name, "A command for a test.")

    return add


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_exists_and_has_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(import_module(f"taskweaver_ext.cli.{name}").command, click.Command)

    code = exit_code_of(name, "--help")

    assert code == 0
    assert f"Usage: taskweaver-ext {name}" in capsys.readouterr().out


def modules_after(code: str) -> set[str]:
    """What has been imported when some code has run in a process of its own."""
    source = f"""
import json, sys
from taskweaver_ext.cli.main import main
try:
    {code}
except SystemExit as end:
    assert end.code == 0
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
    result = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(result.stderr))


def test_help_lists_all_commands_without_importing_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of("--help") == 0

    shown = " ".join(capsys.readouterr().out.split())  # long lines are folded
    for name, line in cli.COMMANDS.items():
        assert f" {name} {line}" in shown
    loaded = modules_after("main(['--help'])")
    ours = {name.removeprefix("taskweaver_ext.") for name in loaded if "taskweaver_ext." in name}
    assert ours == {"chat", "chat.exit_codes", "cli", "cli.main", "errors"}
    assert {"zmq", "jupyter_client", "importlib.metadata", "asyncio"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_a_command_costs_no_chat_and_no_model(name: str) -> None:
    loaded = modules_after(f"main([{name!r}, '--help'])")

    assert f"taskweaver_ext.cli.{name}" in loaded
    assert not loaded & {"prompt_toolkit", "IPython", "taskweaver_ext.app"}


def test_what_a_prompt_does_not_need_is_imported_after_it() -> None:
    loaded = modules_after("import taskweaver_ext.cli.open_chat")

    assert "prompt_toolkit" in loaded
    assert not loaded & {"rich.markdown", "IPython", "pygments", "openai", "httpx"}


@pytest.mark.parametrize(
    "module", ["click", "taskweaver_ext.cli.chat", "taskweaver_ext.cli.open_chat"]
)
def test_ctrl_c_while_modules_are_imported_ends_the_program_quietly(module: str) -> None:
    source = f"""
import os, signal, sys
from taskweaver_ext.cli.__main__ import main
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["taskweaver-ext", "chat"]
main()
"""
    result = subprocess.run(
        [sys.executable, "-c", source], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )

    assert (result.returncode, result.stdout, result.stderr.strip()) == (130, b"", b"")


def test_help_that_cannot_be_written_is_a_failure_in_one_line_and_a_next_step() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "taskweaver_ext.cli", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: there is no room to write: No space left on device",
        "hint: make room, or write elsewhere",
    ]


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of("--version") == 0
    assert capsys.readouterr().out == f"taskweaver-ext {version('taskweaver_ext')}\n"


@pytest.mark.parametrize("arguments", [[], ["-p"], ["--debug", "-p"]])
def test_the_default_command_runs_when_none_is_named(
    add_command: AddCommand, arguments: list[str]
) -> None:
    heard = []

    @click.option("-p", is_flag=True)
    def chat(p: bool) -> int:
        heard.append(p)
        return 7

    add_command(cli.DEFAULT_COMMAND, chat)

    assert exit_code_of(*arguments) == 7
    assert heard == ["-p" in arguments]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "error: There is no command 'rnu'. Did you mean 'run'?"),
        (["xyzzy"], "error: There is no command 'xyzzy'."),
        (["run", "--no-such-option"], "error: No such option"),
        (["run", "--kernel", "moon", "-c", "1"], "error: Invalid value for '--kernel'"),
        (["run"], "error: There is nothing to run"),
    ],
)
def test_misuse_is_one_line_with_a_hint_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(*arguments) == 2

    captured = capsys.readouterr()
    error, hint = captured.err.splitlines()
    assert error.startswith(message)
    assert hint.startswith("hint: see taskweaver-ext")
    assert captured.out == ""


def test_debug_after_the_command_is_told_where_it_belongs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code_of("ask", "--debug", "hello") == 2

    hint = capsys.readouterr().err.splitlines()[-1]
    assert hint == "hint: it goes before the command: taskweaver-ext --debug ..."


class HintedError(TaskWeaverError):
    hint = "start it"


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (KernelStartError("It did not start."), 1, ["error: It did not start."]),
        (ConfigError("A setting is wrong."), 2, ["error: A setting is wrong."]),
        (HintedError("It is not there."), 1, ["error: It is not there.", "hint: start it"]),
        (
            ValueError("surprise"),
            1,
            ["error: ValueError: surprise", "hint: taskweaver-ext --debug boom ... shows where"],
        ),
    ],
)
def test_an_error_is_one_line_and_debug_shows_where_it_came_from(
    add_command: AddCommand,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    lines: list[str],
) -> None:
    def boom() -> None:
        raise error

    add_command("boom", boom)

    assert exit_code_of("boom") == code
    assert capsys.readouterr().err.splitlines() == lines
    with pytest.raises(type(error)):
        cli.main(["--debug", "boom"])


def test_only_mistakes_in_settings_are_logged_unless_a_fault_is_looked_for(
    add_command: AddCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    def chatter() -> None:
        logging.getLogger("taskweaver_ext.config").warning("a setting is not known")
        logging.getLogger("taskweaver_ext.ces").warning("an inner matter")

    add_command("chatter", chatter)

    exit_code_of("chatter")
    assert capsys.readouterr().err == "WARNING: a setting is not known\n"
    exit_code_of("--debug", "chatter")
    assert "WARNING: an inner matter\n" in capsys.readouterr().err


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (124, 124)])
def test_what_a_command_returns_is_the_exit_code(
    add_command: AddCommand, result: int | None, code: int
) -> None:
    add_command("ready", lambda: result)

    assert exit_code_of("ready") == code


def test_ctrl_c_in_a_command_is_exit_code_130(
    add_command: AddCommand,
) -> None:
    def wait() -> None:
        raise KeyboardInterrupt

    add_command("wait", wait)

    assert exit_code_of("wait") == 130
