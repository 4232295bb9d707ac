"""A kernel that lives but no longer works is noticed and replaced; one that is busy is let be."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.client.tracing import LOGGER_NAME
from taskweaver_ext.ces.kernels.modes import EnvMode
from tests.support.executions import Heard, OpenEnvironment, kernel_pid, run, wait_until
from tests.support.wreckers import KERNEL_WRECKERS

WRECKER_SECONDS = 10.0
SOME = (
    "the loop waits for ever in a callback",
    "the shell channel is not listened to",
    "it is stopped by a signal",
    "the lock of the interpreter is held for ever",
)
WAIT_IN_A_CALLBACK = KERNEL_WRECKERS[SOME[0]]
ASKS = "> alive?"
HOLD_THE_LOCK = "import ctypes; ctypes.PyDLL(None).sleep(6)"


@pytest.fixture
def messages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[pytest.LogCaptureFixture]:
    """What passes between us and kernels, as a log."""
    monkeypatch.setenv("TASKWEAVER_PYTHON_IPC_TRACE", "1")
    with caplog.at_level(logging.INFO, LOGGER_NAME):
        yield caplog


def go_on(environment: Environment, session: str) -> tuple[Heard, bool]:
    """Use a session after it was wrecked; return what ran, and whether the loss was told."""
    heard = run(environment, "print('still here', 'kept' in globals())", session=session)
    was_told = heard.result.status is ExecutionStatus.DIED and not heard.result.variables_survived
    if was_told:
        heard = run(environment, "print('still here', 'kept' in globals())", session=session)
    return heard, was_told or _says_restarted(heard)


def _says_restarted(heard: Heard) -> bool:
    in_result = any(notice.kind == "restarted" for notice in heard.result.notices)
    in_events = any(
        isinstance(event, StatusChanged) and event.status == "restarted" for event in heard.events
    )
    assert in_result == in_events
    return in_result


@pytest.mark.local_only  # a kernel for each, in a container or on a gateway, takes minutes
def test_every_wrecked_kernel_is_survived_by_its_session(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    def wreck(name: str) -> str:
        session = name.replace(" ", "-").replace("'", "")
        environment.start_session(session)
        run(environment, "kept = 1", session=session)
        code = KERNEL_WRECKERS[name]
        wrecked = run(environment, code, session=session, timeout=WRECKER_SECONDS).result
        heard, was_told = go_on(environment, session)
        environment.stop_session(session)
        if not heard.result.is_success:
            return f"{name}: then {heard.result.status} {heard.result.error}"
        was_lost = heard.text() == "still here False\n"
        was_told = was_told or not wrecked.variables_survived
        return f"{name}: lost and not told, or the reverse" if was_lost != was_told else ""

    with (
        open_environment(tmp_path, unresponsive_seconds=WRECKER_SECONDS) as environment,
        ThreadPoolExecutor(max_workers=12) as threads,
    ):
        failures = list(filter(None, threads.map(wreck, KERNEL_WRECKERS)))

    assert not failures, "\n".join(failures)
    assert len(KERNEL_WRECKERS) >= 30


@pytest.mark.parametrize("name", SOME)
def test_a_wrecked_kernel_is_asked_when_idle_and_replaced_when_needed(
    open_environment: OpenEnvironment,
    tmp_path: Path,
    messages: pytest.LogCaptureFixture,
    name: str,
) -> None:
    with open_environment(tmp_path, unresponsive_seconds=WRECKER_SECONDS) as environment:
        environment.start_session("s1")
        run(environment, "kept = 1")
        run(environment, KERNEL_WRECKERS[name])
        wait_until(lambda: ASKS in messages.text)

        heard = run(environment, "print('still here', 'kept' in globals())")

    assert heard.text() == "still here False\n"
    (notice,) = (notice for notice in heard.result.notices if notice.kind == "restarted")
    assert "was alive but did not answer within 10 s" in notice.message
    assert "variables of earlier executions are lost" in notice.message
    assert _says_restarted(heard)


@pytest.mark.not_on_gateway("there code can keep its kernel from saying that it has begun")
def test_code_that_does_not_begin_ends_with_its_kernel(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, unresponsive_seconds=5.0) as environment:
        environment.start_session("s1")
        # It is not asked in between: the next follows at once.
        run(environment, "get_ipython().kernel.shell_stream.stop_on_recv()")
        heard = run(environment, "print('never')")
        if environment.env_mode is EnvMode.Local:
            assert heard.result.status is ExecutionStatus.DIED
            assert heard.result.death is not None
            assert heard.result.death.cause == "unresponsive"
            assert "did not begin to run the code within 5 s" in heard.result.death.detail
            assert "never" not in heard.text()
        after, was_told = go_on(environment, "s1")

    assert after.result.is_success
    assert was_told or heard.result.status is ExecutionStatus.DIED or _says_restarted(heard)


def test_code_that_holds_the_interpreters_lock_is_let_be(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, unresponsive_seconds=4.0) as environment:
        environment.start_session("s1")
        run(environment, "kept = 1")
        heard = run(environment, HOLD_THE_LOCK)
        after = run(environment, "print(kept)")

    assert heard.result.is_success
    assert after.text() == "1\n"
    assert not _says_restarted(after)


@pytest.mark.local_only  # the same code for all; there kernels are made and asked more slowly
def test_an_idle_kernel_is_asked_once_and_then_left_alone(
    open_environment: OpenEnvironment, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    with open_environment(tmp_path) as environment:
        environment.start_session("s1")
        kernel = psutil.Process(kernel_pid(environment))
        wait_until(lambda: "message_type='alive'" in messages.text)

        def switches_in_a_second() -> int:
            before = kernel.num_ctx_switches().voluntary
            began_at = time.monotonic()
            wait_until(lambda: time.monotonic() > began_at + 1.0)
            return kernel.num_ctx_switches().voluntary - before

        wait_until(lambda: switches_in_a_second() <= 2)

    assert messages.text.count(ASKS) == 1


@pytest.mark.local_only  # as above
def test_waiting_for_an_answer_ends_when_the_caller_wants_no_more(
    open_environment: OpenEnvironment, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    with open_environment(tmp_path) as environment:
        environment.start_session("s1")
        run(environment, WAIT_IN_A_CALLBACK)
        wait_until(lambda: ASKS in messages.text)
        heard: list[Heard] = []
        caller = threading.Thread(target=lambda: heard.append(run(environment, "print('never')")))
        caller.start()

        wait_until(lambda: environment.interrupt("s1") or not caller.is_alive())
        caller.join()

    assert heard[0].result.status is ExecutionStatus.CANCELLED
    assert heard[0].text() == ""


@pytest.mark.local_only  # as above
def test_without_a_limit_no_kernel_is_asked(
    open_environment: OpenEnvironment, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    with open_environment(tmp_path, unresponsive_seconds=None) as environment:
        environment.start_session("s1")
        run(environment, "pass")
        run(environment, "import time; time.sleep(1.5)")
        run(environment, "pass")

    assert ASKS not in messages.text
