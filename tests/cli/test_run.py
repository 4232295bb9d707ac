"""`taskweaver-ext run` runs code as `python` would, shows it live, and can be stopped."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.support.command_line import PROGRAM, StartProgram, starting
from tests.support.executions import has_ended, wait_until
from tests.support.sandboxes import NOBODY, require_sandbox
from tests.support.terminal_program import LIMIT_SECONDS, TerminalProgram

PRINT_PID_AND_WAIT = """
import os, time
print("pid", os.getpid(), "here")
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Our environment, with a temporary folder that nobody else uses."""
    (tmp_path / "tmp").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "TERM": "xterm"}


@pytest.fixture
def run(tmp_path: Path, environ: dict[str, str]) -> Callable[..., Any]:
    """Run the command to its end, with an empty standard input unless told otherwise."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, "run", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environ,
            timeout=LIMIT_SECONDS,
        )

    return run


@pytest.fixture
def start(tmp_path: Path, environ: dict[str, str]) -> Iterator[StartProgram]:
    """Start the command with pipes; what still runs at the end is killed."""
    with starting("run", cwd=tmp_path, environ=environ) as start:
        yield start


@pytest.fixture
def on_terminal(tmp_path: Path, environ: dict[str, str]) -> Iterator[Callable[..., Any]]:
    """Start the command on a terminal of its own."""
    started: list[TerminalProgram] = []

    def start(*arguments: str) -> TerminalProgram:
        program = TerminalProgram([*PROGRAM, "run", *arguments], cwd=tmp_path, environ=environ)
        started.append(program)
        return program

    yield start
    for program in started:
        with program:
            pass


def wait_until_gone(process: int) -> None:
    wait_until(lambda: not Path(f"/proc/{process}").exists(), seconds=10)


@pytest.mark.skipif(os.getuid() != 0, reason="only root has rights that a sandbox takes")
def test_what_code_in_a_sandbox_cannot_do_with_its_folder_is_said_once(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    require_sandbox()
    (tmp_path / "given").mkdir()
    os.chown(tmp_path / "given", NOBODY, NOBODY)

    done = run("--kernel", "sandbox", "--cwd", "given", "-c", "print('ran')")

    assert (done.stdout, done.returncode) == ("ran\n", 0)
    assert done.stderr.count("and not change it: the folder belongs to another user") == 1


def test_output_appears_while_the_code_still_runs(start: StartProgram, tmp_path: Path) -> None:
    code = """
import pathlib, time
print("waiting")
while not pathlib.Path("gate").exists():
    time.sleep(0.01)
print("done")
"""
    process = start("-c", code)

    assert process.stdout.readline() == "waiting\n"
    (tmp_path / "gate").touch()  # only now may the code end

    rest, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert (rest, errors, process.returncode) == ("done\n", "", 0)


def test_each_stream_goes_to_its_own_and_a_pipe_gets_every_character(
    start: StartProgram,
) -> None:
    text = "colour \x1b[31mred\x1b[0m, title \x1b]0;x\x07, half a line\r, ünï"

    process = start("-c", f"import sys; print({text!r}); print('err', file=sys.stderr)")

    assert process.stdout.buffer.read() == f"{text}\n".encode()
    assert process.stderr.buffer.read() == b"err\n"
    assert process.wait(LIMIT_SECONDS) == 0


def test_a_file_runs_as_python_would_run_it(run: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "beside.py").write_text("NAME = 'a module beside the script'")
    script = folder / "script.py"
    script.write_text("""
import atexit, concurrent.futures, os, sys, threading, time
import beside
def later(name):
    time.sleep(0.2)
    print(name)
atexit.register(print, "exit handler")
threading.Thread(target=later, args=["thread"]).start()
concurrent.futures.ThreadPoolExecutor().submit(later, "pool")
if __name__ == "__main__":
    print(beside.NAME)
    print(sys.argv, os.path.samefile(__file__, "scripts/script.py"), os.getcwd())
"the last expression"
""")
    as_python = subprocess.run(
        [sys.executable, "scripts/script.py", "one", "--two"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT_SECONDS,
    )

    result = run("scripts/script.py", "one", "--", "--two")

    assert sorted(result.stdout.splitlines()) == sorted(as_python.stdout.splitlines())
    assert result.stdout.splitlines()[-1] == "exit handler"
    assert (result.stderr, result.returncode) == ("", 0)


def test_a_traceback_names_the_file_and_its_line(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("\n\ndef fail():\n    return 1 / 0\n\nfail()\n")

    result = run("script.py")

    assert result.returncode == 1
    assert result.stdout == ""
    assert f"{tmp_path}/script.py:4, in fail()" in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("arguments", "stdin"), [(["-c", "print(1 + 1)"], ""), (["-"], "print(1 + 1)\n")]
)
def test_code_comes_from_the_command_line_or_from_stdin(
    run: Callable[..., Any], arguments: list[str], stdin: str
) -> None:
    result = run(*arguments, stdin=stdin)

    assert (result.stdout, result.stderr, result.returncode) == ("2\n", "", 0)


def test_input_is_answered_from_stdin_until_its_end(run: Callable[..., Any]) -> None:
    result = run("-c", "print(input('name? ')); print(input()); input()", stdin="Ada\nLovelace")

    assert result.stdout == "name? Ada\nLovelace\n"
    assert "EOFError" in result.stderr
    assert result.returncode == 1


def test_input_fails_at_once_when_stdin_was_the_code(run: Callable[..., Any]) -> None:
    result = run("-", stdin="input('name? ')")

    assert "nobody is there to answer" in result.stderr
    assert result.returncode == 1


def test_too_long_is_exit_code_124_and_keeps_what_was_printed(run: Callable[..., Any]) -> None:
    result = run("-c", "print('begun')\nwhile True: pass", "--timeout", "0.5")

    assert (result.stdout, result.returncode) == ("begun\n", 124)
    assert result.stderr == "[Timed out] The code was stopped after 0.5 s.\n"


@pytest.mark.parametrize(
    ("code", "stderr"),
    [
        (
            "import os; os.abort()",
            "[Died] The process that ran the code is gone: killed by SIGABRT.\n",
        ),
        ("import sys; sys.exit(3)", "[Exited with code 3]\n"),
        ("import sys; sys.exit('no such thing')", "no such thing\n"),
    ],
)
def test_code_that_fails_is_exit_code_1_and_says_how(
    run: Callable[..., Any], code: str, stderr: str
) -> None:
    result = run("-c", f"print('begun'); {code}")

    assert (result.stdout, result.stderr, result.returncode) == ("begun\n", stderr, 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["missing.py"], "error: missing.py cannot be read: No such file or directory."),
        (["tmp"], "error: tmp cannot be read: Is a directory."),
        (["-c", "1", "--cwd", "missing"], "error: Invalid value for '--cwd'"),
        (["-c", "1", "--timeout", "0"], "error: Invalid value for '--timeout'"),
    ],
)
def test_misuse_is_exit_code_2(run: Callable[..., Any], arguments: list[str], error: str) -> None:
    result = run(*arguments)

    assert result.returncode == 2
    assert result.stderr.startswith(error)
    assert result.stdout == ""


def test_an_interpreter_without_ipykernel_is_named_with_what_to_do(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)

    result = run("-c", "1", "--python", str(python))

    assert result.returncode == 1
    assert result.stderr.startswith(f"error: The Python at {python} has no ipykernel")
    assert f"{python} -m pip install ipykernel" in result.stderr


def test_cwd_is_where_the_code_runs(run: Callable[..., Any], tmp_path: Path) -> None:
    result = run("-c", "import os; print(os.getcwd())", "--cwd", "tmp")

    assert result.stdout == f"{tmp_path / 'tmp'}\n"


def test_json_is_one_event_per_line_and_the_last_says_how_it_ended(
    run: Callable[..., Any],
) -> None:
    code = """
import sys
from IPython.display import clear_output, display
print("out")
print("err", file=sys.stderr)
display("shown", display_id="d")
display("changed", display_id="d", update=True)
clear_output(wait=True)
input("name? ")
1 / 0
"""
    result = run("-c", code, "--json", stdin="Ada\n")

    events = [json.loads(line) for line in result.stdout.splitlines()]
    identifier = events[0]["execution_id"]
    assert {event["execution_id"] for event in events} == {identifier}
    texts = {"stdout": "", "stderr": ""}
    for event in events:
        if event["event"] == "output":
            texts[event["stream"]] += event["text"]
    assert texts == {"stdout": "out\n", "stderr": "err\n"}
    others = [event for event in events if event["event"] != "output"]
    for event in others:
        del event["execution_id"]
    assert others[:-1] == [
        {"event": "status", "status": "running", "detail": ""},
        {
            "event": "display",
            "bundle": {"text/plain": "'shown'"},
            "metadata": {},
            "display_id": "d",
            "is_result": False,
            "files": {},
        },
        {
            "event": "display_update",
            "bundle": {"text/plain": "'changed'"},
            "metadata": {},
            "display_id": "d",
            "files": {},
        },
        {"event": "clear_output", "wait": True},
        {"event": "input_requested", "prompt": "name? ", "password": False, "number": 1},
        {"event": "input_settled", "outcome": "answered"},
    ]
    last = others[-1]
    assert last["event"] == "finished"
    assert last["status"] == "error"
    assert last["error"].endswith("ZeroDivisionError: division by zero")
    assert last["exit_code"] is None
    assert last["duration_seconds"] > 0
    assert last["variables_survived"] is True
    assert last["notices"] == []
    assert (result.stderr, result.returncode) == ("", 1)


def test_an_image_is_saved_in_a_private_folder_and_named(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    code = """
from IPython.display import SVG, display
display(SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"))
display({"a": 1})
"""
    result = run("-c", code)

    saved = re.fullmatch(r"\[Saved\] (.+)\n", result.stderr)
    assert saved is not None
    path = Path(saved[1])
    assert "<svg" in path.read_text()
    [folder] = (tmp_path / "tmp").iterdir()
    assert path.is_relative_to(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert result.stdout == "{'a': 1}\n"


def test_the_session_folder_is_removed_unless_it_is_to_be_kept(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    run("-c", "print('x' * 3_000_000)")
    assert list((tmp_path / "tmp").iterdir()) == []

    result = run("-c", "print('x' * 3_000_000)", "--keep")

    [folder] = (tmp_path / "tmp").iterdir()
    assert result.stderr == f"[Kept] {folder}\n"
    [record] = (folder / "ces" / "output").iterdir()
    assert record.stat().st_size == 3_000_001


def test_a_closed_pipe_ends_the_code_quietly(start: StartProgram) -> None:
    code = "import os\nprint(os.getpid())\nwhile True: print('more' * 100)"
    process = start("-c", code)
    kernel = int(process.stdout.readline())

    process.stdout.close()

    assert process.stderr.read() == ""
    assert process.wait(LIMIT_SECONDS) == 1
    wait_until_gone(kernel)


def test_output_that_cannot_be_written_is_a_failure(environ: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*PROGRAM, "run", "-c", "print(1)"],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            timeout=LIMIT_SECONDS,
        )

    assert result.returncode == 1
    assert "standard output cannot be written: No space left on device" in result.stderr


def test_input_of_code_whose_stdin_is_closed_is_at_its_end(environ: dict[str, str]) -> None:
    command = shlex.join([*PROGRAM, "run", "-c", "print('begun'); input()"])
    result = subprocess.run(
        ["bash", "-c", f"{command} <&-"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=LIMIT_SECONDS,
    )

    assert result.stdout == "begun\n"
    assert result.stderr.rstrip().endswith("EOFError:")
    assert result.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_kernel_that_takes_long_to_start_can_be_stopped(
    start: StartProgram, tmp_path: Path, number: signal.Signals
) -> None:
    python, pid_file = tmp_path / "python", tmp_path / "pid"
    # Not at once: first whoever starts it is to know of it.
    python.write_text(f"#!/bin/bash\nsleep 1\necho $$ >{pid_file}\nexec sleep 600\n")
    python.chmod(0o700)
    process = start("-c", "print('never')", "--python", str(python))
    wait_until(lambda: pid_file.exists() and pid_file.read_text())

    process.send_signal(number)

    assert process.wait(LIMIT_SECONDS) == 130
    assert process.stdout.read() == ""
    assert process.stderr.read() == "[Cancelled]\n"
    wait_until_gone(int(pid_file.read_text()))
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_leaves_no_process_and_no_folder(
    start: StartProgram, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("-c", PRINT_PID_AND_WAIT)
    kernel = int(process.stdout.readline().split()[1])

    process.send_signal(number)

    assert process.wait(LIMIT_SECONDS) == 130
    assert process.stderr.read() == "[Cancelled]\n"
    wait_until_gone(kernel)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_ctrl_c_interrupts_the_code_and_lets_it_clean_up(on_terminal: Callable[..., Any]) -> None:
    code = f"try:\n{indent(PRINT_PID_AND_WAIT, '    ')}\nfinally:\n    print('cleaned up')"
    program = on_terminal("-c", code)
    program.wait_for("here")

    program.press("\x03")

    assert program.wait() == 130
    assert program.seen.endswith("cleaned up\r\n[Cancelled]\r\n")
    assert "Traceback" not in program.seen


def test_a_second_ctrl_c_kills_code_that_does_not_listen(on_terminal: Callable[..., Any]) -> None:
    code = """
import os, time
while True:
    try:
        print("pid", os.getpid(), "here")
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("not listening")
"""
    program = on_terminal("-c", code)
    program.wait_for("here")
    kernel = int(program.seen.split()[1])

    program.press("\x03")
    program.wait_for("not listening")
    program.wait_for("Ctrl-C again kills it")
    program.press("\x03")

    assert program.wait() == 130
    assert "so it was killed: all it held in memory is lost." in program.seen
    wait_until_gone(kernel)


def test_a_terminal_gets_text_and_colours_and_nothing_else(on_terminal: Callable[..., Any]) -> None:
    text = "a\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\x1b]52;c;eA==\x07b"

    program = on_terminal("-c", f"print({text!r})")

    assert program.wait() == 0
    assert program.seen == "a\x1b[31mred\x1b[0mb\r\n"


def test_a_person_answers_and_a_password_does_not_appear(on_terminal: Callable[..., Any]) -> None:
    code = "import getpass; print(input('name? '), getpass.getpass('word? ')[::-1])"
    program = on_terminal("-c", code)

    program.wait_for("name? ")
    program.press("Ada\n")
    program.wait_for("word? ")
    wait_until(lambda: not program.echoes)
    program.press("secret\n")

    assert program.wait() == 0
    assert program.seen == "name? Ada\r\nword? \r\nAda terces\r\n"
    assert program.echoes


def test_ctrl_c_withdraws_a_question_and_shows_typing_again(
    on_terminal: Callable[..., Any],
) -> None:
    program = on_terminal("-c", "import getpass; getpass.getpass('word? ')")
    program.wait_for("word? ")
    wait_until(lambda: not program.echoes)

    program.press("\x03")

    assert program.wait() == 130
    assert "[Cancelled]" in program.seen
    assert program.echoes


def test_one_kernel_is_not_worth_a_process_to_fork_kernels_from(start: StartProgram) -> None:
    process = start("-c", "import os; print(os.getppid())")

    output, _ = process.communicate(timeout=LIMIT_SECONDS)

    assert int(output) == process.pid


def test_a_command_that_is_killed_leaves_no_process(start: StartProgram) -> None:
    process = start(
        "-c",
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n",
    )
    child = int(process.stdout.readline())

    process.kill()

    wait_until(lambda: has_ended(child))
