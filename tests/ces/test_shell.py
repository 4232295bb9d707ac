"""One persistent bash: its state lasts, its commands end, and what they started ends with them."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.execution.events import ExecutionEvent, LateOutput, StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus, StreamName
from taskweaver_ext.ces.programs.bash import BashProcess
from taskweaver_ext.ces.shell import ShellExecutor
from taskweaver_ext.errors import SessionError
from tests.support.executions import (
    LIMIT_SECONDS,
    MemoryWatch,
    has_ended,
    wait_until,
    with_enough_time,
)

MEGABYTE = 1 << 20
_CLEANS_UP = (
    'trap "sleep 0.15; trap - INT; kill -INT \\$\\$" INT; echo begun; while :; do sleep 0.01; done'
)
_IGNORES_INTERRUPTS = 'trap "" INT TERM; echo begun; while :; do sleep 0.1; done'


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[ShellExecutor]:
    with ShellExecutor(cwd=tmp_path) as shell:
        yield shell


def run(shell: ShellExecutor, code: str, **options: object) -> ExecutionResult:
    options.setdefault("timeout", LIMIT_SECONDS)
    return shell.execute(code, **options)  # type: ignore[arg-type]  # checked there


def output_of(shell: ShellExecutor, code: str) -> str:
    """What a command that must succeed writes."""
    result = run(shell, code)
    assert result.status is ExecutionStatus.SUCCESS, result
    return "".join(result.stdout)


def kinds(result: ExecutionResult) -> list[str]:
    return [notice.kind for notice in result.notices]


def interrupt_after_first_output(shell: ShellExecutor) -> Callable[[StreamName, str], None]:
    def interrupt(_stream: StreamName, _text: str) -> None:
        shell.interrupt()

    return interrupt


# State


def test_directory_variables_functions_and_aliases_last(shell: ShellExecutor) -> None:
    run(shell, "cd /usr; x=5; export y=6; f() { echo f $1 $x; }; alias greet='echo hello'")

    assert output_of(shell, "pwd; f a; greet; bash -c 'echo $y'") == "/usr\nf a 5\nhello\n6\n"


def test_the_last_exit_code_lasts(shell: ShellExecutor) -> None:
    run(shell, "(exit 7)")

    assert output_of(shell, "echo $?") == "7\n"


def test_the_shell_starts_where_it_is_told_to_with_what_it_is_given(tmp_path: Path) -> None:
    shell = ShellExecutor(cwd=tmp_path, env={"GIVEN": "yes"})

    assert output_of(shell, "pwd; echo $GIVEN") == f"{tmp_path}\nyes\n"
    shell.close()


def test_secrets_of_ours_are_not_in_its_environment(
    monkeypatch: pytest.MonkeyPatch, shell: ShellExecutor
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hidden")

    assert output_of(shell, 'echo "[$MY_API_KEY]"') == "[]\n"


def test_the_init_script_runs_once_before_the_first_command(tmp_path: Path) -> None:
    script = f"echo ran >> {tmp_path}/log; echo noise; greet() {{ echo hello; }}"
    shell = ShellExecutor(init_script=script)

    assert output_of(shell, "greet") == "hello\n"
    assert output_of(shell, "greet") == "hello\n"
    assert (tmp_path / "log").read_text() == "ran\n"
    shell.close()


def test_a_failed_init_script_is_noticed(tmp_path: Path) -> None:
    shell = ShellExecutor(init_script="echo broken >&2; false")

    result = run(shell, "echo hi")

    assert result.is_success
    assert [notice.message for notice in result.notices] == [
        "The init script failed with exit code 1; the shell is used as it left it. It said: broken"
    ]
    shell.close()


def test_an_init_script_that_ends_the_shell_is_left_out_and_said_once() -> None:
    with ShellExecutor(init_script="echo bad >&2; exit 4") as shell:
        first = shell.execute("x=5; echo hello")
        second = shell.execute("echo $x; exit 3")
        third = shell.execute("echo again")

    assert "".join(first.stdout) == "hello\n"
    assert [notice.message for notice in first.notices] == [
        "The init script ended the shell (it exited with code 4); it is left out from now on."
        " It said: bad"
    ]
    assert "".join(second.stdout) == "5\n"
    assert "".join(third.stdout) == "again\n"
    assert not any("init script" in notice.message for notice in third.notices)


def test_the_init_script_runs_again_in_a_shell_that_replaces_another() -> None:
    with ShellExecutor(init_script="greet() { echo hi; }; false") as shell:
        first = shell.execute("greet; exit 3")
        second = shell.execute("greet")

    assert ("".join(first.stdout), "".join(second.stdout)) == ("hi\n", "hi\n")
    said = [sum("init script" in one.message for one in run.notices) for run in (first, second)]
    assert said == [1, 0]


def test_redirections_do_not_outlive_their_command(shell: ShellExecutor) -> None:
    run(shell, "exec >/dev/null 2>&1 </dev/zero; echo lost")

    assert output_of(shell, "echo seen; cat") == "seen\n"


# Ends of commands


@pytest.mark.parametrize(
    ("code", "stdout", "exit_code"),
    [
        ("echo hi # a comment", "hi\n", 0),
        ("cat <<END\nhi\nEND", "hi\n", 0),
        ("cat <<END\nhi", "hi\n", 0),
        ("echo hi \\", "hi \\\n", 0),
        ("echo hi \\\n", "hi\n", 0),
        ("echo 'hi", "", 2),
        ('echo "hi', "", 2),
        ("echo $(echo hi", "", 2),
        ("if true; then echo hi", "", 2),
        ("}", "", 2),
        ("", "", 0),
        ("\n\n", "", 0),
        ("# nothing but a comment", "", 0),
        ("echo hi &", "hi\n", 0),
        ("echo ended; echo _taskweaver_running; printf '%s ended 0\\n' 1", None, 0),
        ("return 6", "", 6),
        ("false; echo $?", "1\n", 0),
        ("no-such-command", "", 127),
        ("echo ${unset:?}; echo on", "", 1),
        ("set -u; echo $unset; echo on", "", 1),
        ("exec no-such-program; echo on", "on\n", 0),
        ("kill $$; echo alive", "alive\n", 0),
        ("printf() { echo mine; }; trap 'echo debug' DEBUG; PROMPT_COMMAND='echo prompt'", None, 0),
        ("cd / && rmdir /no-such-folder", "", 1),
        ("bash", "", 0),
        ("cat", "", 0),
        ("read line", "", 1),
        ("(exit 255)", "", 255),
        ("echo -n no newline", "no newline", 0),
        ("x=$'a\\nb'; echo \"$x\"", "a\nb\n", 0),
        ("coproc cat; echo hi", "hi\n", 0),
    ],
)  # fmt: skip
def test_a_command_ends_with_its_own_result_and_the_shell_goes_on(
    shell: ShellExecutor, code: str, stdout: str | None, exit_code: int
) -> None:
    run(shell, "kept=1")

    result = run(shell, code)

    assert result.exit_code == exit_code
    assert result.status is (ExecutionStatus.ERROR if exit_code else ExecutionStatus.SUCCESS)
    assert stdout is None or "".join(result.stdout) == stdout
    assert result.variables_survived
    assert "1\n" in output_of(shell, "echo $kept")


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("echo hi; exit", ExecutionStatus.SUCCESS, 0),
        ("echo hi; exit 3", ExecutionStatus.ERROR, 3),
        ("f() { echo hi; exit 3; }; f; echo on", ExecutionStatus.ERROR, 3),
        ("exec echo hi", ExecutionStatus.SUCCESS, 0),
        ("echo hi; exec bash -c 'exit 4'", ExecutionStatus.ERROR, 4),
        ("set -e; echo hi; false; echo on", ExecutionStatus.ERROR, 1),
        ("echo hi; kill -9 $$; echo on", ExecutionStatus.DIED, 137),
        ("sleep 1000 & echo hi; exit 0", ExecutionStatus.SUCCESS, 0),
    ],
)
def test_a_command_that_ends_the_shell_says_that_its_state_is_gone(
    shell: ShellExecutor, code: str, status: ExecutionStatus, exit_code: int
) -> None:
    run(shell, "kept=1")
    events: list[ExecutionEvent] = []

    result = run(shell, code)
    after = run(shell, 'echo "[$kept]"', on_event=events.append)

    assert (result.status, result.exit_code) == (status, exit_code)
    assert "".join(result.stdout) == "hi\n"
    assert not result.variables_survived
    assert kinds(result) == ["state_lost"]
    assert "".join(after.stdout) == "[]\n"
    assert kinds(after) == ["restarted"]
    assert after.variables_survived
    statuses = [event.status for event in events if isinstance(event, StatusChanged)]
    assert statuses == ["restarted", "running"]
    assert kinds(run(shell, "true")) == []


def test_a_shell_that_was_killed_while_idle_is_started_again(shell: ShellExecutor) -> None:
    pid = int(output_of(shell, "echo $$"))
    os.kill(pid, 9)
    wait_until(lambda: has_ended(pid))

    result = run(shell, "echo hi")

    assert "".join(result.stdout) == "hi\n"
    assert [notice.message for notice in result.notices] == [
        "The shell was gone (it was killed by SIGKILL); this ran in a fresh one,"
        " without its directory, variables, functions and aliases."
    ]


def test_errexit_that_is_on_does_not_end_the_shell_by_itself(shell: ShellExecutor) -> None:
    run(shell, "set -e")

    assert output_of(shell, "false || true; echo on") == "on\n"


def test_what_keeps_the_shell_from_starting_is_a_result(tmp_path: Path) -> None:
    nowhere = ShellExecutor(cwd="/nowhere")
    pathless = ShellExecutor(env={"PATH": str(tmp_path)})

    assert run(nowhere, "echo hi").error == (
        "exec: Working directory does not exist '/nowhere' (ENOENT)"
    )
    assert run(pathless, "echo hi").error == "exec: bash not found in PATH (ENOENT)"
    nowhere.close()
    pathless.close()


# Background processes


def test_a_background_process_does_not_keep_its_command_and_outlives_it(
    shell: ShellExecutor,
) -> None:
    pid = int(output_of(shell, "sleep 1000 & echo $!"))

    assert not has_ended(pid)
    assert output_of(shell, f"kill -0 {pid} && echo alive") == "alive\n"


def test_what_it_writes_later_is_told_as_late_output_and_to_no_other_command(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    late: list[LateOutput] = []
    shell = ShellExecutor(on_late_output=late.append, folder=tmp_path / "records")
    started = run(shell, f"(until [ -e {gate} ]; do sleep 0.01; done; echo late) & echo begun")

    result = run(shell, f"touch {gate}; wait; echo done")
    wait_until(lambda: late)

    assert "".join(started.stdout) == "begun\n"
    assert "".join(result.stdout) == "done\n"
    assert late == [LateOutput(execution_id=started.execution_id, stream="stdout", text="late\n")]
    path = tmp_path / "records" / f"{started.execution_id}.late.stdout"
    assert path.read_text() == "late\n"
    shell.close()


def test_who_writes_too_much_later_is_ended_by_that(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with ShellExecutor(max_output_bytes=MEGABYTE) as shell:
        code = f"(until [ -e {gate} ]; do sleep 0.01; done; exec yes) & echo $!"
        pid = int(output_of(shell, code))
        assert not has_ended(pid)

        gate.touch()

        wait_until(lambda: has_ended(pid))


def test_closing_ends_everything_that_was_started(tmp_path: Path) -> None:
    shell = ShellExecutor()
    code = "sleep 1000 & echo $!; setsid env -i bash -c 'sleep 1000 >&- 2>&- <&- & echo $!'"
    pids = [int(pid) for pid in output_of(shell, code).split()]
    pids.append(int("".join(run(shell, "sleep 1000 & echo $!; exit").stdout)))
    pids.append(int(output_of(shell, "echo $$")))

    shell.close()

    assert len(pids) == 4
    for pid in pids:
        wait_until(lambda pid=pid: has_ended(pid))  # type: ignore[misc]  # a known weakness
    with pytest.raises(SessionError):
        shell.execute("echo hi")


def test_closing_ends_a_command_that_runs() -> None:
    shell = ShellExecutor()
    results: list[ExecutionResult] = []
    has_begun = threading.Event()

    def execute() -> None:
        results.append(shell.execute("echo hi; sleep 1000", on_output=lambda *_: has_begun.set()))

    thread = threading.Thread(target=execute)
    thread.start()
    assert has_begun.wait(LIMIT_SECONDS)
    shell.close()
    thread.join(LIMIT_SECONDS)

    assert results[0].status is ExecutionStatus.CANCELLED
    assert "".join(results[0].stdout) == "hi\n"


# Stopping

STOPPED = {
    "an external command": "echo begun; sleep 1000; echo on",
    "a pipeline": "echo begun; sleep 1000 | cat | cat; echo on",
    "a pipeline that writes": "echo begun; yes | cat >/dev/null; echo on",
    "a loop": "echo begun; while :; do :; done; echo on",
    "a loop of commands": "echo begun; while :; do sleep 0.01; done; echo on",
    "a loop that reads": "echo begun; yes | while read line; do :; done; echo on",
    "a function": "f() { echo begun; sleep 1000; echo on; }; g() { f; echo on; }; g; echo on",
    "a subshell": "echo begun; (sleep 1000; echo on); echo on",
    "a substitution": "echo begun; x=$(sleep 1000; echo on); echo on $x",
    "a wait": "sleep 1000 & echo begun; wait; echo on",
    "a read from a pipe": "echo begun; read line < <(sleep 1000); echo on",
    "an evaluation": "echo begun; eval 'sleep 1000; echo on'; echo on",
    "another session": "echo begun; setsid sleep 1000; echo on",
    "a stopped shell": "echo begun; kill -STOP $$; echo on",
    "a trap": "trap 'echo caught' INT; echo begun; sleep 1000; echo on",
    "a trap and a program that cleans up": (
        f"trap 'echo caught' INT; bash -c '{_CLEANS_UP}'; echo on"
    ),
    "a program that handles the signal": (
        "echo begun; bash -c 'trap \"exit 0\" INT; while :; do sleep 0.01; done'; echo on"
    ),
    "a loop of programs that handle the signal": (
        "echo begun; for i in {1..99}; do bash -c 'trap \"exit 0\" INT; sleep 0.05'; done; echo on"
    ),
}


@pytest.mark.parametrize("code", STOPPED.values(), ids=STOPPED.keys())
def test_an_interrupt_stops_the_command_and_the_shell_keeps_its_state(
    shell: ShellExecutor, code: str
) -> None:
    run(shell, "kept=1; cd /usr")

    result = run(shell, code, on_output=interrupt_after_first_output(shell))

    assert result.status is ExecutionStatus.CANCELLED
    assert (result.exit_code, result.error) == (130, "exec: Process interrupted (SIGNAL)")
    assert "on\n" not in "".join(result.stdout)
    assert result.variables_survived
    assert output_of(shell, "echo $kept; pwd") == "1\n/usr\n"


@pytest.mark.parametrize("name", ["an external command", "a pipeline", "a loop", "a function"])
def test_a_timeout_stops_the_command_and_the_shell_keeps_its_state(
    shell: ShellExecutor, name: str
) -> None:
    run(shell, "kept=1")

    result = with_enough_time(
        lambda seconds: run(shell, STOPPED[name], timeout=seconds), lambda result: result.stdout
    )

    assert result.status is ExecutionStatus.TIMEOUT
    assert re.fullmatch(r"exec: Process timeout after [\d.]+s \(TIMEOUT\)", result.error or "")
    assert "".join(result.stdout) == "begun\n"
    assert result.variables_survived
    assert output_of(shell, "echo $kept") == "1\n"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000",
        "setsid sleep 1000",
        "bash -c 'trap \"\" INT TERM; while :; do sleep 0.01; done'",
        "(while :; do sleep 0.01; done)",
        "env -i sleep 1000",
    ],
)
def test_what_a_stopped_command_had_in_the_background_is_stopped_too(
    shell: ShellExecutor, command: str
) -> None:
    earlier = int(output_of(shell, "sleep 1000 & echo $!"))

    result = run(shell, f"{command} & echo $!; wait", on_output=interrupt_after_first_output(shell))

    pid = int("".join(result.stdout))
    wait_until(lambda: has_ended(pid))
    assert not has_ended(earlier)


def test_a_program_that_is_interrupted_once_may_clean_up(shell: ShellExecutor) -> None:
    code = """
echo begun
bash -c 'trap "sleep 0.3; echo cleaned up; exit" INT; while :; do sleep 0.01; done'
"""

    result = run(shell, code, on_output=interrupt_after_first_output(shell))

    assert result.status is ExecutionStatus.CANCELLED


def test_a_program_that_ignores_interrupts_is_killed_and_the_shell_keeps_its_state(
    shell: ShellExecutor,
) -> None:
    code = f"kept=1; bash -c '{_IGNORES_INTERRUPTS}'; echo on"

    result = run(shell, code, on_output=interrupt_after_first_output(shell))

    assert "".join(result.stdout) == "begun\n"
    assert output_of(shell, "echo $kept") == "1\n"


def test_a_program_gets_each_signal_once_so_that_it_can_clean_up(
    shell: ShellExecutor, tmp_path: Path
) -> None:
    noted = tmp_path / "signals"
    code = f"""exec {sys.executable} -c '
import signal, time
def note(number, _frame):
    with open("{noted}", "a") as file:
        print(signal.Signals(number).name, file=file)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, note)
print("begun", flush=True)
while True:
    time.sleep(1)
'"""

    run(shell, f"({code})", on_output=interrupt_after_first_output(shell))

    assert noted.read_text() == "SIGINT\nSIGTERM\n"


def test_a_shell_that_cannot_be_brought_back_is_killed_and_the_result_says_so(
    shell: ShellExecutor,
) -> None:
    code = f"exec bash -c '{_IGNORES_INTERRUPTS}'"

    result = run(shell, code, on_output=interrupt_after_first_output(shell))

    assert result.status is ExecutionStatus.CANCELLED
    assert not result.variables_survived
    assert kinds(result) == ["state_lost"]
    assert output_of(shell, "echo hi") == "hi\n"


def test_a_kill_ends_the_shell_at_once(shell: ShellExecutor) -> None:
    code = "echo $$; trap '' INT TERM; while :; do sleep 0.01; done"

    result = run(shell, code, on_output=lambda *_: shell.interrupt(kill=True))

    assert result.status is ExecutionStatus.CANCELLED
    assert not result.variables_survived
    assert has_ended(int("".join(result.stdout)))


def test_an_interrupted_caller_leaves_no_command_behind(shell: ShellExecutor) -> None:
    pids: list[int] = []

    def interrupt(_stream: StreamName, text: str) -> None:
        pids.append(int(text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shell.execute("sleep 1000 & echo $!; wait", on_output=interrupt)

    wait_until(lambda: has_ended(pids[0]))
    assert output_of(shell, "echo hi") == "hi\n"


def test_interrupts_at_any_moment_neither_lose_the_shell_nor_a_command(
    shell: ShellExecutor,
) -> None:
    run(shell, "kept=1")
    for number in range(60):
        timer = threading.Timer(number * 0.0005, shell.interrupt)
        timer.start()
        result = run(shell, "for i in {1..20}; do /bin/true; done; echo on")
        timer.join()
        assert result.status in (ExecutionStatus.SUCCESS, ExecutionStatus.CANCELLED)
        if result.is_success:  # an interrupt may also come between the last word and the end
            assert "".join(result.stdout) == "on\n"
        assert output_of(shell, "echo $kept") == "1\n"


# Output


def test_a_long_output_is_bounded_in_memory_complete_in_its_file_and_can_be_interrupted(
    shell: ShellExecutor,
) -> None:
    run(shell, "seq 1 500000")
    watch = MemoryWatch(os.getpid())

    def show_slowly(_stream: StreamName, text: str) -> None:
        time.sleep(0.002)  # a terminal that is slower than the program
        if "3000000\n" in text:
            shell.interrupt()

    result = run(shell, "seq 1 50000000; echo on", on_output=show_slowly)

    assert result.status is ExecutionStatus.CANCELLED
    assert watch.growth() < 64 * MEGABYTE
    with result.full_output_paths["stdout"].open() as file:
        numbers = [int(line) for line in file.read().splitlines()[:-1]]
    assert len(numbers) >= 3_000_000
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_command_that_writes_too_much_is_stopped() -> None:
    shell = ShellExecutor(max_output_bytes=3_000_000)

    result = run(shell, "kept=1; yes")

    assert result.error == "exec: Output exceeds 3,000,000 bytes (OUTPUT_LIMIT)"
    assert "output_limit" in kinds(result)
    assert output_of(shell, "echo $kept") == "1\n"
    shell.close()


def test_bytes_that_are_no_text_are_replaced_and_noticed(shell: ShellExecutor) -> None:
    result = run(shell, "printf 'a\\xffb\\n'")

    assert result.is_success
    assert "".join(result.stdout) == "a\ufffdb\n"
    assert kinds(result) == ["output_lost"]


def test_input_is_for_one_command(shell: ShellExecutor) -> None:
    first = run(shell, "cat", stdin=b"one\ntwo\n")

    assert "".join(first.stdout) == "one\ntwo\n"
    assert output_of(shell, "cat") == ""


def test_commands_from_many_threads_run_one_after_another(shell: ShellExecutor) -> None:
    run(shell, "count=0")
    threads = [
        threading.Thread(target=run, args=(shell, "x=$count; sleep 0.01; count=$((x + 1))"))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)

    assert output_of(shell, "echo $count") == "10\n"


def test_a_bash_that_stands_still_does_not_keep_a_command_from_ending(
    shell: ShellExecutor,
) -> None:
    pid = int(output_of(shell, "echo $$"))
    os.kill(pid, signal.SIGSTOP)

    result = run(shell, "echo never", timeout=0.2)

    assert result.status is ExecutionStatus.TIMEOUT
    assert output_of(shell, "echo again") == "again\n"


def test_a_failure_of_ours_leaves_the_shell_usable(
    shell: ShellExecutor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    with monkeypatch.context() as patch:
        patch.setattr(BashProcess, "send", fail)
        result = run(shell, "echo never")

    assert result.status is ExecutionStatus.ERROR
    assert "EIO" in (result.error or "")
    assert "a mistake of ours" in caplog.text
    assert output_of(shell, "echo again") == "again\n"


def test_a_shell_completes_what_it_knows_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file of mine").write_text("")
    with ShellExecutor(tmp_path) as shell:
        before = shell.complete("cat bel")
        shell.execute("cd below; greeting() { :; }; alias gll='ls -l'; only_here=5; (exit 9)")
        offered = {
            line: [one.text for one in shell.complete(line)]
            for line in ("greet", "gll", "echo $only_h", "cat fi", "_taskweaver")
        }
        result = shell.execute("echo $? $PWD")

    assert [one.text for one in before] == ["below/"]
    assert offered == {
        "greet": ["greeting"],
        "gll": ["gll"],
        "echo $only_h": ["$only_here"],
        "cat fi": ["file\\ of\\ mine"],
        "_taskweaver": [],
    }
    assert "".join(result.stdout) == f"9 {tmp_path}/below\n"


def test_a_completion_starts_no_shell_and_waits_for_no_command(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("")
    with ShellExecutor(tmp_path, init_script=f"touch {tmp_path}/started") as shell:
        assert [one.text for one in shell.complete("cat he")] == ["here"]
        assert not (tmp_path / "started").exists()
        seen: list[list[str]] = []

        def complete(_stream: str, _text: str) -> None:
            seen.append([one.text for one in shell.complete("cat he")])
            shell.interrupt()

        shell.execute("echo begun; sleep 600", on_output=complete, timeout=LIMIT_SECONDS)

    assert seen[0] == ["here"]


def test_what_a_question_of_ours_finds_is_told_with_the_next_command(tmp_path: Path) -> None:
    with ShellExecutor(tmp_path, init_script="echo broken >&2; false") as shell:
        known = shell.ask()
        result = shell.execute("true")

    assert known is not None
    assert known.cwd == tmp_path
    assert [notice.message for notice in result.notices if "init script" in notice.message]
