"""One fresh process per run: within its limits, and with nothing left of it afterwards."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus, StreamName
from taskweaver_ext.ces.process import ProcessExecutor
from taskweaver_ext.ces.programs.languages import BUILT_IN, CODE, FILE, PROGRAM, Language
from taskweaver_ext.ces.programs.program import ProgramLimits
from taskweaver_ext.errors import SessionError
from tests.support.cgroups import limited_group
from tests.support.data import DATA
from tests.support.executions import (
    LIMIT_SECONDS,
    MemoryWatch,
    has_ended,
    wait_until,
    with_enough_time,
)
from tests.support.needs import require_node

MEGABYTE = 1 << 20
PR_GET_CHILD_SUBREAPER = 37

PYTHON = Language(name="python", command=sys.executable, arguments=("-c", CODE), suffix=".py")
"""One version, by its absolute path."""

DATA = DATA / "20_oneshot_exec_ansi_sse.json"
CASES = {case["id"]: case for case in json.loads(DATA.read_text())["groups"]["oneshot_exec"]}
DEVIATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "stdin_prompt_times_out": (
        "Standard input is closed unless given, so a program that asks fails at once.",
        {"success": False, "stdout": "Enter name: ", "stderr_contains": "EOFError", "exit_code": 1},
    ),
}


@pytest.fixture
def bash() -> Iterator[ProcessExecutor]:
    with ProcessExecutor("bash") as executor:
        yield executor


@pytest.fixture
def python() -> Iterator[ProcessExecutor]:
    with ProcessExecutor(PYTHON) as executor:
        yield executor


def run_once(executor: ProcessExecutor, code: str | None, **options: Any) -> ExecutionResult:  # noqa: ANN401 - passed on as it came
    """Run code on an executor that is not needed any more."""
    with executor:
        return executor.execute(code, **options)


def stdout_of(result: ExecutionResult) -> str:
    return "".join(result.stdout)


def test_an_unknown_language_is_said_as_recorded() -> None:
    """The recorded case has rust, which we know."""
    expected = CASES["unsupported_language"]["expect"]["error"]

    result = run_once(ProcessExecutor("cobol"), "DISPLAY 'HI'.")

    assert result.error == expected.replace("rust", "cobol")


@pytest.mark.parametrize("case_id", sorted(CASES.keys() - {"argv_mapping", "unsupported_language"}))
def test_a_recorded_case_comes_out_as_expected(case_id: str) -> None:
    case = CASES[case_id]["input"]
    _reason, expected = DEVIATIONS.get(case_id, ("", CASES[case_id]["expect"]))
    if case["lang"] == "javascript":
        require_node()

    timeout = case["timeout"] / 1000 if case_id not in DEVIATIONS and "timeout" in case else None
    result = run_once(ProcessExecutor(case["lang"]), case["code"], timeout=timeout)

    stderr = "".join(result.stderr)
    found = {
        "success": result.is_success,
        "stdout": stdout_of(result),
        "stderr": stderr,
        "exit_code": result.exit_code,
        "error": result.error,
        "stderr_contains": expected.get("stderr_contains", "") in stderr,
    }
    wanted = {**expected, **({"stderr_contains": True} if "stderr_contains" in expected else {})}
    assert {key: found[key] for key in wanted} == wanted


def test_the_recorded_command_line_is_ours() -> None:
    case = CASES["argv_mapping"]
    language = BUILT_IN[case["input"]["lang"]]
    code = case["input"]["code"]

    arguments = [code if part == CODE else part for part in language.arguments_for(code)]

    assert [language.command, *arguments] == case["expect"]["argv"]


def test_every_deviation_is_of_a_case_that_exists() -> None:
    assert DEVIATIONS.keys() <= CASES.keys()


# What is wrong before the start


@pytest.mark.parametrize(
    ("executor", "options", "error"),
    [
        (lambda: ProcessExecutor("cobol"), {}, "Unsupported language 'cobol' (LANG_UNSUPPORTED)"),
        (
            lambda: ProcessExecutor(Language(name="x", command="no-such-program")),
            {},
            "no-such-program not found in PATH (ENOENT)",
        ),
        (
            lambda: ProcessExecutor(Language(name="x", command="/nowhere/python")),
            {},
            "/nowhere/python does not exist (ENOENT)",
        ),
        (
            lambda: ProcessExecutor(Language(name="x", command="/etc/passwd")),
            {},
            "/etc/passwd is not executable (EACCES)",
        ),
        (
            lambda: ProcessExecutor(
                Language(name="x", command=PROGRAM, build=("no-such-compiler", FILE))
            ),
            {},
            "no-such-compiler not found in PATH (ENOENT)",
        ),
        (
            lambda: ProcessExecutor("bash"),
            {"cwd": "/nowhere"},
            "Working directory does not exist '/nowhere' (ENOENT)",
        ),
        (
            lambda: ProcessExecutor("bash"),
            {"cwd": "/etc/passwd"},
            "Working directory is not a folder '/etc/passwd' (CWD_INVALID)",
        ),
        (
            lambda: ProcessExecutor("bash"),
            {"env": {"A": "\0"}},
            "Cannot start the process: embedded null byte (EINVAL)",
        ),
    ],
)
def test_what_keeps_code_from_running_is_a_result(
    executor: Any,  # noqa: ANN401 - a function that makes one, so that nothing is made at import
    options: dict[str, Any],
    error: str,
) -> None:
    result = run_once(executor(), "echo hi", **options)

    assert result.status is ExecutionStatus.ERROR
    assert result.error == f"exec: {error}"
    assert (result.stdout, result.stderr, result.exit_code) == ([], [], None)


def test_no_code_is_a_result(bash: ProcessExecutor) -> None:
    result = bash.execute(None)

    assert result.error == "exec: No code was given (MISSING_CODE)"


# How the process runs


def test_no_shell_is_between_us_and_the_program(python: ProcessExecutor) -> None:
    result = python.execute("import os; print(os.getppid(), os.getpgid(0) == os.getpid())")

    assert stdout_of(result) == f"{os.getpid()} True\n"


def test_code_is_taken_as_it_is(python: ProcessExecutor) -> None:
    code = "print('$HOME `id` \"; exit 1')"

    assert stdout_of(python.execute(code)) == '$HOME `id` "; exit 1\n'


@pytest.mark.parametrize(
    ("language", "code", "expected"),
    [
        ("python", "print(len(__import__('sys').argv))\n#", "1\n"),
        ("bash", "echo hi\n#", "hi\n"),
        ("javascript", "console.log(require('fs') !== null)\n//", "true\n"),
    ],
)
def test_code_too_long_for_a_command_line_runs_all_the_same(
    language: str, code: str, expected: str
) -> None:
    if language == "javascript":
        require_node()

    result = run_once(ProcessExecutor(language), code + "x" * MEGABYTE)

    assert (stdout_of(result), result.error) == (expected, None)


def test_python_imports_from_the_working_directory_however_long_the_code_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "local_module.py").write_text("answer = 42")
    code = "import local_module; print(local_module.answer)\n#"

    for length in (10, MEGABYTE):
        result = run_once(ProcessExecutor("python", cwd=tmp_path), code + "x" * length)
        assert stdout_of(result) == "42\n"


def test_variables_are_the_callers_and_secrets_of_ours_are_not_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hidden")

    result = run_once(
        ProcessExecutor("bash", env={"A": "1", "B": "2"}),
        'echo "$A $B [$MY_API_KEY]"',
        env={"B": "3"},
    )

    assert stdout_of(result) == "1 3 []\n"


def test_the_working_directory_is_the_callers_and_ours_stays(tmp_path: Path) -> None:
    before = os.getcwd()

    result = run_once(ProcessExecutor("bash"), "pwd", cwd=tmp_path)

    assert stdout_of(result) == f"{tmp_path}\n"
    assert os.getcwd() == before


def test_large_input_arrives_whole(bash: ProcessExecutor) -> None:
    result = bash.execute("wc -c", stdin=b"x" * (5 * MEGABYTE))

    assert stdout_of(result).strip() == str(5 * MEGABYTE)


def test_input_that_is_not_read_is_no_problem(bash: ProcessExecutor) -> None:
    result = bash.execute("echo hi", stdin=b"x" * (5 * MEGABYTE))

    assert result.is_success


def test_usage_is_known(python: ProcessExecutor) -> None:
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = python.execute(f"x = bytearray({ours} + 100_000_000)")

    assert result.usage.cpu_seconds is not None
    assert result.usage.cpu_seconds > 0
    assert result.usage.peak_memory_bytes is not None
    assert result.usage.peak_memory_bytes > ours + 100_000_000


def test_a_hundred_runs_at_once_each_have_their_own_output(python: ProcessExecutor) -> None:
    def run(number: int) -> str:
        result = python.execute(f"print('run', {number})", timeout=LIMIT_SECONDS)
        return stdout_of(result)

    with ThreadPoolExecutor(100) as pool:
        outputs = list(pool.map(run, range(100)))

    assert outputs == [f"run {number}\n" for number in range(100)]


# How a run ends


def test_a_process_that_ignores_sigterm_is_killed_after_a_grace(bash: ProcessExecutor) -> None:
    code = "trap '' TERM; echo begun; while :; do sleep 0.1; done"

    result = with_enough_time(lambda seconds: bash.execute(code, timeout=seconds), stdout_of)

    assert result.status is ExecutionStatus.TIMEOUT
    assert re.fullmatch(r"exec: Process timeout after [\d.]+s \(TIMEOUT\)", result.error or "")
    assert stdout_of(result) == "begun\n"
    assert result.exit_code == 128 + signal.SIGKILL


def test_a_process_may_clean_up_when_its_time_is_over(bash: ProcessExecutor) -> None:
    code = "trap 'echo cleaned up; exit 7' TERM; echo begun; while :; do sleep 0.01; done"

    result = with_enough_time(lambda seconds: bash.execute(code, timeout=seconds), stdout_of)

    assert result.status is ExecutionStatus.TIMEOUT
    assert stdout_of(result) == "begun\ncleaned up\n"


def test_a_process_that_closes_its_streams_and_lives_on_is_waited_for(
    bash: ProcessExecutor,
) -> None:
    result = bash.execute("echo hi; exec >&- 2>&-; sleep 0.3; exit 4")

    assert (stdout_of(result), result.exit_code) == ("hi\n", 4)
    assert result.duration_seconds >= 0.3


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("ending", ["", "time.sleep(1000)"], ids=["ends itself", "is timed out"])
def test_a_daemon_that_holds_the_pipe_open_does_not_outlive_the_run(
    python: ProcessExecutor, ending: str
) -> None:
    result = with_enough_time(
        lambda seconds: python.execute(DAEMON + ending, timeout=seconds),
        lambda result: stdout_of(result) and (ending or result.is_success),
    )

    assert result.status is (ExecutionStatus.TIMEOUT if ending else ExecutionStatus.SUCCESS)
    assert has_ended(int(stdout_of(result)))


@pytest.mark.parametrize("ending", ["exit 0", "sleep 1000"])
def test_a_grandchild_without_session_parent_environment_and_streams_ends_with_the_run(
    bash: ProcessExecutor, ending: str
) -> None:
    code = f"""
setsid env -i bash -c 'sleep 1000 >&- 2>&- <&- & echo $!'
{ending}
"""

    result = with_enough_time(lambda seconds: bash.execute(code, timeout=seconds), stdout_of)

    assert has_ended(int(stdout_of(result)))


def test_our_own_process_does_not_adopt_orphans(bash: ProcessExecutor) -> None:
    bash.execute("sleep 1000 & exit 0")

    is_reaper = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(is_reaper), 0, 0, 0)
    assert is_reaper.value == 0


def test_others_may_finish_their_lines_after_the_end_of_the_program(
    bash: ProcessExecutor,
) -> None:
    result = bash.execute("echo hi > >(sleep 0.05; cat)")

    assert stdout_of(result) == "hi\n"


def test_a_kill_after_an_interrupt_does_not_wait_for_the_next_signal(
    bash: ProcessExecutor,
) -> None:
    code = "trap 'echo INT' INT; trap 'echo TERM' TERM; echo begun; while :; do sleep 0.01; done"
    heard: list[str] = []

    def interrupt_then_kill(_stream: StreamName, text: str) -> None:
        heard.append(text)
        bash.interrupt(kill="INT" in text)

    result = bash.execute(code, on_output=interrupt_then_kill, timeout=LIMIT_SECONDS)

    assert result.status is ExecutionStatus.CANCELLED
    assert "".join(heard) == "begun\nINT\n"


@pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (40, "signal 40")])
def test_death_by_a_signal_is_an_error_that_names_it(
    bash: ProcessExecutor, number: int, name: str
) -> None:
    result = bash.execute(f"echo before; kill -{number} $$")

    assert result.status is ExecutionStatus.ERROR
    assert result.error == f"exec: Process killed by {name} (SIGNAL)"
    assert (stdout_of(result), result.exit_code) == ("before\n", 128 + number)


def test_an_interrupted_program_may_clean_up(python: ProcessExecutor) -> None:
    code = """
import time
try:
    print("begun", flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print("cleaned up")
"""

    result = python.execute(code, on_output=lambda _stream, _text: python.interrupt())

    assert result.status is ExecutionStatus.CANCELLED
    assert result.error == "exec: Process interrupted (SIGNAL)"
    assert stdout_of(result).endswith("cleaned up\n")


def test_a_killed_program_has_no_time_to_clean_up(bash: ProcessExecutor) -> None:
    code = "trap 'echo cleaned up; exit' INT TERM; echo begun; while :; do sleep 0.01; done"

    result = bash.execute(code, on_output=lambda _stream, _text: bash.interrupt(kill=True))

    assert result.status is ExecutionStatus.CANCELLED
    assert stdout_of(result) == "begun\n"


def test_an_interrupted_caller_leaves_no_program_behind(bash: ProcessExecutor) -> None:
    pids: list[int] = []

    def interrupt(_stream: str, text: str) -> None:
        pids.append(int(text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bash.execute("echo $$; sleep 1000", on_output=interrupt)

    assert has_ended(pids[0])


def test_a_working_directory_that_was_removed_is_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bash: ProcessExecutor
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert stdout_of(bash.execute("echo hi")) == "hi\n"


def test_closing_ends_what_runs() -> None:
    executor = ProcessExecutor("bash")
    results: list[ExecutionResult] = []
    has_begun = threading.Event()

    def run() -> None:
        results.append(
            executor.execute("echo begun; sleep 1000", on_output=lambda *_: has_begun.set())
        )

    thread = threading.Thread(target=run)
    thread.start()
    assert has_begun.wait(LIMIT_SECONDS)
    executor.close()
    thread.join(LIMIT_SECONDS)

    assert results[0].status is ExecutionStatus.CANCELLED
    with pytest.raises(SessionError):
        executor.execute("echo hi")


# How much a program may write


def test_yes_for_the_whole_limit_is_bounded_and_complete(bash: ProcessExecutor) -> None:
    bash.execute("yes | head -c 3000000")
    watch = MemoryWatch(os.getpid())

    result = bash.execute("yes", timeout=1)

    assert result.status is ExecutionStatus.TIMEOUT
    assert sum(map(len, result.stdout)) <= MEGABYTE
    path = result.full_output_paths["stdout"]
    assert path.stat().st_size > 10 * MEGABYTE
    assert watch.growth() < 64 * MEGABYTE
    with path.open() as file:
        assert file.read(MEGABYTE) == "y\n" * (MEGABYTE // 2)


def test_a_huge_output_is_whole_in_its_file(bash: ProcessExecutor) -> None:
    size = 200_000_000
    bash.execute("yes | head -c 3000000")
    watch = MemoryWatch(os.getpid())

    result = bash.execute(f"yes 0123456789 | head -c {size}", timeout=LIMIT_SECONDS)

    assert result.status is ExecutionStatus.SUCCESS
    assert result.full_output_paths["stdout"].stat().st_size == size
    assert watch.growth() < 64 * MEGABYTE


def test_a_program_that_writes_too_much_is_stopped() -> None:
    executor = ProcessExecutor("bash", max_output_bytes=3_000_000)

    result = run_once(executor, "yes", timeout=LIMIT_SECONDS)

    assert result.status is ExecutionStatus.ERROR
    assert result.error == "exec: Output exceeds 3,000,000 bytes (OUTPUT_LIMIT)"
    assert "output_limit" in [notice.kind for notice in result.notices]


@pytest.mark.parametrize(
    "before", [b"", b"text \xc3\xa9\n", b"y\n" * MEGABYTE], ids=["nothing", "a line", "much"]
)
def test_output_that_is_no_text_is_an_error_and_its_bytes_are_kept(
    tmp_path: Path, before: bytes
) -> None:
    binary = bytes(range(256)) * 5000
    (tmp_path / "data").write_bytes(before + binary + b"text again")
    first_bad = before + binary[:128]
    executor = ProcessExecutor("bash", cwd=tmp_path, folder=tmp_path / "records")

    result = run_once(executor, "cat data; echo fine >&2")

    assert result.status is ExecutionStatus.ERROR
    assert result.error == "exec: Output on stdout is not UTF-8 text (BINARY_OUTPUT)"
    assert result.exit_code == 0
    assert first_bad.decode().endswith(result.stdout[-1])
    assert result.stderr == ["fine\n"]
    (artifact,) = result.artifact
    assert Path(artifact.file_name).read_bytes() == (tmp_path / "data").read_bytes()
    assert artifact.mime_type == "application/octet-stream"


def test_binary_output_counts_against_the_limit(tmp_path: Path) -> None:
    executor = ProcessExecutor("bash", max_output_bytes=1_000_000)

    result = run_once(executor, "cat /dev/urandom", timeout=LIMIT_SECONDS)

    assert result.error == "exec: Output exceeds 1,000,000 bytes (OUTPUT_LIMIT)"


# What a program may use


def test_too_much_memory_is_named_where_the_program_says_so() -> None:
    executor = ProcessExecutor(PYTHON, limits=ProgramLimits(memory_bytes=200 * MEGABYTE))

    result = run_once(executor, "print('begun'); x = bytearray(10**9)")

    assert result.error == "exec: Out of memory (limit 209,715,200 bytes) (OUT_OF_MEMORY)"
    assert stdout_of(result) == "begun\n"
    assert "MemoryError" in "".join(result.stderr)


def test_javascript_runs_within_a_memory_limit_and_not_beyond() -> None:
    require_node()
    limits = ProgramLimits(memory_bytes=300 * MEGABYTE)
    hoard = "const a = []; while (true) a.push(new Array(1e6).fill(1))"

    small = run_once(ProcessExecutor("javascript", limits=limits), "console.log('fits')")
    large = run_once(ProcessExecutor("javascript", limits=limits), hoard)

    assert (stdout_of(small), small.error) == ("fits\n", None)
    assert large.error is not None
    assert large.error.endswith("(OUT_OF_MEMORY)")


def test_a_program_killed_by_the_system_for_memory_is_told_from_others(
    bash: ProcessExecutor,
) -> None:
    with limited_group("memory", "memory.max", 50 * MEGABYTE) as join:
        code = f"echo $$ > {join}; exec {sys.executable} -c 'x = bytearray(200_000_000)'"
        result = bash.execute(code, timeout=LIMIT_SECONDS)

    assert result.error == "exec: Out of memory (OUT_OF_MEMORY)"
    assert bash.execute("kill -9 $$").error == "exec: Process killed by SIGKILL (SIGNAL)"


def test_too_much_cpu_time_ends_the_program() -> None:
    executor = ProcessExecutor("bash", limits=ProgramLimits(cpu_seconds=1))

    result = run_once(executor, "while :; do :; done", timeout=LIMIT_SECONDS)

    assert result.error == "exec: Process killed by SIGXCPU (SIGNAL)"
    assert [notice.kind for notice in result.notices] == ["limit"]


def test_files_may_not_grow_beyond_their_limit(tmp_path: Path) -> None:
    executor = ProcessExecutor("bash", cwd=tmp_path, limits=ProgramLimits(file_bytes=1000))

    result = run_once(executor, "head -c 5000 /dev/zero > file")

    assert not result.is_success
    assert (tmp_path / "file").stat().st_size == 1000


def test_limits_bind_the_children_too() -> None:
    executor = ProcessExecutor("bash", limits=ProgramLimits(memory_bytes=200 * MEGABYTE))

    result = run_once(executor, f"{sys.executable} -c 'x = bytearray(10**9)'")

    assert result.error is not None
    assert result.error.endswith("(OUT_OF_MEMORY)")


def test_a_fork_bomb_ends_in_time_and_leaves_nothing_running(bash: ProcessExecutor) -> None:
    with limited_group("pids", "pids.max", 100) as join:
        code = f"echo $$ > {join}; bomb() {{ bomb | bomb & }}; bomb; sleep 1000"
        result = bash.execute(code, timeout=1)

        assert result.status is ExecutionStatus.TIMEOUT
        wait_until(lambda: join.read_text() == "")


# Languages with a build


def test_a_built_program_is_run() -> None:
    language = Language(
        name="copied",
        command=PROGRAM,
        arguments=("argument",),
        suffix=".sh",
        build=("bash", "-c", 'cp "$1" "$2" && chmod +x "$2"', "build", FILE, PROGRAM),
    )

    result = run_once(ProcessExecutor(language), "#!/bin/bash\necho built $1; exit 5")

    assert (stdout_of(result), result.exit_code) == ("built argument\n", 5)


def test_a_build_that_fails_is_the_end() -> None:
    language = Language(
        name="broken",
        command=PROGRAM,
        build=("bash", "-c", "echo 'line 1: mistake' >&2; exit 2"),
    )

    result = run_once(ProcessExecutor(language), "anything")

    assert result.error == "exec: The build ended with exit code 2 (BUILD_FAILED)"
    assert (result.stderr, result.exit_code) == (["line 1: mistake\n"], 2)


def test_a_build_counts_against_the_time() -> None:
    language = Language(name="slow", command=PROGRAM, build=("sleep", "1000"))

    result = run_once(ProcessExecutor(language), "anything", timeout=0.3)

    assert result.status is ExecutionStatus.TIMEOUT


def test_the_default_limit_of_time_applies_when_none_is_given() -> None:
    executor = ProcessExecutor("bash", default_timeout=0.3)

    result = run_once(executor, "sleep 1000")

    assert result.status is ExecutionStatus.TIMEOUT


def test_programs_heed_interrupts_although_we_ignore_them(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as behind `&` in a script
    try:
        with ProcessExecutor("bash", cwd=tmp_path) as executor:
            result = executor.execute("kill -INT $$; echo survived")
    finally:
        signal.signal(signal.SIGINT, before)

    assert result.stdout == []
    assert "SIGINT" in (result.error or "")
