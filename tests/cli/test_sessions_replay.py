"""`sessions replay` runs a session's code again, as a person or a script asks for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from tests.support.chat_terminal import environ, run_piped
from tests.support.executions import wait_until
from tests.support.terminal_program import LIMIT_SECONDS, TerminalProgram

SESSIONS = [sys.executable, "-m", "taskweaver_ext.cli", "sessions"]


def sessions(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SESSIONS, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=False,
    )


def made_session(project: Path, *lines: str) -> str:
    """Have a chat, and return the id of its session."""
    run_piped(project, "\n".join(lines))
    [one] = json.loads(sessions(project, "list", "--json").stdout)
    return str(one["session_id"])


def test_a_replay_without_differences_is_exit_code_0(project: Path) -> None:
    session_id = made_session(project, "> x = 5", "> print(x, object())", "! echo shell")

    done = sessions(project, "replay", session_id, "--yes")

    assert done.returncode == 0, done.stderr
    assert "[2/3] python: print(x, object())\n5 <object" in done.stdout
    assert "same, but for 1 address" in done.stdout
    assert done.stdout.endswith(
        "3 cells: 3 same.\nNot compared, because they differ each time: 1 address.\n"
    )


def test_differences_are_exit_code_1_and_can_stop_it(project: Path) -> None:
    session_id = made_session(project, "> import os; print(os.urandom(8))", "> print('after')")

    going_on = sessions(project, "replay", session_id, "--yes")
    stopping = sessions(project, "replay", session_id, "--yes", "--stop", "--json")

    assert going_on.returncode == stopping.returncode == 1
    assert "2 cells: 1 same, 1 different." in going_on.stdout
    first, summary = map(json.loads, stopping.stdout.splitlines())
    assert first["outcome"] == "different"
    assert [line[:4] for line in first["differences"][0]["diff"]] == ["- b'", "+ b'"]
    assert summary["summary"]["different"] == 1
    assert summary["summary"]["not_reached"] == 1


def test_without_a_terminal_a_person_must_have_agreed(project: Path) -> None:
    session_id = made_session(project, "> open('../../ran', 'a').write('x')")

    done = sessions(project, "replay", session_id)

    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert done.stdout == ""


def test_a_person_is_asked_first(project: Path) -> None:
    session_id = made_session(project, "> 1")
    program = [*SESSIONS, "replay", session_id]

    with TerminalProgram(program, cwd=project, environ=environ(project.parent)) as refused:
        refused.wait_for("[y/N]")
        refused.press("n\r")
        assert refused.wait() == 1
    with TerminalProgram(program, cwd=project, environ=environ(project.parent)) as agreed:
        agreed.wait_for("[y/N]")
        agreed.press("y\r")
        agreed.wait_for("1 cell: 1 same.")
        assert agreed.wait() == 0


def test_a_person_is_asked_for_passwords_which_do_not_appear(project: Path) -> None:
    with TaskWeaverApp(project) as app:
        session = app.get_session()
        code = "import getpass; print(len(getpass.getpass('Key: ')))"
        session.run_code("python", code, on_input=lambda *_: "secret")
    places = environ(project.parent, XDG_STATE_HOME=os.environ["XDG_STATE_HOME"])
    program = [*SESSIONS, "replay", session.session_id, "--yes"]

    with TerminalProgram(program, cwd=project, environ=places) as terminal:
        terminal.wait_for("Key: ")
        wait_until(lambda: not terminal.echoes)
        terminal.press("hidden\r")
        terminal.wait_for("1 cell: 1 same.")

    assert "hidden" not in terminal.seen
    assert "secret" not in terminal.seen


@pytest.mark.parametrize("kind", ["text", "json"])
def test_ctrl_c_stops_it(project: Path, kind: str) -> None:
    marker = project / "endless"
    code = (
        f"import pathlib, time; p = pathlib.Path({str(marker)!r})\n> print(p.exists(), flush=True)"
        "\n> while p.exists(): time.sleep(0.01)"
    )
    session_id = made_session(project, f"> {code}")
    marker.touch()
    arguments = ["replay", session_id, "--yes", *(["--json"] if kind == "json" else [])]
    process = subprocess.Popen(
        [*SESSIONS, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=project,
        env=environ(project.parent),
    )

    assert process.stdout is not None
    for line in process.stdout:
        if "True" in line:  # what the second cell writes: the third follows
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_SECONDS)

    assert process.returncode == 130


def test_an_unknown_session_is_named(project: Path) -> None:
    made_session(project, "> 1")

    done = sessions(project, "replay", "nowhere", "--yes")

    assert done.returncode == 1
    assert "There is no session 'nowhere'" in done.stderr
