"""The chat without a terminal that can do more than print lines."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_terminal import CHAT, environ, run_piped
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.terminal_program import LIMIT_SECONDS


def test_piped_input_is_one_request_per_line_with_plain_output(project: Path) -> None:
    requests = ["> x = 20", "> print(x + 1)", "! echo from shell; echo oops >&2", "/mode"]

    done = run_piped(project, "\n".join(requests))

    assert done.stdout == "21\nfrom shell\n"
    assert "oops" in done.stderr
    assert "go to: agent" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert done.returncode == 0


def test_a_failed_request_is_exit_code_1_and_the_next_one_is_still_done(project: Path) -> None:
    done = run_piped(project, "> 1/0\nplan something\n> print('next')\n/exit\n> print('never')\n")

    assert done.stdout == "next\n"
    assert "ZeroDivisionError" in done.stderr
    assert "No model is set" in done.stderr
    assert done.returncode == 1


def test_info_says_that_no_model_is_set_and_which_plugins_are_really_there(project: Path) -> None:
    plugins = project / "plugins"
    plugins.mkdir()
    good = "from taskweaver.plugin import register_plugin\n@register_plugin\ndef good(): pass\n"
    for name, source in (("broken", "1 / 0"), ("good", good)):
        (plugins / f"{name}.yaml").write_text(f"name: {name}\ndescription: does something\n")
        (plugins / f"{name}.py").write_text(source)

    done = run_piped(project, "> 1\n/info\n")

    assert "model    none is set; put llm.api_key" in done.stderr
    assert "plugins  good\n" in done.stderr


def test_a_saved_session_has_all_that_was_seen_also_what_the_agent_has_forgotten(
    project: Path,
) -> None:
    requests = [
        "> print('from', 'python')",
        "! echo from shell; echo oops >&2",
        "> 1/0",
        "plan something 好",
        "/context clear",
        "/save saved.json",
        "/export session.ipynb",
    ]

    done = run_piped(project, "\n".join(requests))

    assert "Saved 4 round(s)" in done.stderr
    assert "from python" in (project / "session.ipynb").read_text()
    text = (project / "saved.json").read_text()
    python, shell, failing, agent = json.loads(text)["rounds"]
    assert python["user_query"] == "print('from', 'python')"
    assert "from python" in result_of(python)
    assert "from shell" in result_of(shell)
    assert "oops" in result_of(shell)
    assert "ZeroDivisionError" in result_of(failing)
    assert agent["user_query"] == "plan something 好"
    assert agent["error"].startswith("No model is set")
    assert "好" in text, "people read it, too"


def result_of(chat_round: dict[str, Any]) -> str:
    """What is kept of an execution."""
    [post] = chat_round["post_list"]
    attached = {one["type"]: one["content"] for one in post["attachment_list"]}
    return str(attached["execution_result"])


def test_a_misused_command_says_how_it_is_meant(project: Path) -> None:
    commands = {
        "/nope": "no command /nope",
        "/mod": "Did you mean /mode?",
        "/load": "/load FILE...",
        "/load /nowhere/x": "There is no file /nowhere/x",
        "/load 'unclosed": "No closing quotation",
        "/save two words": "takes one file",
        "/save /nowhere/x": "/nowhere/x: No such file or directory",
        "/export": "/export [--force] FILE",
        "/export x.docx": "Let its name end in .ipynb, .md, .html, .zip",
        "/mode elf": "/mode agent|python|shell",
        "/expand x": "/expand [NUMBER]",
        "/expand 9": "There is no code in this session yet",
        "/auto maybe": "/auto on|next|off",
        "/approve perhaps": "/approve ask shell|ask all|deny|auto",
        "/approve": "asked before the agent runs shell commands",
        "/approve ask all": "asked before any code of the agent runs",
        "/context what": "/context lists what the agent knows",
    }

    done = run_piped(project, "\n".join(commands))

    lines = done.stderr.splitlines()
    assert len(lines) == len(commands)
    for (command, meaning), line in zip(commands.items(), lines, strict=True):
        assert meaning in line, command
    assert done.returncode == 1


def test_a_signal_ends_a_piped_chat_that_waits_for_a_line(project: Path) -> None:
    process = subprocess.Popen(
        CHAT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=project,
        env=environ(project.parent),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("> print('ready', flush=True)\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)

        assert process.wait(LIMIT_SECONDS) == 130


def test_a_chat_whose_output_nobody_reads_stops_what_runs_and_ends(project: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = run_piped(project, "! yes\n> print('never')\n", stdout=write)
    finally:
        os.close(write)

    assert done.returncode == 1
    assert done.stderr == ""


def test_a_chat_whose_output_has_no_room_says_so_in_one_line(project: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run_piped(project, "> print(1)\n> print(2)\n", stdout=full.fileno())

    assert done.returncode == 1
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("redirections", "output", "exit_code"),
    [
        ("<&-", "", 0),
        ("2>&- <<< '> print(6 * 7)'", "42\n", 0),
        ("2>/dev/full <<< '> print(6 * 7); 1/0'", "42\n", 1),
        (">&- 2>/dev/null <<< '> print(6 * 7)'", "", 0),
        ("<&- >&- 2>&-", "", 0),
    ],
)
def test_a_chat_gets_along_without_standard_streams(
    project: Path, redirections: str, output: str, exit_code: int
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(CHAT)} {redirections}"],
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
    )

    assert (done.stdout, done.stderr, done.returncode) == (output, "", exit_code)


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_terminal_nobody_knows_gets_plain_lines(project: Path, term: str) -> None:
    variables = {**environ(project.parent), "TERM": term}
    with EmulatedTerminal(CHAT, cwd=project, environ=variables) as chat:
        chat.press("> print('dumb but', 'fine')\n")
        chat.wait_for("dumb but fine")
        chat.press("\x04")

        assert chat.wait() == 0
        assert b"\x1b" not in chat.screen.received


def test_a_project_that_names_no_kernel_mode_is_told_where_code_runs(project: Path) -> None:
    told = "prevent accidents, not intent"
    settings = project / "taskweaver_config.json"

    settings.write_text("{}")
    unnamed = run_piped(project, "> print(1)\n")
    settings.write_text('{"execution_service.kernel_mode": "local"}')
    named = run_piped(project, "> print(1)\n")

    assert unnamed.stderr.count(told) == 1
    assert told not in named.stderr
    assert unnamed.stdout == named.stdout == "1\n"
