"""Variables of a chat are saved with /snapshot, and come back when it is continued."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.chat_terminal import CHAT, environ, run_piped
from tests.support.terminal_program import LIMIT_SECONDS

LINES = "> a = [1]; b = a; lock = __import__('threading').Lock()\n> def f(): return len(a)\n"


def chat(project: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CHAT, *arguments],
        input=lines,
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=False,
    )


def session_of(project: Path) -> tuple[str, Path]:
    """The id and the folder of the project's only session."""
    done = subprocess.run(
        [sys.executable, "-m", "taskweaver_ext.cli", "sessions", "list", "--json"],
        capture_output=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=True,
    )
    [one] = json.loads(done.stdout)
    [folder] = project.parent.rglob(f"sessions/{one['session_id']}")
    return one["session_id"], folder


def test_variables_come_back_on_request(project: Path) -> None:
    saved = run_piped(project, f"{LINES}/snapshot\n")
    session_id, _ = session_of(project)

    done = chat(
        project, "> a.append(2); print(b, f())\n", "--resume", session_id, "--with-variables"
    )

    assert "Variables are saved: 3 of them" in saved.stderr
    assert "lock (TypeError: cannot pickle" in saved.stderr
    assert done.stdout == "[1, 2] 2\n"
    assert "Variables are back: a, b, f." in done.stderr
    assert "Not restored: lock (it was not saved" in done.stderr


def test_they_do_not_come_back_unasked_but_are_offered_in_a_line(project: Path) -> None:
    run_piped(project, f"{LINES}/snapshot\n")
    session_id, folder = session_of(project)

    offered = chat(project, "> print('a' in globals())\n/restore\n> b\n", "--resume", session_id)
    (folder / "variables.snapshot").unlink()
    without = chat(project, "/restore\n", "--resume", session_id)

    assert offered.stdout == "False\n[1]\n"
    [line] = [line for line in offered.stderr.splitlines() if "--with-variables" in line]
    assert "/restore" in line
    assert f"sessions replay {session_id}" in line
    assert without.returncode == 1
    assert "There are no saved variables" in without.stderr


def test_a_changed_snapshot_is_loaded_only_if_it_is_trusted(project: Path) -> None:
    run_piped(project, f"{LINES}/snapshot\n")
    session_id, folder = session_of(project)
    [key] = project.parent.rglob("owner-key")
    key.unlink()  # as on another machine
    again = ("--resume", session_id, "--with-variables")

    refused = chat(project, "> print(b)\n", *again)
    trusted = chat(project, "> print(b)\n", *again, "--trust")

    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "--trust" in refused.stderr
    assert trusted.stdout == "[1]\n"
    assert (folder / "variables.snapshot").stat().st_mode & 0o777 == 0o600


def test_options_that_make_no_sense_together_are_refused(project: Path) -> None:
    assert chat(project, "", "--with-variables").returncode == 2
    assert chat(project, "", "--resume", "x", "--trust").returncode == 2
