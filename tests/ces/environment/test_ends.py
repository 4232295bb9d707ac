"""However code ends, or does not end, there is a true result and the session goes on."""

from __future__ import annotations

import signal
import threading
from functools import partial
from pathlib import Path

import psutil
import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import ExecutionEvent, StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.errors import KernelDiedError
from tests.support.executions import (
    DIE_ON_A_THREAD,
    LIMIT_SECONDS,
    Heard,
    OpenEnvironment,
    has_ended,
    kernel_pid,
    run,
    times,
    wait_until,
    whole_stdout,
    with_enough_time,
)

DEATHS = {
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "SIGSEGV": "import ctypes; ctypes.string_at(0)",
    "SIGABRT": "import os; os.abort()",
}

ENDLESS = {
    "a Python loop": "while True: pass",
    "a sleep": "import time; time.sleep(1e6)",
    "a child process": "import subprocess; subprocess.run(['sleep', '1000'])",
    "an await": "import asyncio; await asyncio.sleep(1000)",
}

STUBBORN = {
    "code that catches KeyboardInterrupt": """
said = False
while True:
    try:
        if not said:
            said = True
            print("go", flush=True)
        while True: pass
    except KeyboardInterrupt:
        pass
""",
    "a C loop that ignores signals": """
import ctypes, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("go", flush=True)
ctypes.CDLL(None).sleep(1_000_000)
""",
    "C code that keeps the interpreter": """
import ctypes, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("go", flush=True)
ctypes.PyDLL(None).sleep(1_000_000)
""",
}

KEEPS_THE_INTERPRETER = "C code that keeps the interpreter"
STUBBORN_AND_HEARD = [
    *(name for name in STUBBORN if name != KEEPS_THE_INTERPRETER),
    pytest.param(
        KEEPS_THE_INTERPRETER,
        marks=pytest.mark.not_on_gateway("output leaves on a thread, which gets no turn"),
    ),
]

PLUGIN = """
from taskweaver.plugin import register_plugin

@register_plugin
def double(x):
    return 2 * x
"""


@pytest.mark.parametrize("name", DEATHS)
def test_a_killed_kernel_is_noticed_and_replaced(environment: Environment, name: str) -> None:
    environment.load_plugin("s1", "double", PLUGIN)
    environment.execute_code("s1", "x = 1")

    heard = run(environment, f"for i in range(100): print('so far', i)\n{DEATHS[name]}")
    after = run(environment, "print('x' in dir(), double(4))")

    assert heard.result.status is ExecutionStatus.DIED
    assert heard.text().endswith("so far 99\n")
    assert heard.result.death is not None
    assert heard.result.death.signal == signal.Signals[name]
    assert name in heard.result.death.detail
    assert not heard.result.variables_survived
    assert after.text() == "False 8\n"
    assert [notice.kind for notice in after.result.notices] == ["restarted"]
    assert any(isinstance(e, StatusChanged) and e.status == "restarted" for e in after.events)


def test_os_exit_is_a_death_with_its_code(environment: Environment) -> None:
    heard = run(environment, "import os\nfor i in range(100): print(i)\nos._exit(3)")

    assert heard.result.status is ExecutionStatus.DIED
    assert heard.result.death is not None
    assert heard.result.death.exit_code == 3
    assert heard.text().endswith("99\n")


@pytest.mark.local_only("containers hide process ids, gateways look at their own pace")
def test_death_is_noticed_though_the_code_has_time_left(environment: Environment) -> None:
    kernel = psutil.Process(kernel_pid(environment))
    code = "print('up'); import time; time.sleep(1000)"

    heard = run(environment, code, on_output=lambda *_: kernel.kill())

    assert heard.result.status is ExecutionStatus.DIED


def test_what_a_child_wrote_survives_the_death_of_the_kernel(environment: Environment) -> None:
    code = """
import os, signal, threading
os.write(2, b"last words\\n" * 100)
os.kill(os.getpid(), signal.SIGKILL)
"""

    heard = run(environment, code)

    assert heard.text("stderr") == "last words\n" * 100


def test_a_kernel_that_dies_idle_is_replaced(environment: Environment) -> None:
    environment.execute_code("s1", DIE_ON_A_THREAD)
    wait_until(lambda: environment.sessions()[0].state == "dead")

    after = run(environment, "print('alive')")

    assert after.text() == "alive\n"
    assert [notice.kind for notice in after.result.notices] == ["restarted"]


def test_three_deaths_in_a_row_are_an_error_until_the_session_is_restarted(
    environment: Environment,
) -> None:
    for _ in range(3):
        result = environment.execute_code("s1", DEATHS["SIGKILL"])
        assert result.status is ExecutionStatus.DIED

    with pytest.raises(KernelDiedError, match=r"3 times in a row .*SIGKILL.*restart_session"):
        environment.execute_code("s1", "pass")

    environment.restart_session("s1")
    assert environment.execute_code("s1", "40 + 2").output == "42"


@pytest.mark.parametrize("name", ENDLESS)
def test_interrupt_ends_code_and_keeps_the_variables(environment: Environment, name: str) -> None:
    environment.execute_code("s1", "x = 1")
    code = f"print('go', flush=True)\n{ENDLESS[name]}"

    heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"))

    assert heard.result.status is ExecutionStatus.CANCELLED
    assert heard.result.variables_survived
    assert environment.execute_code("s1", "x").output == "1"


@pytest.mark.parametrize("name", ENDLESS)
def test_timeout_ends_code_and_keeps_the_variables(environment: Environment, name: str) -> None:
    environment.execute_code("s1", "x = 1")

    limits: list[float] = []

    def run_for(seconds: float) -> Heard:
        limits.append(seconds)
        return run(environment, f"print('so far')\n{ENDLESS[name]}", timeout=seconds)

    heard = with_enough_time(run_for, Heard.text)

    assert heard.result.status is ExecutionStatus.TIMEOUT
    assert f"{limits[-1]:g} s" in (heard.result.error or "")
    assert heard.text() == "so far\n"
    assert heard.result.variables_survived
    assert environment.execute_code("s1", "x").output == "1"


@pytest.mark.parametrize("name", STUBBORN_AND_HEARD)
def test_stubborn_code_is_killed_after_its_interrupt(environment: Environment, name: str) -> None:
    def stop(_stream: str, _text: str) -> None:
        environment.interrupt("s1", kill_after=0.3)

    heard = run(environment, STUBBORN[name], on_output=stop)

    assert heard.result.status is ExecutionStatus.CANCELLED
    assert not heard.result.variables_survived
    assert heard.text() == "go\n"
    assert environment.execute_code("s1", "'alive'").output == "'alive'"


@pytest.mark.parametrize("name", STUBBORN)
def test_stubborn_code_is_killed_after_its_timeout(environment: Environment, name: str) -> None:
    heard = with_enough_time(
        lambda seconds: run(environment, STUBBORN[name], timeout=seconds),
        lambda heard: not heard.result.variables_survived,
    )

    assert heard.result.status is ExecutionStatus.TIMEOUT
    assert not heard.result.variables_survived
    assert "killed" in (heard.result.error or "")


@pytest.mark.local_only("a container ends with all it has, a gateway knows no children")
def test_killing_a_kernel_ends_its_children_wherever_they_moved(
    environment: Environment, tmp_path: Path
) -> None:
    pids = tmp_path / "session/cwd/pids"
    code = f"""
import ctypes, signal, subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)
children = [
    subprocess.Popen(["sleep", "1000"]),
    subprocess.Popen(["sleep", "1000"], start_new_session=True),
    subprocess.Popen(["sh", "-c", "setsid sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE),
]
daemon = int(children[2].stdout.readline())
open({str(pids)!r}, "w").write(" ".join(map(str, [*(c.pid for c in children), daemon])))
ctypes.PyDLL(None).sleep(1_000_000)
"""

    result = with_enough_time(
        lambda seconds: environment.execute_code("s1", code, timeout=seconds),
        lambda _result: pids.exists() and pids.read_text(),
    )

    assert result.status is ExecutionStatus.TIMEOUT
    for pid in map(int, pids.read_text().split()):
        wait_until(partial(has_ended, pid))


def test_no_interrupt_is_lost_before_a_long_sleep(environment: Environment) -> None:
    code = "print('go'); import time; time.sleep(1000)"

    for _ in range(times(environment, 100)):
        heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"), timeout=20)

        assert heard.result.status is ExecutionStatus.CANCELLED


def test_an_interrupt_before_the_code_starts_is_made_good(environment: Environment) -> None:
    def interrupt_at_once(event: ExecutionEvent) -> None:
        if isinstance(event, StatusChanged) and event.status == "running":
            environment.interrupt("s1")

    for _ in range(20):
        result = environment.execute_code(
            "s1", "import time; time.sleep(1000)", on_event=interrupt_at_once, timeout=20
        )

        assert result.status is ExecutionStatus.CANCELLED


def test_a_handler_of_one_cell_does_not_outlive_it(environment: Environment) -> None:
    environment.execute_code("s1", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")

    heard = run(
        environment,
        "print('go'); import time; time.sleep(1000)",
        on_output=lambda *_: environment.interrupt("s1"),
        timeout=20,
    )

    assert heard.result.status is ExecutionStatus.CANCELLED


def test_code_that_swallows_an_interrupt_still_times_out(environment: Environment) -> None:
    code = """
import time
try:
    print("go", end="")  # in one piece: each would be an interrupt
    time.sleep(1000)
except KeyboardInterrupt:
    time.sleep(1000)
"""

    heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"), timeout=0.5)

    assert heard.result.status is ExecutionStatus.TIMEOUT


def test_an_interrupt_when_idle_does_not_hit_the_next_execution(environment: Environment) -> None:
    for _ in range(20):
        environment.interrupt("s1")
        result = environment.execute_code("s1", "sum(range(1000))")

        assert result.output == "499500"


def test_interrupts_at_any_moment_leave_the_session_usable(environment: Environment) -> None:
    stop = threading.Event()

    def interrupt_all_the_time() -> None:
        while not stop.wait(0.002):
            environment.interrupt("s1")

    thread = threading.Thread(target=interrupt_all_the_time)
    thread.start()
    try:
        for _ in range(times(environment, 100)):
            result = environment.execute_code(
                "s1", "for i in range(2000): print(i)", timeout=LIMIT_SECONDS
            )
            assert result.status in (ExecutionStatus.SUCCESS, ExecutionStatus.CANCELLED)
    finally:
        stop.set()
        thread.join()

    lines = "".join(environment.execute_code("s1", "for i in range(2000): print(i)").stdout)
    assert lines == "".join(f"{i}\n" for i in range(2000))


def test_output_around_an_interrupt_is_neither_torn_nor_doubled(environment: Environment) -> None:
    code = """
import sys
i = 0
try:
    while True:
        sys.stdout.write(f"line {i}\\n")
        i += 1
except KeyboardInterrupt:
    sys.stdout.write(f"last {i}\\n")
"""
    heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"))

    *lines, last = whole_stdout(heard.result).splitlines()
    written = int(last.removeprefix("last "))
    numbers = [int(line.removeprefix("line ")) for line in lines]
    assert numbers in (list(range(written)), list(range(written + 1)))


def test_a_signal_handler_of_the_code_may_raise_while_it_prints(environment: Environment) -> None:
    code = """
import signal, sys
class Tick(Exception): pass
i, ticks, armed = 0, 0, False
def tick(*_):
    global armed
    if armed:
        armed = False
        raise Tick
def write_lines():
    global i, armed
    while i < 20_000:
        armed = True
        sys.stdout.write(f"line {i}\\n")
        i += 1
    armed = False
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while i < 20_000:
    try:
        write_lines()
    except Tick:
        ticks += 1
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
"""

    heard = run(environment, code)
    ticks = environment.execute_code("s1", "ticks").output

    assert heard.result.status is ExecutionStatus.SUCCESS
    assert int(ticks) > 0
    numbers = [int(line.removeprefix("line ")) for line in heard.text().splitlines()]
    assert numbers == sorted(numbers)
    assert sorted(set(numbers)) == list(range(20_000))


def test_the_memory_limit_is_a_memory_error_and_the_kernel_lives(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, memory_limit=512 << 20) as limited:
        limited.start_session("s1")
        limited.execute_code("s1", "x = 1")

        result = limited.execute_code("s1", "y = bytearray(1 << 30)")

        assert "MemoryError" in (result.error or "")
        assert limited.execute_code("s1", "x").output == "1"


def test_an_interrupted_caller_does_not_leave_code_running(
    environment: Environment,
) -> None:
    def interrupt_ourselves(_stream: str, _text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        environment.execute_code(
            "s1", "print('go'); import time; time.sleep(1000)", on_output=interrupt_ourselves
        )

    assert environment.execute_code("s1", "6 * 7", timeout=10).output == "42"
