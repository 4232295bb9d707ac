"""Idle kernels are put away, busy ones never; a session that lost its kernel goes on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from scripts.campaigns import few_descriptors
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.client.host import KernelConnection
from taskweaver_ext.ces.kernels.local.host import LocalKernelHost
from taskweaver_ext.ces.sessions import kernel_pool as kernel_pool
from taskweaver_ext.ces.sessions.kernel_pool import KernelPool, KernelSlot
from taskweaver_ext.errors import KernelStartError, SessionError
from tests.support.executions import (
    LIMIT_SECONDS,
    OpenEnvironment,
    has_ended,
    kernel_pid,
    run,
    wait_until,
)

SESSIONS, KERNELS = 100, 8

PLUGIN = """
from taskweaver.plugin import register_plugin

@register_plugin
def double(x):
    return 2 * x
"""


def _kernels() -> int:
    """How many kernels live: the children of the zygote."""
    return sum(
        not has_ended(kernel.pid)
        for child in psutil.Process().children()
        if not has_ended(child.pid) and any("zygote_main" in part for part in child.cmdline())
        for kernel in child.children()
    )


def test_an_idle_kernel_is_put_away_and_its_session_goes_on(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, idle_seconds=0.2) as environment:
        environment.start_session("s1")
        environment.load_plugin("s1", "double", PLUGIN)
        environment.execute_code("s1", "x = 1")
        wait_until(lambda: environment.sessions()[0].state == "put_away")

        heard = run(environment, "print('x' in dir(), double(4))")

    (notice,) = heard.result.notices
    assert heard.text() == "False 8\n"
    assert notice.kind == "restarted"
    assert "nothing to do for 0.2 s" in notice.message


def test_a_busy_kernel_is_not_put_away(open_environment: OpenEnvironment, tmp_path: Path) -> None:
    with open_environment(tmp_path, idle_seconds=0.1) as environment:
        environment.start_session("s1")

        result = environment.execute_code("s1", "import time; x = 1; time.sleep(0.5); x")

    assert result.status is ExecutionStatus.SUCCESS
    assert result.output == "1"


def test_the_kernel_that_was_idle_longest_makes_room(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, max_kernels=2) as environment:
        for name in ("a", "b"):
            environment.start_session(name)
            environment.execute_code(name, "x = 1")
        environment.execute_code("a", "pass")  # now b has been idle longer
        environment.start_session("c")

        states = [session.state for session in environment.sessions()]
        assert states == ["idle", "put_away", "idle"]
        assert run(environment, "'x' in dir()", session="a").result.output == "True"
        after = run(environment, "'x' in dir()", session="b").result
        assert after.output == "False"
        assert "another session needed one" in after.notices[0].message


def test_who_needs_a_kernel_waits_while_all_are_busy(tmp_path: Path) -> None:
    with Environment(tmp_path, max_kernels=1) as environment:
        environment.start_session("a")
        gate = tmp_path / "gate"
        busy = f"""
import pathlib, time
print("busy")
while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)
"""
        started = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(
                environment.execute_code, "a", busy, on_output=lambda *_: started.set()
            )
            assert started.wait(LIMIT_SECONDS)
            second = pool.submit(environment.start_session, "b")
            assert _kernels() == 1
            gate.touch()
            second.result(LIMIT_SECONDS)

            assert first.result(LIMIT_SECONDS).status is ExecutionStatus.SUCCESS
        assert run(environment, "print('b')", session="b").text() == "b\n"


def test_a_kernel_counts_until_it_is_gone(tmp_path: Path) -> None:
    with Environment(tmp_path, max_kernels=1) as environment:
        environment.start_session("a")
        pid = kernel_pid(environment, "a")
        environment.execute_code("a", "import atexit, time; atexit.register(time.sleep, 0.5)")

        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(environment.stop_session, "a")
            wait_until(lambda: not environment.sessions())
            environment.start_session("b")
            assert has_ended(pid)
            stopping.result(LIMIT_SECONDS)


def test_waiting_for_a_busy_kernel_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_pool, "WAIT_SECONDS", 0.2)
    with Environment(tmp_path, max_kernels=1) as environment:
        environment.start_session("a")
        errors: list[Exception] = []

        def start_another(_stream: str, _text: str) -> None:
            try:
                environment.start_session("b")
            except KernelStartError as error:
                errors.append(error)

        environment.execute_code("a", "print('busy')", on_output=start_another)

    assert "All 1 kernels have been busy" in str(errors[0])


@pytest.mark.parametrize("ends", ["interrupt", "stop_session"])
def test_a_caller_that_waits_for_a_kernel_may_give_up(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Environment(tmp_path, max_kernels=1) as environment, ThreadPoolExecutor(2) as pool:
        for name in ("patient", "a", "b"):
            environment.start_session(name)
        waiting: dict[str, Future[ExecutionResult]] = {}
        outcomes: list[object] = []
        start: Any = KernelPool.start
        asked = threading.Semaphore(0)

        def note_and_start(kernels: KernelPool, *arguments: object) -> object:
            asked.release()
            return start(kernels, *arguments)

        def wait_in_vain(_stream: str, _text: str) -> None:
            monkeypatch.setattr(KernelPool, "start", note_and_start)
            for name in ("patient", "a"):  # one behind the other
                waiting[name] = pool.submit(environment.execute_code, name, "1")
                assert asked.acquire(timeout=LIMIT_SECONDS)
            getattr(environment, ends)("a")
            try:
                outcomes.append(waiting["a"].result(LIMIT_SECONDS).status)
            except SessionError as error:
                outcomes.append(str(error))

        busy = environment.execute_code("b", "print('busy')", on_output=wait_in_vain)

        assert busy.status is ExecutionStatus.SUCCESS
        assert waiting["patient"].result(LIMIT_SECONDS).output == "1"
        if ends == "interrupt":
            assert outcomes == [ExecutionStatus.CANCELLED]
            (notice,) = environment.execute_code("a", "1").notices
            assert "another session needed one" in notice.message
        else:
            assert "stopped while it waited" in str(outcomes[0])


def test_a_kernel_that_becomes_idle_while_the_pool_looks_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_pool, "WAIT_SECONDS", 5.0)
    pool = KernelPool(1, None)
    attempts: list[str] = []

    def put_away(reason: str) -> bool:
        attempts.append(reason)
        if len(attempts) == 1:  # its code ends just when the pool has found it busy
            pool.look_again()
            return False
        other.is_taken = False
        return True

    other = KernelSlot(put_away)
    other.is_taken = True
    pool.add(other)

    started = pool.start(KernelSlot(put_away), lambda: "started", CancellationToken())

    assert started == "started"
    assert len(attempts) == 2


def _failed_for_want_of_processes() -> KernelStartError:
    error = KernelStartError("The Python does not run.")
    error.__cause__ = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return error


@pytest.mark.parametrize(
    ("error", "shortage"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (_failed_for_want_of_processes(), "Resource temporarily unavailable"),
        (KernelStartError("... RuntimeError: can't start new thread"), "can't start new thread"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
    ids=["descriptors", "processes", "threads of the kernel", "threads of ours"],
)
def test_out_of_resources_puts_idle_kernels_away_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, shortage: str
) -> None:
    with Environment(tmp_path) as environment:
        environment.start_session("a")
        start = LocalKernelHost.start
        failures = [error]

        def fail_once(host: LocalKernelHost) -> KernelConnection:
            if failures:
                raise failures.pop()
            return start(host)

        monkeypatch.setattr(LocalKernelHost, "start", fail_once)
        environment.start_session("b")

        notice = run(environment, "1", session="a").result.notices[0]
        assert f"ran out of resources ({shortage})" in notice.message


@pytest.mark.parametrize("limit", [few_descriptors.FEWEST, 54, few_descriptors.MOST])
def test_sessions_go_on_coming_when_descriptors_are_few(limit: int) -> None:
    few_descriptors.play(limit)


def test_a_machine_without_descriptors_is_told_with_what_to_do(tmp_path: Path) -> None:
    program = f"""
import resource
from taskweaver_ext import Environment, KernelStartError
with Environment({str(tmp_path)!r}) as environment:
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    try:
        environment.start_session("a")
    except KernelStartError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )

    assert "has run out (Too many open files)" in done.stdout, done.stderr
    assert "ulimit -n" in done.stdout


def test_an_interrupt_while_a_kernel_starts_again_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Environment(tmp_path, max_kernels=1) as environment:
        for name in ("a", "b"):
            environment.start_session(name)
        start = LocalKernelHost.start

        def be_interrupted(host: LocalKernelHost) -> KernelConnection:
            environment.interrupt("a")
            return start(host)

        monkeypatch.setattr(LocalKernelHost, "start", be_interrupted)
        result = environment.execute_code("a", "import time; time.sleep(1000)", timeout=30)
        after = environment.execute_code("a", "6 * 7")

    assert result.status is ExecutionStatus.CANCELLED
    assert after.output == "42"


def test_a_start_that_failed_is_told_by_the_next_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Environment(tmp_path, max_kernels=1) as environment:
        environment.start_session("a")

        with monkeypatch.context() as patches:
            no_luck = Mock(side_effect=KernelStartError("no luck"))
            patches.setattr(LocalKernelHost, "start", no_luck)
            with pytest.raises(KernelStartError):
                environment.restart_session("a")
        assert [session.state for session in environment.sessions()] == ["put_away"]
        environment.start_session("b")  # what did not start takes no place
        environment.stop_session("b")

        (notice,) = environment.execute_code("a", "1").notices

    assert notice.message.startswith("The last start of a kernel failed (no luck); this ran on")


def test_a_session_may_be_stopped_while_its_kernel_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Environment(tmp_path) as environment:
        start = LocalKernelHost.start
        stopping = threading.Thread(target=environment.stop_session, args=("a",))

        def be_stopped(host: LocalKernelHost) -> KernelConnection:
            connection = start(host)
            stopping.start()
            wait_until(lambda: not environment.sessions())
            return connection

        monkeypatch.setattr(LocalKernelHost, "start", be_stopped)
        with pytest.raises(SessionError, match="has been stopped"):
            environment.start_session("a")
        stopping.join()


def test_many_sessions_come_and_go_on_a_few_kernels(tmp_path: Path) -> None:
    this = psutil.Process()
    with Environment(tmp_path, max_kernels=KERNELS) as environment:
        most_kernels = 0

        def use(number: int) -> str:
            nonlocal most_kernels
            name = f"s{number}"
            environment.start_session(name)
            output = environment.execute_code(name, f"{number} * 2").output
            if number % 10 == 0:
                most_kernels = max(most_kernels, _kernels())
            if number % 2:
                environment.stop_session(name)  # the others stay, and make room for each other
            return output

        def left() -> tuple[int, int]:
            for session in environment.sessions():
                environment.stop_session(session.session_id)
            wait_until(lambda: _kernels() == 0)
            return threading.active_count(), this.num_fds()

        with ThreadPoolExecutor(KERNELS) as pool:
            list(pool.map(use, range(KERNELS)))
            before, memory_before = left(), this.memory_info().rss
            outputs = list(pool.map(use, range(SESSIONS)))
            after, memory_after = left(), this.memory_info().rss

    assert outputs == [str(number * 2) for number in range(SESSIONS)]
    assert most_kernels <= KERNELS
    assert after == before
    assert memory_after - memory_before < 16 << 20
