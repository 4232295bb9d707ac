"""An interrupt stops the code that it was meant for, and takes nothing with it."""

from __future__ import annotations

import random
import threading

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import ExecutionEvent, StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, ExecutionStatus
from tests.support.executions import Heard, run

CODES = {
    "prints": "for _ in range(20):\n    print('line', n); n += 1",
    "flushed prints": "for _ in range(20):\n    print('line', n, flush=True); n += 1",
    "a value": "print('line', n); n += 1\n'value'",
    "an error": "print('line', n); n += 1\n1 / 0",
    "a display": "display('one'); print('line', n); n += 1\ndisplay('two')",
    "sleeps": "import time\nfor _ in range(5):\n    print('line', n); n += 1; time.sleep(0.001)",
    "awaits": """
import asyncio
for _ in range(5):
    print('line', n); n += 1; await asyncio.sleep(0.001)""",
    "a long await": "import asyncio\nprint('line', n); n += 1; await asyncio.sleep(1000)",
}
ENDS = {
    "an error": (ExecutionStatus.ERROR, ExecutionStatus.CANCELLED),
    "a long await": (ExecutionStatus.CANCELLED,),
}


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_at_random_moments_lose_no_output(environment: Environment, seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(60):
        name = choose.choice(list(CODES))
        environment.execute_code("s1", "n = 0")
        heard = _run_and_interrupt(environment, CODES[name], after=choose.uniform(0, 0.015))
        next_result = environment.execute_code("s1", "n")

        ends = ENDS.get(name, (ExecutionStatus.SUCCESS, ExecutionStatus.CANCELLED))
        assert heard.result.status in ends, (name, heard.result.error)
        assert next_result.status is ExecutionStatus.SUCCESS, (name, next_result.error)
        _assert_complete(heard.text(), int(next_result.output))
        assert heard.text("stderr") == ""
        if heard.result.status is ExecutionStatus.SUCCESS:
            assert len(heard.result.displays) == CODES[name].count("display") + ("value" in name)


def _run_and_interrupt(environment: Environment, code: str, after: float) -> Heard:
    heard = Heard(result=ExecutionResult(execution_id=ExecutionId(""), code=code))
    timer = threading.Timer(after, environment.interrupt, ("s1",))

    def hear(event: ExecutionEvent) -> None:
        if isinstance(event, StatusChanged) and event.status == "running":
            timer.start()  # before that there is nothing to interrupt

    heard.result = environment.execute_code(
        "s1",
        code,
        on_output=lambda *piece: heard.pieces.append(piece),
        on_event=hear,
        timeout=30,
    )
    timer.join()
    return heard


def _assert_complete(text: str, count: int) -> None:
    """All lines that were counted are there; the next may be there in part."""
    counted = "".join(f"line {number}\n" for number in range(count))
    assert text.startswith(counted)
    assert f"line {count}\n".startswith(text.removeprefix(counted))


def test_a_loop_in_a_cell_that_awaits_is_interrupted(environment: Environment) -> None:
    code = "import asyncio\nx = 1\nawait asyncio.sleep(0)\nprint('go')\nwhile True: pass"

    heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"), timeout=20)

    assert heard.result.status is ExecutionStatus.CANCELLED
    assert environment.execute_code("s1", "x").output == "1"


STRUCK_BETWEEN_TWO_STEPS_OF_THE_LOOP = """
import asyncio, signal
loop = asyncio.get_running_loop()
plain = loop.call_soon
def call_soon(*args, **named):
    loop.call_soon = plain
    signal.raise_signal(signal.SIGINT)
    return plain(*args, **named)
loop.call_soon = call_soon
while True: await asyncio.sleep(0)
"""


def test_an_interrupt_while_a_cell_that_awaits_gives_way_leaves_the_kernel_alive(
    environment: Environment,
) -> None:
    environment.execute_code("s1", "x = 1")

    result = environment.execute_code("s1", STRUCK_BETWEEN_TWO_STEPS_OF_THE_LOOP, timeout=30)

    assert result.status is ExecutionStatus.ERROR
    assert "CancelledError" in (result.error or "")
    assert environment.execute_code("s1", "x").output == "1"


STRUCK_JUST_BEFORE_AN_AWAIT = """
import asyncio, itertools, operator, signal
strike = map(operator.not_, map(signal.raise_signal, (signal.SIGINT,)))
await next(itertools.compress((asyncio.sleep(1000),), strike))
"""


def test_an_interrupt_just_before_an_await_leaves_no_coroutine_behind(
    environment: Environment,
) -> None:
    heard = run(environment, STRUCK_JUST_BEFORE_AN_AWAIT, timeout=30)

    assert heard.result.status is ExecutionStatus.ERROR
    assert heard.pieces == []  # Python would write of a coroutine that was never awaited


STRUCK_WHERE_PYTHON_IGNORES_IT = {
    "a finaliser": """
class Slow:
    def __del__(self):
        print("go")
        while True: pass
Slow()
while True: pass""",
    "a hook of fork": """
import os
def wait_in_parent():
    print("go")
    while True: pass
os.register_at_fork(after_in_parent=wait_in_parent)
if not os.fork(): os._exit(0)
while True: pass""",
}


@pytest.mark.parametrize("place", STRUCK_WHERE_PYTHON_IGNORES_IT)
def test_an_interrupt_is_not_lost_where_python_ignores_exceptions(
    environment: Environment, place: str
) -> None:
    code = STRUCK_WHERE_PYTHON_IGNORES_IT[place]

    heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"), timeout=20)

    assert heard.result.status is ExecutionStatus.CANCELLED
    assert heard.text().rstrip() == "go"
    assert heard.text("stderr") == ""


def test_an_interrupt_that_code_handles_itself_does_not_hit_the_next(
    environment: Environment,
) -> None:
    code = """
import signal, time
handled = False
def handle(*_):
    global handled
    handled = True
signal.signal(signal.SIGINT, handle)
print("go")
while not handled: pass
print("mine")
"""

    def interrupt(_stream: str, text: str) -> None:
        if "go" in text:
            environment.interrupt("s1")

    for _ in range(5):
        heard = run(environment, code, on_output=interrupt)
        after = run(environment, "time.sleep(0.06); print('untouched')")

        assert heard.text() == "go\nmine\n"
        assert after.result.status is ExecutionStatus.SUCCESS
        assert after.text() == "untouched\n"


def test_where_code_interrupted_itself_is_shown_without_our_own_frames(
    environment: Environment,
) -> None:
    code = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)"

    result = environment.execute_code("s1", code, timeout=30)

    assert result.status is ExecutionStatus.ERROR
    assert (result.error or "").endswith("KeyboardInterrupt")
    assert "<module>" in (result.error or "")
    assert "taskweaver_inside" not in (result.error or "")
    assert "inside/kernel" not in (result.error or "")


def test_code_sees_the_handler_that_python_has_and_may_put_it_back(
    environment: Environment,
) -> None:
    code = """
import signal, time
before = signal.getsignal(signal.SIGINT)
put_back = signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGINT, put_back)
print(before is put_back is signal.getsignal(signal.SIGINT) is signal.default_int_handler)
time.sleep(1000)
"""

    heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"))

    assert heard.text() == "True\n"
    assert heard.result.status is ExecutionStatus.CANCELLED


def test_a_cell_that_blocks_interrupts_blocks_them_for_itself_only(
    environment: Environment,
) -> None:
    block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))"
    environment.execute_code("s1", block)

    code = "import time; print('begun'); time.sleep(1000)"
    heard = run(environment, code, on_output=lambda *_: environment.interrupt("s1"))

    assert heard.result.status is ExecutionStatus.CANCELLED


def test_signals_are_listened_to_again_after_code_has_turned_that_off(
    environment: Environment,
) -> None:
    turn_off = "import signal; signal.set_wakeup_fd(-1)"

    first, second = (environment.execute_code("s1", turn_off).output for _ in range(2))

    assert first == second != "-1"


def test_a_signal_handler_of_the_loop_outlives_its_cell(environment: Environment) -> None:
    listen = """
import asyncio, os, signal
loop, heard = asyncio.get_running_loop(), asyncio.Event()
loop.add_signal_handler(signal.SIGUSR1, heard.set)"""
    environment.execute_code("s1", listen)

    wait = "os.kill(os.getpid(), signal.SIGUSR1); await asyncio.wait_for(heard.wait(), 20)"
    result = environment.execute_code("s1", wait)

    assert result.output == "True"
