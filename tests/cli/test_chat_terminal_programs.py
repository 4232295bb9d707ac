"""`!! command` has the person's terminal, and gives it back however it ends."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

from taskweaver_ext.ces.sandbox import sandbox
from tests.support import full_screen_program
from tests.support.chat_terminal import CHAT, PROMPT, ChatTerminal, OpenChat, environ, run_piped
from tests.support.conversations import answer, code, plan
from tests.support.emulated_terminal import EmulatedTerminal
from tests.support.executions import has_ended, wait_until
from tests.support.model_server import ModelServer, ScriptedAnswer

FULL_SCREEN = f"{sys.executable} {full_screen_program.__file__}"


def write_script(folder: Path, name: str, text: str) -> str:
    """A command that is short enough to be typed on a narrow terminal."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The full-screen program, under a short name."""
    return shlex.quote(write_script(tmp_path, "fs", f'exec {FULL_SCREEN} "$@"'))


def wait_for_prompt(chat: ChatTerminal, times: int) -> None:
    chat.wait_until(lambda: chat.count(PROMPT) >= times, f"prompt {times}")


@pytest.mark.parametrize("columns", [80, 40])
def test_a_full_screen_program_has_the_terminal_and_gives_it_back(
    open_chat: OpenChat, program: str, columns: int
) -> None:
    chat = open_chat(columns=columns)

    chat.press(f"!! {program} --rude\r")
    chat.wait_for(f"full screen {columns}x24 front=True")
    chat.press("x\x03")
    chat.wait_for("key b'x'")
    chat.wait_for(r"key b'\x03'")
    chat.press("q")
    chat.wait_for("✖ failed")
    chat.wait_for_last_line(PROMPT)

    left = chat.screen.received.rpartition(b"\x1b[?1049h")[2]
    for undone in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?1006l", b"\x1b[?2004l", b"\x1b[?25h"):
        assert undone in left
    chat.press("! echo still $((40+2))\r")
    chat.wait_for("still 42")
    assert chat.leave() == 0
    assert chat.current_attributes == chat.attributes


def test_the_terminal_is_as_it_was_before_the_chat(chat: ChatTerminal, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    chat.press(f"!! stty -a > {shlex.quote(str(seen))}; stty raw -echo; echo modes\r")
    chat.wait_for("modes", times=2)
    wait_for_prompt(chat, 2)

    modes = seen.read_text().split()
    assert {"icanon", "isig", "echo", "icrnl"} <= {*modes}
    chat.press("> 6 * 7\r")
    chat.wait_for("42")


def test_ctrl_c_is_the_programs_and_ends_only_that(chat: ChatTerminal) -> None:
    chat.press("!! echo begun; sleep 600\r")
    chat.wait_until(lambda: "begun" in chat.screen.lines, "begun alone on a line")
    chat.press("\x03")

    chat.wait_for("■ cancelled")
    chat.press("! echo alive $((40+2))\r")
    chat.wait_for("alive 42")


def test_ctrl_z_stops_the_program_until_fg_continues_it(chat: ChatTerminal, program: str) -> None:
    chat.press(f"!! {program}\r")
    chat.wait_for("full screen")
    chat.press("\x1a")
    chat.wait_for("waits; `!! fg` continues it.")
    chat.wait_for("[1] ■ paused")
    chat.press("! echo meanwhile $((40+2))\r")
    chat.wait_for("meanwhile 42")
    chat.press("!! fg\r")
    chat.wait_for("continued")
    chat.press("x")
    chat.wait_for("key b'x'")
    chat.press("q")

    chat.wait_for("exit code 7")
    chat.press("!! fg\r")
    chat.wait_for("No program is stopped")


def test_a_program_stopped_by_the_system_can_be_continued(chat: ChatTerminal) -> None:
    chat.press("!! echo pid=$$; sleep 600; echo over\r")
    chat.wait_until(lambda: any(line.startswith("pid=") for line in chat.screen.lines), "pid")
    pid = int(next(line for line in chat.screen.lines if line.startswith("pid="))[4:])
    chat.press("\x1a")
    chat.wait_for("waits; `!! fg` continues it.")

    assert chat.leave() == 0

    wait_until(lambda: has_ended(pid))


def test_it_runs_where_the_shell_is_with_what_that_exports(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    chat = open_chat(MYAPP_MODE="fine", MY_API_KEY="secret")
    folder = tmp_path / "some where"
    folder.mkdir()

    chat.press(f"! cd {shlex.quote(str(folder))}; export MINE='a b'; local_one=5; false\r")
    chat.wait_for("✖ failed")
    chat.press('!! echo "[$MINE][$local_one][$MYAPP_MODE][$MY_API_KEY]"; pwd >here\r')
    chat.wait_for("[a b][][fine][]")
    wait_for_prompt(chat, 3)

    assert (folder / "here").read_text() == f"{folder}\n"
    chat.press("! echo status $?\r")
    chat.wait_for("status 1")


def test_late_output_waits_until_the_program_has_ended(chat: ChatTerminal, program: str) -> None:
    chat.press("! (sleep 1; echo from behind) &\r")
    chat.wait_for("✔ done")
    chat.press(f"!! {program}\r")
    chat.wait_for("full screen")
    chat.press("!")
    chat.wait_for("key b'!'")
    chat.press("! ")
    chat.wait_for("key b' '")
    assert b"from behind" not in chat.screen.received.rpartition(b"\x1b[?1049h")[2]
    chat.press("q")

    chat.wait_for("exit code 7")
    chat.wait_for("from behind", times=2)


def test_it_is_an_event_of_the_session(chat: ChatTerminal, project: Path) -> None:
    chat.press("!! echo shown; exit 3\r")
    chat.wait_for("exit code 3")
    assert chat.leave() == 0

    (journal,) = project.parent.rglob("journal.jsonl")
    text = journal.read_text()
    assert '"terminal"' in text
    assert "echo shown; exit 3" in text
    finished = [
        event
        for line in text.splitlines()
        if (event := json.loads(line).get("extra", {}).get("event", {}))
        and event.get("exit_code") == 3
    ]
    assert len(finished) == 1


def test_a_program_of_before_can_be_run_again_with_the_terminal(chat: ChatTerminal) -> None:
    chat.press("!! test -t 0 && echo on a t''erminal\r")
    chat.wait_until(lambda: chat.screen.lines.count("on a terminal") == 1, "the first run")
    wait_for_prompt(chat, 2)

    chat.press("/run 1\r")

    chat.wait_until(lambda: chat.screen.lines.count("on a terminal") == 2, "the second run")
    chat.wait_for("[2] ✔ done")


def test_the_agent_reacts_to_what_had_the_terminal_and_can_ask(project: Path) -> None:
    script = [plan("a"), code("echo re''acted", "bash"), answer("I saw it.")]
    with ModelServer([ScriptedAnswer(entry) for entry in script]) as server:
        settings = {"llm.api_base": server.openai_url, "llm.api_key": "k", "llm.max_retries": 0}
        (project / "taskweaver_config.json").write_text(json.dumps(settings))
        with ChatTerminal(project, rows=40) as chat:
            chat.press("/auto on\r")
            chat.wait_for("What you run goes")
            chat.press("!! echo s''een\r")
            chat.wait_for("Run block 2?")
            chat.press("y\r")
            chat.wait_for("reacted")
            chat.wait_for("I saw it.")
            chat.wait_for_last_line(PROMPT)


def test_a_request_to_end_ends_the_program_too(chat: ChatTerminal) -> None:
    chat.press("!! echo pid=$$; trap '' HUP; while :; do sleep 1; done\r")
    chat.wait_until(lambda: any(line.startswith("pid=") for line in chat.screen.lines), "pid")
    pid = int(next(line for line in chat.screen.lines if line.startswith("pid="))[4:])

    chat.process.send_signal(signal.SIGTERM)

    assert chat.wait() == 130
    wait_until(lambda: has_ended(pid))
    assert chat.current_attributes == chat.attributes


def test_a_program_amid_a_line_does_not_cost_that_line(chat: ChatTerminal) -> None:
    chat.press("!! printf 'no end'\r")
    chat.wait_for("✔ done")

    assert "no end" in chat.screen.all_lines


def test_aliases_are_said_to_be_of_the_shell(chat: ChatTerminal) -> None:
    chat.press("! alias greet='echo hello'\r")
    chat.wait_for("[1] ✔ done")

    chat.press("!! greet\r")

    chat.wait_for("aliases and functions")
    chat.wait_for("[2] ✖ failed")


def test_a_missing_folder_is_said(chat: ChatTerminal, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    chat.press(f"! cd {gone}; rmdir {gone}\r")
    chat.wait_for("✔ done")

    chat.press("!! pwd\r")

    chat.wait_for("exec: Cannot start the process")
    wait_for_prompt(chat, 3)


def test_without_a_terminal_it_is_refused(project: Path) -> None:
    done = run_piped(project, "!! echo never\n! echo after\n")

    assert "there is none here" in done.stderr
    assert done.stdout == "after\n"
    assert done.returncode == 1


def test_a_simple_terminal_can_be_given_away_too(project: Path) -> None:
    variables = environ(project.parent, TERM="dumb")
    with EmulatedTerminal(CHAT, cwd=project, environ=variables) as chat:
        chat.wait_for("You >")
        chat.press('!! stty -echo; read -r line; printf "got $line"; exit 3\n')
        chat.wait_until(lambda: not chat.echoes, "the program has the terminal")
        chat.press("this\n")
        chat.wait_for("got this")
        chat.wait_for("You >", times=2)
        assert chat.echoes
        chat.press("\x04")
        assert chat.wait() == 1
    assert b"\x1b" not in chat.screen.received


@pytest.mark.skipif(bool(sandbox.probe().missing), reason="no sandbox on this machine")
def test_in_a_sandbox_it_is_refused(open_chat: OpenChat, project: Path) -> None:
    (project / "taskweaver_config.json").write_text('{"execution_service.kernel_mode": "sandbox"}')
    chat = open_chat()

    chat.press("!! touch outside\r")

    chat.wait_for("session's sandbox. `! command` runs inside, without one.")
    assert not list(project.parent.rglob("outside"))


@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
def test_a_file_is_edited_in_vim(chat: ChatTerminal, tmp_path: Path) -> None:
    path = tmp_path / "note"

    chat.press(f"!! vim -u NONE {path}\r")
    chat.wait_for("[New")
    chat.press("ihello\x1b:wq\r")
    chat.wait_for("✔ done")

    assert path.read_text() == "hello\n"


@pytest.mark.parametrize("command", ["vim x", "cd /tmp && top", "git commit", "python3"])
def test_a_program_that_needs_a_terminal_says_so_at_once(chat: ChatTerminal, command: str) -> None:
    chat.press(f"! {command}\r")

    chat.wait_for(f"needs a terminal: `!! {command}`")
    wait_for_prompt(chat, 2)


def test_tab_completes_commands_paths_and_variables_of_the_shell(
    chat: ChatTerminal, tmp_path: Path
) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "only one").write_text("its content\n")
    chat.press(
        f"! cd {shlex.quote(str(tmp_path))}; greet_them() {{ echo hello $1; }}; NAME_X=you\r"
    )
    chat.wait_for("✔ done")

    chat.press("! greet_t\t")
    chat.wait_for("! greet_them")
    chat.press(" $NAME_\t")
    chat.wait_for("! greet_them $NAME_X")
    chat.press("\r")
    chat.wait_for("hello you")
    chat.press("! cat a\\ f\t")
    chat.wait_for("a\\ folder/")
    chat.press("on\t")
    chat.wait_for("a\\ folder/only\\ one")
    chat.press("\r")
    chat.wait_for("its content")
