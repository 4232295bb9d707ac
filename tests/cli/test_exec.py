"""`taskweaver-ext exec`: a program's streams and exit code are ours, and nothing outlives it."""

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
from typing import Any

import pytest

from tests.support.command_line import PROGRAM, StartProgram, starting
from tests.support.executions import has_ended, wait_until
from tests.support.terminal_program import LIMIT_SECONDS, TerminalProgram

EXEC = [*PROGRAM, "exec"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Our environment, with a home and a temporary folder that nobody else uses."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "home").mkdir()
    home = str(tmp_path / "home")
    folders = {"TMPDIR": str(tmp_path / "tmp"), "HOME": home, "XDG_CONFIG_HOME": home}
    return {**os.environ, **folders}


@pytest.fixture
def run(tmp_path: Path, environ: dict[str, str]) -> Callable[..., Any]:
    """Run the command to its end, with an empty standard input unless told otherwise."""

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*EXEC, *arguments],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env=environ,
            timeout=LIMIT_SECONDS,
        )

    return run


@pytest.fixture
def start(tmp_path: Path, environ: dict[str, str]) -> Iterator[StartProgram]:
    """Start the command with pipes; what still runs at the end is killed."""
    with starting("exec", cwd=tmp_path, environ=environ) as start:
        yield start


def test_the_programs_streams_and_exit_code_are_ours(run: Callable[..., Any]) -> None:
    done = run("bash", "-c", "echo out; echo err >&2; exit 3")

    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_code_comes_from_a_file_from_standard_input_or_from_the_option(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "program.sh").write_text("echo from a file")

    assert run("bash", "program.sh").stdout == b"from a file\n"
    assert run("bash", "-", stdin=b"echo from stdin").stdout == b"from stdin\n"
    assert run("sh", "-c", "echo from the option").stdout == b"from the option\n"


def test_the_program_reads_what_it_is_given_and_nothing_else(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "input").write_text("from a file")

    assert run("bash", "-c", "cat", stdin=b"ours").stdout == b""
    assert run("bash", "-c", "cat", "--stdin", "-", stdin=b"ours").stdout == b"ours"
    assert run("bash", "-c", "cat", "--stdin", "a text").stdout == b"a text"
    assert run("bash", "-c", "cat", "--stdin", "@input").stdout == b"from a file"


def test_folder_and_variables_are_passed_on(run: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "home"
    options = ("--cwd", str(folder), "--env", "A=1", "--env", "B=x=y")

    done = run("bash", "-c", "pwd; echo $A $B", *options)

    assert done.stdout.decode() == f"{folder}\n1 x=y\n"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["bash", "-c", "sleep 1000", "--timeout", "0.3"], 124, "timeout after 0.3s (TIMEOUT)"),
        (["bash", "-c", "kill -SEGV $$"], 128 + 11, "Process killed by SIGSEGV (SIGNAL)"),
        (["cobol", "-c", "x"], 125, "Unsupported language 'cobol' (LANG_UNSUPPORTED)"),
        (["bash", "-c", "pwd", "--cwd", "/nowhere"], 125, "does not exist '/nowhere' (ENOENT)"),
        *(
            (["bash", "-c", "pwd", "--kernel", kernel, "--cwd", folder], 125, "(CONFIG)")
            for kernel in ("sandbox", "container")
            for folder in ("/", "/tmp", str(Path.home()))
        ),
        (["bash"], 125, "No code was given (MISSING_CODE)"),
        (
            ["bash", "nowhere.sh"],
            125,
            "nowhere.sh cannot be read: No such file or directory (ENOENT)",
        ),
        (["bash", "-c", "yes", "--max-output", "1M"], 125, "1,048,576 bytes (OUTPUT_LIMIT)"),
        (["bash", "-c", "printf '\\xff'"], 125, "is not UTF-8 text (BINARY_OUTPUT)"),
        (
            ["bash", "-c", "true", "--no-such-option"],
            125,
            "No such option",
        ),
        (
            ["bash", "-c", "true", "--memory", "much"],
            125,
            "write it like 500000, 64K, 512M or 2G (USAGE)",
        ),
        (["bash", "-c", "true", "--env", "novalue"], 125, "'novalue' sets no variable (EINVAL)"),
        (["bash", "a", "-c", "b"], 125, "There are two programs: a and the one after -c (USAGE)"),
        (
            ["bash", "-c", "cat", "--stdin", "@no"],
            125,
            "no cannot be read: No such file or directory (ENOENT)",
        ),
        (["python@0.1", "-c", "1"], 125, "python 0.1 not found; there are "),
        ([], 125, "Missing argument 'LANGUAGE' (USAGE)"),
    ],
    ids=lambda value: shlex.join(value) if isinstance(value, list) else None,
)
def test_what_is_not_the_programs_own_end_has_a_line_and_a_code(
    run: Callable[..., Any], arguments: list[str], code: int, error: str
) -> None:
    done = run(*arguments)

    lines = done.stderr.decode().splitlines()
    assert done.returncode == code
    (line,) = (line for line in lines if line.startswith("error: exec: "))
    assert error in line
    assert re.search(r" \([A-Z_]+\)$", line), "it ends with a code"


@pytest.mark.parametrize("kernel", ["sandbox", "container"])
def test_a_folder_that_was_removed_under_us_is_said(
    tmp_path: Path, environ: dict[str, str], kernel: str
) -> None:
    (tmp_path / "gone").mkdir()
    command = shlex.join([*PROGRAM, "exec", "bash", "--kernel", kernel, "-c", "pwd"])

    done = subprocess.run(
        ["bash", "-c", f"cd gone && rmdir ../gone && exec {command}"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )

    assert done.returncode == 125
    assert "error: exec: Working directory does not exist '.' (ENOENT)" in done.stderr


def test_the_list_of_languages_says_what_is_there(run: Callable[..., Any]) -> None:
    done = run("--list")

    lines = {line.split()[0]: line for line in done.stdout.decode().splitlines()}
    assert done.returncode == 0
    assert lines["bash"].split()[2].endswith("/bash")
    assert "(PATH)" in lines["python@VERSION:"]
    assert lines["rust"]


def test_a_version_that_is_there_is_run(run: Callable[..., Any]) -> None:
    version = ".".join(map(str, sys.version_info[:2]))

    done = run(f"python@{version}", "-c", "import sys; print(*sys.version_info[:2], sep='.')")

    assert done.stdout.decode().strip() == version


def test_limits_are_applied(run: Callable[..., Any], tmp_path: Path) -> None:
    hoard = f"{sys.executable} -c 'x = bytearray(10**9)'"

    memory = run("bash", "-c", hoard, "--memory", "200M")
    size = run("bash", "-c", "head -c 5000 /dev/zero > file", "--file-size", "1K")
    cpu = run("bash", "-c", "while :; do :; done", "--cpu", "1")

    assert b"(OUT_OF_MEMORY)" in memory.stderr
    assert (size.returncode, (tmp_path / "file").stat().st_size) == (1, 1024)
    assert cpu.returncode == 128 + signal.SIGXCPU


def test_events_are_lines_of_json(run: Callable[..., Any]) -> None:
    done = run("bash", "-c", "echo hi; exit 3", "--json")

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["status", "output", "finished"]
    assert (events[1]["stream"], events[1]["text"]) == ("stdout", "hi\n")
    assert (events[2]["status"], events[2]["exit_code"]) == ("error", 3)
    assert (done.returncode, done.stderr) == (3, b"")


def test_output_arrives_while_the_program_runs(start: StartProgram, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    process = start("bash", "-c", f"echo waiting; until [ -e {gate} ]; do sleep 0.01; done")

    assert process.stdout.readline() == "waiting\n"
    gate.touch()

    assert process.wait(LIMIT_SECONDS) == 0


def test_a_large_output_is_passed_on_whole(run: Callable[..., Any], tmp_path: Path) -> None:
    done = run("bash", "-c", "seq 1 1000000")

    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_raw_bytes_are_kept_in_a_file_that_is_named(run: Callable[..., Any]) -> None:
    done = run("bash", "-c", "printf 'a\\xff\\xfe'")

    (saved,) = [line for line in done.stderr.decode().splitlines() if line.startswith("[Saved]")]
    assert Path(saved.split(": ")[1]).read_bytes() == b"a\xff\xfe"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_us_interrupts_the_program_and_what_it_started(
    start: StartProgram, number: signal.Signals
) -> None:
    process = start("bash", "-c", "setsid sleep 1000 & echo $!; wait")
    child = int(process.stdout.readline())

    process.send_signal(number)

    assert process.wait(LIMIT_SECONDS) == 128 + number
    assert process.stderr.read() == "[Cancelled]\n"
    wait_until(lambda: has_ended(child))


def test_control_c_on_a_terminal_interrupts_and_a_second_one_kills(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    code = "trap 'echo once' INT; trap '' TERM; echo begun; while :; do sleep 0.01; done"
    arguments = [*EXEC, "bash", "-c", code]

    with TerminalProgram(arguments, cwd=tmp_path, environ=environ) as program:
        program.wait_for("begun")
        program.press("\x03")
        program.wait_for("once")
        program.press("\x03")

        assert program.wait() == 130
        assert "[Cancelled]" in program.seen


def test_what_drives_terminals_does_not_reach_ours(tmp_path: Path, environ: dict[str, str]) -> None:
    code = "printf 'a\\033]0;title\\007b\\033[2Jc\\n'"
    arguments = [*EXEC, "bash", "-c", code]

    with TerminalProgram(arguments, cwd=tmp_path, environ=environ) as program:
        program.wait()

    assert "abc" in program.seen
    assert "title" not in program.seen


def test_whoever_reads_us_may_stop_reading(tmp_path: Path, environ: dict[str, str]) -> None:
    command = f"{shlex.join(EXEC)} bash -c yes | head -1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        timeout=LIMIT_SECONDS,
    )

    assert (done.stdout, done.stderr) == ("y\n141\n", "")


def test_runs_are_written_down_without_secrets(run: Callable[..., Any], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    run("bash", "-c", "export API_KEY=abcdefgh; exit 3", "--audit", str(log))
    run("bash", "-c", "true")

    started, ended = [json.loads(line) for line in log.read_text().splitlines()]
    assert started["code"] == "export API_KEY=****; exit 3"
    assert (ended["status"], ended["exit_code"]) == ("error", 3)
    (default,) = (tmp_path / "home").rglob("audit.jsonl")
    assert len(default.read_text().splitlines()) == 2
    assert default.stat().st_mode & 0o777 == 0o600
