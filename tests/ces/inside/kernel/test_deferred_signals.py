"""Code that prints in the middle of our own sending: from signal handlers and trace functions."""

from __future__ import annotations

import re
import signal

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.inside.kernel.deferred_signals import DeferredSignals
from tests.support.executions import run

TICKING = """
import itertools, signal, sys
numbers, ticks = itertools.count(), 0
def tick(*_):
    global ticks
    print(f"<tick {next(numbers)}>")
    ticks += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
lines = 0
try:
    while ticks < 100:
        PRINT
        lines += 1
finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
print("end", next(numbers), lines)
"""

TRACING = """
import sys
def trace(frame, event, argument):
    print(event)
    return trace
def work():
    print("work")
    print("more", flush=True)
sys.SET(trace)
work()
sys.SET(None)
print("end")
"""


@pytest.mark.parametrize(
    "statement",
    ["print('line')", "print('line', flush=True)", "sys.stdout.write('x' * 5000 + 'line\\n')"],
    ids=["short", "flushed", "long"],
)
def test_a_signal_handler_may_print_while_the_code_prints(
    environment: Environment, statement: str
) -> None:
    heard = run(environment, TICKING.replace("PRINT", statement))

    text = heard.text()
    assert heard.result.status is ExecutionStatus.SUCCESS, heard.result.error
    _, ticks, lines = text.splitlines()[-1].split()
    assert sorted(map(int, re.findall(r"<tick (\d+)>", text))) == list(range(int(ticks)))
    assert text.count("line") == int(lines)


@pytest.mark.parametrize("setter", ["settrace", "setprofile"])
def test_a_trace_function_may_print(environment: Environment, setter: str) -> None:
    heard = run(environment, TRACING.replace("SET", setter), timeout=20)

    assert heard.result.status is ExecutionStatus.SUCCESS, heard.result.error
    assert all(word in heard.text() for word in ("work", "more", "call", "return"))
    assert heard.text().endswith("end\n")


def test_a_trace_function_that_prints_may_be_left_on(environment: Environment) -> None:
    code = TRACING.replace("SET", "settrace").replace("sys.settrace(None)", "")

    first = run(environment, code, timeout=20)
    second = run(environment, "import sys; sys.settrace(None); print('second')", timeout=20)

    assert first.result.status is ExecutionStatus.SUCCESS, first.result.error
    assert second.text().endswith("second\n")


def test_a_handler_that_is_held_back_does_not_run_within_itself() -> None:
    deferred = DeferredSignals()
    depths: list[int] = []
    depth = 0

    def print_something(_number: int, _frame: object) -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        deferred.hold()
        if len(depths) < 5:
            handler(signal.SIGALRM, None)  # it comes faster than it is dealt with
        deferred.release()
        depth -= 1

    handler = deferred.guard(print_something)
    deferred.hold()
    handler(signal.SIGALRM, None)
    handler(signal.SIGALRM, None)
    assert depths == []

    deferred.release()

    assert depths == [1, 1, 1, 1, 1]


def test_what_a_held_back_handler_raises_does_not_block_the_next() -> None:
    deferred = DeferredSignals()

    def fail(_number: int, _frame: object) -> None:
        raise TimeoutError

    handler = deferred.guard(fail)
    for _ in range(2):
        deferred.hold()
        handler(signal.SIGALRM, None)
        with pytest.raises(TimeoutError):
            deferred.release()
