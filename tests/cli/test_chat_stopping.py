"""How a chat stops what runs, steps aside, and ends: always with the terminal as it was."""

from __future__ import annotations

import resource
import shlex
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.chat_terminal import CHAT, PROMPT, ChatTerminal, environ
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.executions import has_ended, wait_until
from tests.support.terminal_program import LIMIT_SECONDS


def test_ctrl_c_stops_what_runs_and_only_that(chat: ChatTerminal) -> None:
    chat.press("> x = 42\r")
    chat.wait_for("✔ done")
    chat.press("> import time; print('running'); time.sleep(600)\r")
    chat.wait_for(" │   running")

    chat.press("\x03")
    chat.wait_for("[Cancelled]")
    chat.press("> print('x is', x)\r")

    chat.wait_for(" │   x is 42")


def test_ctrl_c_is_answered_at_once_in_a_flood(chat: ChatTerminal) -> None:
    chat.press("> while True: print('x' * 60)\r")
    chat.wait_for("more lines: /expand 1")

    chat.press("\x03")

    seconds = chat.wait_for("[Cancelled]")
    assert seconds < 5.0, "on a quiet machine it takes 0.02 to 0.1 s"


def test_a_second_ctrl_c_kills_the_kernel_and_names_the_loss(chat: ChatTerminal) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "print('deaf'); time.sleep(600)"
    )
    chat.press(f"> {code}\r")
    chat.wait_for(" │   deaf")

    chat.press("\x03")
    chat.wait_for("stopping")
    chat.press("\x03")

    chat.wait_for("Its variables are lost")
    chat.wait_for("[Cancelled]")
    chat.press("> print('alive', 'again')\r")
    chat.wait_for("alive again")


def test_a_ctrl_c_too_many_does_not_leave_the_chat_with_all_its_variables(
    chat: ChatTerminal,
) -> None:
    chat.press("> print('running'); import time; time.sleep(600)\r")
    chat.wait_for(" │   running")
    chat.press("\x03")
    chat.wait_for("[Cancelled]")
    chat.wait_for_last_line(PROMPT)

    chat.press("\x03")
    chat.wait_for("Ctrl-C again leaves")
    chat.wait_for_last_line(PROMPT)
    assert chat.process.poll() is None
    chat.press("\x03")

    assert chat.wait() == 0


def test_killing_a_shell_says_nothing_of_the_kernel_which_lives_on(chat: ChatTerminal) -> None:
    chat.press("> x = 42\r")
    chat.wait_for("✔ done")
    deaf = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "print('deaf', flush=True); signal.pause()"
    )
    chat.press(f"! {shlex.join([sys.executable, '-c', deaf])}\r")
    chat.wait_for(" │   deaf")

    chat.press("\x03")
    chat.wait_for("stopping")
    chat.press("\x03")

    chat.wait_for("[Cancelled]")
    chat.press("> print('x is', x)\r")
    chat.wait_for(" │   x is 42")
    assert chat.count("ariables are lost") == 0


def test_ctrl_c_leaves_only_at_an_empty_prompt(chat: ChatTerminal) -> None:
    chat.press("half a line")
    chat.wait_for("half a line")

    chat.press("\x03")
    chat.press("> print('still', 'here')\r")
    chat.wait_for("still here")
    chat.wait_for("✔ done")
    chat.wait_for_last_line(PROMPT)
    chat.press("\x03")
    chat.wait_for("Ctrl-C again leaves")
    chat.press("\x03")

    assert chat.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_running", [False, True], ids=["at the prompt", "while code runs"])
def test_the_terminal_is_restored_and_nothing_is_left_when_the_chat_is_ended(
    chat: ChatTerminal, number: signal.Signals, is_running: bool
) -> None:
    if is_running:
        chat.press("> import time; print('running'); time.sleep(600)\r")
        chat.wait_for(" │   running")
    children = psutil.Process(chat.process.pid).children(recursive=True)

    chat.process.send_signal(number)

    assert chat.wait() == 130
    assert chat.current_attributes == chat.attributes
    assert chat.screen.has_cursor
    wait_until(lambda: all(has_ended(child.pid) for child in children))


def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(project: Path) -> None:
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    variables = environ(project.parent, PS1="shell$ ")
    with EmulatedTerminal(shell, cwd=project, environ=variables) as terminal:
        terminal.press(f"{shlex.join(CHAT)}\r")
        terminal.wait_for(PROMPT)
        terminal.press("> import time; print('running'); time.sleep(600)\r")
        terminal.wait_for(" │   running")
        terminal.wait_for("Ctrl-C stops")

        terminal.press("\x1a")
        terminal.wait_for("Stopped")
        terminal.wait_for("shell$", times=2)
        assert terminal.screen.has_cursor
        assert not any("Ctrl-C stops" in line for line in terminal.screen.lines)
        terminal.press("stty -a | tr ' ' '\\n' | grep -x -e '-*echo'\r")
        terminal.wait_for("shell$", times=3)
        assert "echo" in terminal.screen.lines
        terminal.press("fg\r")
        terminal.wait_for("Ctrl-C stops")
        terminal.press("\x03")
        terminal.wait_for("[Cancelled]")

        terminal.wait_for(PROMPT, times=2)
        terminal.press("half a line")
        terminal.wait_for("You ▸ half a line")
        terminal.press("\x1a")
        terminal.wait_for("Stopped", times=2)
        terminal.press("fg\r")
        terminal.wait_for_last_line("You ▸ half a line")
        terminal.press("\x03\x04")
        terminal.wait_for("shell$", times=5)
        terminal.press("exit\r")
        assert terminal.wait() == 0


@pytest.mark.parametrize("how", ["killed", "hung up"])
@pytest.mark.parametrize(
    "last_line", ["", "> time.sleep(600)\r", "! sleep 600\r"], ids=["idle", "python", "shell"]
)
def test_a_chat_whose_end_is_sudden_leaves_no_process(
    chat: ChatTerminal, how: str, last_line: str
) -> None:
    chat.press("! sleep 600 &\r")
    chat.wait_for("✔ done")
    chat.run(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('running')\n"
    )
    chat.wait_for(" │   running")
    chat.wait_for("✔ done", times=2)
    if last_line:
        chat.press(last_line)
        chat.wait_for(" code · ")
    children = psutil.Process(chat.process.pid).children(recursive=True)
    assert sum(child.name() == "sleep" for child in children) >= 2

    if how == "killed":
        chat.process.kill()
    else:
        chat.hang_up()

    chat.process.wait(LIMIT_SECONDS)
    wait_until(lambda: all(has_ended(child.pid) for child in children))


def test_a_full_disk_does_not_end_the_chat(chat: ChatTerminal) -> None:
    chat.press("> x = 42\r")
    chat.wait_for("✔ done")
    resource.prlimit(chat.process.pid, resource.RLIMIT_FSIZE, (0, 0))

    chat.press("> for n in range(300_000): print(n)\r")
    chat.wait_for("✔ done", times=2)
    chat.press("/save\r")
    chat.wait_for("File too large")
    chat.press("/expand\r")  # what is in memory is still there
    chat.wait_for(" │   300")
    chat.press("\x03")
    chat.wait_for("[Cancelled]")
    chat.press("> print('x is', x)\r")

    chat.wait_for(" │   x is 42")
    assert chat.leave() == 0
    assert chat.count("Traceback") == chat.count("Error") == 0
