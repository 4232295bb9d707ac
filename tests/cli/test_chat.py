"""The chat as a person has it: on a real terminal, and through pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import psutil
import pytest

from tests.support.emulated_terminal import LIMIT_SECONDS, EmulatedTerminal

CHAT = [sys.executable, "-m", "taskweaver_ext.cli.main", "chat"]
PROMPT = "You ▸"
OpenChat: TypeAlias = Callable[..., EmulatedTerminal]


def environ(home: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", **more}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "taskweaver_config.json").write_text("{}")
    return folder


@pytest.fixture
def open_chat(project: Path) -> Iterator[OpenChat]:
    """Starts chats and waits for their prompt; each is ended after the test."""
    terminals: list[EmulatedTerminal] = []

    def start(columns: int = 80, rows: int = 24, **variables: str) -> EmulatedTerminal:
        terminal = EmulatedTerminal(
            CHAT,
            cwd=project,
            columns=columns,
            rows=rows,
            environ=environ(project.parent, **variables),
        )
        terminals.append(terminal)
        terminal.wait_for(PROMPT)
        return terminal

    yield start
    for terminal in terminals:
        if terminal.process.poll() is None:
            terminal.process.send_signal(signal.SIGTERM)
            terminal.wait()
        terminal.__exit__(None, None, None)


def run_file(chat: EmulatedTerminal, project: Path, source: str) -> None:
    """Type a line that runs code which is too long to be typed."""
    path = project / "job.py"
    path.write_text(source)
    chat.press(f"> exec(open({str(path)!r}).read())\r")


def test_output_appears_while_the_code_runs_and_is_completed_in_place(
    open_chat: OpenChat, project: Path
) -> None:
    chat = open_chat()
    gate = project / "gate"
    run_file(
        chat,
        project,
        "import os, time\n"
        "print('Start', end='', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('ing')\n",
    )
    chat.wait_for(" │   Start")
    assert not any("Starting" in line for line in chat.screen.lines)

    gate.touch()
    chat.wait_for(" │   Starting")
    chat.wait_for(" ╰──● SUCCESS")

    chat.press("\x04")
    assert chat.wait() == 0
    assert [line for line in chat.screen.all_lines if line.startswith(" │")] == [" │   Starting"]


def test_input_is_answered_at_the_prompt(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("> name = input('Name: '); print('Hello', name)\r")
    chat.wait_for(" │   Name:")

    chat.press("Ada\r")

    chat.wait_for(" │   Hello Ada")


def test_ctrl_c_stops_what_runs_and_only_that(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("> x = 42\r")
    chat.wait_for("SUCCESS")
    chat.press("> import time; print('running'); time.sleep(600)\r")
    chat.wait_for(" │   running")

    chat.press("\x03")
    chat.wait_for("[Cancelled]")
    chat.press("> print('x is', x)\r")

    chat.wait_for(" │   x is 42")


def test_ctrl_c_is_answered_at_once_in_a_flood(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("> while True: print('x' * 60)\r")
    chat.wait_for("more lines; /expand 1")

    chat.press("\x03")
    seconds = chat.wait_for("stopping") if "[Cancelled]" not in chat.screen.lines else 0.0

    chat.wait_for("[Cancelled]")
    assert seconds < 1.0, "the goal of 0.2 s is measured by the bench, on a quiet machine"


def test_a_second_ctrl_c_kills_the_kernel_and_names_the_loss(open_chat: OpenChat) -> None:
    chat = open_chat()
    code = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "print('deaf'); time.sleep(600)"
    )
    chat.press(f"> {code}\r")
    chat.wait_for(" │   deaf")

    chat.press("\x03")
    chat.wait_for("stopping")
    chat.press("\x03")

    chat.wait_for("its variables are lost")
    chat.wait_for("[Cancelled]")
    chat.press("> print('alive', 'again')\r")
    chat.wait_for("alive again")


def test_ctrl_c_leaves_only_at_an_empty_prompt(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("half a line")
    chat.wait_for("half a line")

    chat.press("\x03")
    chat.press("> print('still', 'here')\r")
    chat.wait_for("still here")
    chat.press("\x03")

    assert chat.wait() == 0


def test_output_taller_than_the_screen_stays_in_the_scrollback_then_collapses(
    open_chat: OpenChat,
) -> None:
    chat = open_chat()
    chat.press("> for n in range(150): print('row', n)\r")
    chat.wait_for("SUCCESS")
    rows = [line for line in chat.screen.all_lines if "│   row" in line]
    assert rows == [f" │   row {n}" for n in range(150)]

    chat.press("> for n in range(5000): print('line', n)\r")
    chat.wait_for("SUCCESS", times=2)
    assert not any("line 2500" in line for line in chat.screen.all_lines)
    assert " │   line 4999" in chat.screen.lines
    chat.press("/expand\r")
    chat.wait_for(" │   line 4999", times=2)

    assert " │   line 2500" in chat.screen.all_lines


def test_hostile_output_does_not_break_the_frame_not_even_during_a_resize(
    open_chat: OpenChat, project: Path
) -> None:
    chat = open_chat()
    gate = project / "gate"
    run_file(
        chat,
        project,
        "import os, time\n"
        "print('\\x1b[2J\\x1b[H\\x1b]0;gone\\x07top\\x1b[5A\\x1b[?1049hend')\n"
        "print('好' * 60 + 'e\\u0301' * 60)\n"
        "print('partial ' * 20, end='', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('and done')\n",
    )
    chat.wait_for("partial")

    chat.resize(50, 24)
    gate.touch()
    chat.wait_for("and done")
    chat.wait_for("SUCCESS")

    output = [line for line in chat.screen.all_lines if line.startswith(" │")]
    assert output[0] == " │   topend"
    begin = chat.screen.all_lines.index(" │   topend")
    end = chat.screen.all_lines.index(" ╰──● SUCCESS")
    assert all(line.startswith(" │   ") for line in chat.screen.all_lines[begin:end])
    assert b"\x1b[2J" not in chat.screen.received
    assert b"\x1b[?1049h" not in chat.screen.received


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_running", [False, True], ids=["at the prompt", "while code runs"])
def test_the_terminal_is_restored_and_nothing_is_left_when_the_chat_is_ended(
    open_chat: OpenChat, number: signal.Signals, is_running: bool
) -> None:
    chat = open_chat()
    if is_running:
        chat.press("> import time; print('running'); time.sleep(600)\r")
        chat.wait_for(" │   running")
    children = psutil.Process(chat.process.pid).children(recursive=True)

    chat.process.send_signal(number)

    assert chat.wait() == 130
    assert chat.current_attributes == chat.attributes
    assert chat.screen.has_cursor
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_an_idle_chat_does_nothing(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("> 1\r")
    chat.wait_for("SUCCESS")
    chat.wait_for(PROMPT, times=2)
    while chat.read(1.0) and chat.screen.received[-1:] == b"":
        pass
    process = psutil.Process(chat.process.pid)

    switches = process.num_ctx_switches().voluntary
    received = len(chat.screen.received)
    chat.read(3.0)

    assert len(chat.screen.received) == received
    assert process.num_ctx_switches().voluntary - switches <= 3


def test_without_color_there_is_none(open_chat: OpenChat) -> None:
    chat = open_chat(NO_COLOR="1")
    chat.press("> import sys; print('plain'); print('mark', file=sys.stderr)\r")

    chat.wait_for(" │ ! mark")

    assert b"\x1b[31m" not in chat.screen.received
    assert b"\x1b[2m" not in chat.screen.received


def test_tab_completes_commands_files_and_names_of_the_kernel(
    open_chat: OpenChat, project: Path
) -> None:
    (project / "unmistakable.csv").touch()
    chat = open_chat()
    chat.press("> very_special_name = 1\r")
    chat.wait_for("SUCCESS")

    chat.press("> print(very_spec\t")
    chat.wait_for("print(very_special_name")
    chat.press(" + 41)\r")
    chat.wait_for(" │   42")
    chat.press("/load unmis\t")
    chat.wait_for("/load unmistakable.csv")
    chat.press("\r")
    chat.wait_for("1 file(s)")
    chat.press("/mod\t")
    chat.wait_for("/mode")
    chat.press(" shell\r")
    chat.wait_for("go to: shell")


def test_a_shell_keeps_its_folder_and_several_lines_can_be_typed(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("! cd /usr; echo in\r")
    chat.wait_for(" │   in")
    chat.press("! pwd\r")
    chat.wait_for(" │   /usr")

    chat.press("> for n in range(2):\rprint('n', n)\r\r")

    chat.wait_for(" │   n 1")


def test_without_a_model_a_request_shows_the_ways_there_are(open_chat: OpenChat) -> None:
    chat = open_chat(rows=40)
    chat.press("plot something\r")

    chat.wait_for("No model is set")
    chat.wait_for("model fetch")
    text = "\n".join(chat.screen.all_lines)
    for way in ("/demo", ">", "!", "openai", "anthropic", "ollama", "local"):
        assert way in text


def test_the_demonstration_plays_to_its_end(open_chat: OpenChat) -> None:
    chat = open_chat(columns=100, rows=40)
    chat.press("/demo\r")

    chat.wait_for("making days [#")
    chat.wait_for("sending message to User")
    chat.wait_for(PROMPT, times=3)

    lines = chat.screen.all_lines
    assert any("script" in line for line in lines)
    assert " ├─► [execution_status] FAILURE" in lines
    assert any("NameError" in line and line.startswith(" │ !") for line in lines)
    assert any("_chart.png" in line for line in lines)


def run_piped(project: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        CHAT,
        input=text,
        capture_output=True,
        text=True,
        cwd=project,
        env=environ(project.parent),
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_piped_input_is_one_request_per_line_with_plain_output(project: Path) -> None:
    done = run_piped(project, "> x = 20\n> print(x + 1)\n! echo from shell; echo oops >&2\n/mode\n")

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


def test_ctrl_c_ends_the_showing_of_collapsed_output(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.press("> for n in range(1_000_000): print(n)\r")
    chat.wait_for("SUCCESS")

    chat.press("/expand\r")
    chat.wait_for(" │   300")
    chat.press("\x03")

    chat.wait_for("[Cancelled]")
    assert not any("│   900000" in line for line in chat.screen.all_lines)


def test_a_dumb_terminal_gets_plain_lines(project: Path) -> None:
    with EmulatedTerminal(
        CHAT, cwd=project, environ={**environ(project.parent), "TERM": "dumb"}
    ) as chat:
        chat.press("> print('dumb but', 'fine')\n")
        chat.wait_for("dumb but fine")
        chat.press("\x04")

        assert chat.wait() == 0
        assert b"\x1b" not in chat.screen.received


def test_what_is_typed_is_remembered_by_the_next_chat(open_chat: OpenChat, project: Path) -> None:
    first = open_chat()
    first.press("> print('remember', 'me')\r")
    first.wait_for("remember me")
    first.press("\x04")
    assert first.wait() == 0

    second = open_chat()
    second.press("\x1b[A\r")

    second.wait_for("remember me")
