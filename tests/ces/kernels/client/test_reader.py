"""The thread that owns a kernel's connection, where no execution through a session gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from taskweaver_ext.ces.execution.artifacts import ArtifactStore
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionStatus, KernelDeath
from taskweaver_ext.ces.kernels.client.execution import Execution
from taskweaver_ext.ces.kernels.client.host import ExecutionEnded, Received
from taskweaver_ext.ces.kernels.client.reader import KernelReader
from taskweaver_ext.ces.kernels.modes import KernelSource, KernelSourceSettings, LocalKernels
from tests.support.executions import LIMIT_SECONDS, wait_until


def an_execution(folder: Path, code: str) -> Execution:
    return Execution(
        code,
        RunOptions(execution_id=ExecutionId("e1")),
        sink=OutputSink(folder, "e1"),
        artifacts=ArtifactStore(folder, folder),
        metadata={},
    )


@pytest.fixture
def source(tmp_path: Path) -> Iterator[KernelSource]:
    source = LocalKernels(KernelSourceSettings(env_id="e1", env_dir=tmp_path))
    yield source
    source.close()


def test_code_given_to_a_kernel_that_has_just_died_was_not_interrupted(
    source: KernelSource, tmp_path: Path
) -> None:
    kernel = source.start("s1", tmp_path)
    execution = an_execution(tmp_path, "1")
    reader = KernelReader(kernel.host, kernel.connection, lambda *_: None, "s1")
    psutil.Process(kernel.host.pid).kill()
    wait_until(lambda: kernel.host.death() is not None)

    reader.submit(execution)
    reader.start()
    result = execution.deliver()
    reader.stop()
    kernel.host.stop()

    assert result.status is ExecutionStatus.DIED
    assert result.error == "The kernel was gone before the code could run: killed by SIGKILL."


def test_a_kernel_whose_death_is_still_looked_into_answers_no_more(
    source: KernelSource, tmp_path: Path
) -> None:
    kernel = source.start("s1", tmp_path)
    host: Any = kernel.host
    reader = KernelReader(host, kernel.connection, lambda *_: None, "s1")
    find_death, is_asked, may_tell = host.death, threading.Event(), threading.Event()

    def find_death_slowly() -> KernelDeath | None:
        is_asked.set()
        may_tell.wait(LIMIT_SECONDS)
        return find_death()  # type: ignore[no-any-return]

    host.death = find_death_slowly
    reader.start()
    psutil.Process(host.pid).kill()
    assert is_asked.wait(LIMIT_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(reader.answers, CancellationToken())
        may_tell.set()
        is_answering = answers.result(LIMIT_SECONDS)
    host.stop()

    assert not is_answering
    assert reader.death is not None


def test_code_whose_kernel_is_killed_just_as_it_ends_has_lost_its_variables(
    source: KernelSource, tmp_path: Path
) -> None:
    kernel = source.start("s1", tmp_path)
    host, connection = kernel.host, kernel.connection
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    code = f"import os\nopen({str(mark)!r}, 'w')\nwhile not os.path.exists({str(gate)!r}): pass"
    execution = an_execution(tmp_path, code)
    reader = KernelReader(host, connection, lambda *_: None, "s1")
    kill: Any = host.kill
    receive: Any = connection.receive
    received_early: list[Received] = []

    def kill_once_the_code_has_ended() -> None:
        gate.touch()
        while not any(isinstance(item, ExecutionEnded) for item in received_early):
            received_early.extend(receive(60))
        kill()

    def receive_what_came_early_first(timeout: float | None) -> Iterable[Received]:
        items, received_early[:] = received_early[:], []
        return items or receive(timeout)

    connection.receive = receive_what_came_early_first  # type: ignore[method-assign]
    host.kill = kill_once_the_code_has_ended  # type: ignore[method-assign]
    host.interrupt = lambda: None  # type: ignore[method-assign]
    reader.start()
    reader.submit(execution)
    wait_until(mark.exists)
    execution.token.cancel(kill_after=0.5)
    result = execution.deliver()
    reader.stop()
    host.kill = kill  # type: ignore[method-assign]
    host.stop()

    assert result.status is ExecutionStatus.CANCELLED
    assert result.death is not None
    assert not result.variables_survived
