"""What is kept out of the environment of programs is not shown to them elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from taskweaver_ext.machine.child_environment import child_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

SECRETS = {"SOME_API_KEY": "hidden-1", "NOT_ALLOWED": "hidden-2 ä", "PLUGIN_a_KEY": "granted"}
LOOK = 'tr "\\0" "\\n" < /proc/$PPID/environ'


def test_only_what_is_passed_on_is_shown_and_all_of_it_stays() -> None:
    program = f"""
import os, subprocess
from taskweaver_ext.machine.shown_environment import hide_what_is_not_passed_on
os.environ["NOT_ALLOWED"] = "changed"
hide_what_is_not_passed_on()
hide_what_is_not_passed_on()
print(subprocess.run({LOOK!r}, shell=True, capture_output=True, text=True).stdout)
print("ours:", os.environ["SOME_API_KEY"], os.getenv("NOT_ALLOWED"), flush=True)
subprocess.run("echo inherited: $SOME_API_KEY $NOT_ALLOWED", shell=True)
"""
    shown, _, ours = _run([sys.executable, "-c", program]).partition("ours: ")

    assert "hidden" not in shown
    assert "PLUGIN_a_KEY=granted\n" in shown
    assert f"PATH={os.environ['PATH']}\n" in shown
    assert ours == "hidden-1 changed\ninherited: hidden-1 changed\n"


def test_a_program_that_the_command_line_runs_does_not_find_our_secrets() -> None:
    shown = _run([sys.executable, "-m", "taskweaver_ext.cli", "exec", "bash", "-c", LOOK])

    assert "hidden" not in shown
    assert "PLUGIN_a_KEY=granted\n" in shown


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        env={**child_environment(), **SECRETS},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout
