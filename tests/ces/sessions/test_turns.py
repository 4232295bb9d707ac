"""Which thread uses a session's kernel when, and what interrupts and restarts are meant for."""

from __future__ import annotations

import stat
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.sessions import kernel_session
from taskweaver_ext.ces.sessions.turns import Place, Purpose, Turns
from taskweaver_ext.errors import KernelStartError, SessionError
from tests.support.executions import LIMIT_SECONDS, wait_until

ENDLESS = "print('go')\nwhile True: pass"


class SlowPython:
    """An interpreter that starts when its gate is opened, and counts how often it was asked to."""

    def __init__(self, folder: Path, then: str = f'exec {sys.executable} "$@"') -> None:
        self.path = str(folder / "python")
        self._gate = folder / "gate"
        self._starts = folder / "starts"
        Path(self.path).write_text(
            f"#!/bin/sh\necho >> {self._starts}\n"
            f"while [ ! -e {self._gate} ]; do sleep 0.01; done\n{then}\n"
        )
        Path(self.path).chmod(stat.S_IRWXU)

    def open_gate(self) -> None:
        self._gate.touch()

    def close_gate(self) -> None:
        self._gate.unlink()

    @property
    def starts(self) -> int:
        return self._starts.read_text().count("\n") if self._starts.exists() else 0


class Line:
    """The places that wait for their turn now."""

    def __init__(self) -> None:
        self.places: list[Place] = []

    def count(self, purpose: Purpose) -> int:
        return sum(place.purpose == purpose for place in tuple(self.places))


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    line = Line()
    plain_wait = Turns.wait

    def wait(turns: Turns, place: Place, seconds: float | None = None) -> bool:
        line.places.append(place)
        try:
            return plain_wait(turns, place, seconds)
        finally:
            line.places.remove(place)

    monkeypatch.setattr(Turns, "wait", wait)
    return line


@pytest.fixture
def slow_python(tmp_path: Path) -> SlowPython:
    return SlowPython(tmp_path)


def test_an_interrupt_while_the_first_kernel_starts_cancels_what_waits_for_it(
    tmp_path: Path, slow_python: SlowPython, line: Line
) -> None:
    with (
        Environment(tmp_path / "env", python=slow_python.path, warm_start=False) as environment,
        ExecutorRegistry(environment, "s1") as registry,
        ThreadPoolExecutor() as threads,
    ):
        execution = threads.submit(registry.get("python").execute, "x = 1")
        wait_until(lambda: line.count("execution") == 1)
        registry.interrupt()
        result = execution.result(LIMIT_SECONDS)  # the kernel has not even started
        slow_python.open_gate()
        after = registry.get("python").execute("print('x' in globals())")

    assert result.status is ExecutionStatus.CANCELLED
    assert result.error == "The code was interrupted before it began."
    assert after.stdout == ["False\n"]
    assert slow_python.starts == 1  # its start went on


def test_an_interrupt_is_for_what_runs_not_for_what_waits(
    environment: Environment, line: Line
) -> None:
    with ThreadPoolExecutor() as threads:
        running = _execute_endless(threads, environment)
        waiting = threads.submit(environment.execute_code, "s1", "print('waited')")
        wait_until(lambda: line.count("execution") == 1)
        environment.interrupt("s1")

        assert running.result(LIMIT_SECONDS).status is ExecutionStatus.CANCELLED
        assert waiting.result(LIMIT_SECONDS).stdout == ["waited\n"]


def test_an_interrupt_that_is_late_does_not_hit_what_runs_next(
    environment: Environment, tmp_path: Path
) -> None:
    is_under_way, may_go_on = threading.Event(), threading.Event()

    def hold_up(_kill_after: float | None) -> None:
        is_under_way.set()
        may_go_on.wait(LIMIT_SECONDS)

    token = CancellationToken()
    token.on_cancel(hold_up)  # called before the reader is told
    gates = tmp_path / "first", tmp_path / "second"
    with ThreadPoolExecutor() as threads:
        first = _execute_until(gates[0], threads, environment, token)
        late = threads.submit(token.cancel)
        assert is_under_way.wait(LIMIT_SECONDS)
        gates[0].touch()
        second = _execute_until(gates[1], threads, environment, CancellationToken())
        may_go_on.set()
        late.result(LIMIT_SECONDS)
        gates[1].touch()

        assert first.result(LIMIT_SECONDS).status is ExecutionStatus.SUCCESS
        assert second.result(LIMIT_SECONDS).status is ExecutionStatus.SUCCESS


def test_a_restart_does_not_wait_for_what_waits(environment: Environment, line: Line) -> None:
    with ThreadPoolExecutor() as threads:
        running = _execute_endless(threads, environment)
        waiting = threads.submit(environment.execute_code, "s1", ENDLESS, timeout=LIMIT_SECONDS)
        wait_until(lambda: line.count("execution") == 1)
        environment.restart_session("s1")
        wait_until(lambda: _interrupted(environment, waiting))

    assert running.result().status is ExecutionStatus.CANCELLED
    assert waiting.result().status is ExecutionStatus.CANCELLED
    assert not waiting.result().notices  # it ran on the kernel that the restart has made


@pytest.mark.parametrize(
    "wait",
    [
        lambda environment: environment.wait_for_kernel("s1"),
        lambda environment: environment.load_plugin("s1", "mine", "nothing of use"),
        lambda environment: environment.kernel_contents("s1"),
    ],
    ids=["for the kernel", "to load a plugin", "to look into it"],
)
def test_an_interrupt_ends_the_waiting_and_not_the_start_of_the_kernel(
    tmp_path: Path, slow_python: SlowPython, wait: Callable[[Environment], object], line: Line
) -> None:
    with (
        Environment(tmp_path / "env", python=slow_python.path, warm_start=False) as environment,
        ThreadPoolExecutor() as threads,
    ):
        environment.start_session("s1", wait=False)
        waiting = threads.submit(wait, environment)
        wait_until(lambda: line.count("preparation") == 1)
        environment.interrupt("s1")

        with pytest.raises(SessionError, match="Interrupted while it waited"):
            waiting.result(LIMIT_SECONDS)
        slow_python.open_gate()
        environment.wait_for_kernel("s1")

        assert not environment.execute_code("s1", "1").notices
        assert slow_python.starts == 1


def test_a_restart_cancels_code_whose_kernel_is_starting(
    tmp_path: Path, slow_python: SlowPython, line: Line
) -> None:
    slow_python.open_gate()
    with (
        Environment(tmp_path / "env", python=slow_python.path, warm_start=False) as environment,
        ThreadPoolExecutor() as threads,
    ):
        environment.start_session("s1")
        environment.execute_code("s1", "import os; os._exit(1)")
        slow_python.close_gate()
        execution = threads.submit(environment.execute_code, "s1", ENDLESS, timeout=LIMIT_SECONDS)
        wait_until(lambda: slow_python.starts == 2)
        restart = threads.submit(environment.restart_session, "s1")
        wait_until(lambda: line.count("upkeep") == 1)
        slow_python.open_gate()

        restart.result(LIMIT_SECONDS)

        assert execution.result(LIMIT_SECONDS).status is ExecutionStatus.CANCELLED
        assert environment.execute_code("s1", "print('on')").stdout == ["on\n"]


def test_a_start_that_fails_meanwhile_is_told_once_to_a_caller_that_waits(
    tmp_path: Path, line: Line
) -> None:
    python = SlowPython(tmp_path, then="exit 3")
    with (
        Environment(tmp_path / "env", python=python.path, warm_start=False) as environment,
        ThreadPoolExecutor() as threads,
    ):
        environment.start_session("s1", wait=False)
        waiting = threads.submit(environment.execute_code, "s1", "1")
        wait_until(lambda: line.count("execution") == 1)
        python.open_gate()
        with pytest.raises(KernelStartError):
            waiting.result(LIMIT_SECONDS)
        starts_of_one_failure = python.starts
        with pytest.raises(KernelStartError):  # it tries again
            environment.execute_code("s1", "1")

    assert python.starts == 2 * starts_of_one_failure


def test_a_session_that_is_stopped_from_its_own_callback_does_not_wait_for_itself(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_session, "TURN_SECONDS", LIMIT_SECONDS * 10)  # it waits in vain

    result = environment.execute_code(
        "s1", ENDLESS, on_output=lambda *_: environment.stop_session("s1"), timeout=LIMIT_SECONDS
    )

    assert result.status is ExecutionStatus.CANCELLED


def _execute_until(
    gate: Path, threads: ThreadPoolExecutor, environment: Environment, token: CancellationToken
) -> Future[ExecutionResult]:
    has_begun = threading.Event()
    options = RunOptions(on_output=lambda *_: has_begun.set(), timeout=LIMIT_SECONDS, token=token)
    code = f"import os\nprint('go')\nwhile not os.path.exists({str(gate)!r}): pass"
    running = threads.submit(environment.run, "s1", code, options)
    assert has_begun.wait(LIMIT_SECONDS)
    return running


def _execute_endless(
    threads: ThreadPoolExecutor, environment: Environment
) -> Future[ExecutionResult]:
    has_begun = threading.Event()
    running = threads.submit(
        environment.execute_code,
        "s1",
        ENDLESS,
        on_output=lambda *_: has_begun.set(),
        timeout=LIMIT_SECONDS,
    )
    assert has_begun.wait(LIMIT_SECONDS)
    return running


def _interrupted(environment: Environment, execution: Future[ExecutionResult]) -> bool:
    """Whenever an execution begins, the next interrupt strikes it."""
    environment.interrupt("s1")
    return execution.done()
