"""The thread that owns a kernel's connection, where no execution through a session gets it."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import psutil

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.artifacts import ArtifactStore
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionStatus
from taskweaver_ext.ces.kernels.client.execution import Execution
from taskweaver_ext.ces.kernels.client.reader import KernelReader
from tests.support.executions import wait_until


def an_execution(folder: Path, code: str) -> Execution:
    return Execution(
        ExecutionId("e1"),
        code,
        sink=OutputSink(folder, "e1"),
        artifacts=ArtifactStore(folder, folder),
        metadata={},
    )


def test_code_given_to_a_kernel_that_has_just_died_was_not_interrupted(
    shared_environment: Environment, tmp_path: Path
) -> None:
    kernel = shared_environment._source.start("s1", tmp_path)
    execution = an_execution(tmp_path, "1")
    reader = KernelReader(kernel.host, kernel.connection, lambda *_: None, "s1")
    pid = kernel.host.pid
    psutil.Process(pid).kill()
    wait_until(lambda: kernel.host.death() is not None)

    reader.submit(execution)
    reader.start()
    result = execution.deliver()
    reader.stop()
    kernel.host.stop()

    assert result.status is ExecutionStatus.DIED
    assert result.error == "The kernel was gone before the code could run: killed by SIGKILL."


def test_code_whose_kernel_is_killed_just_as_it_ends_has_lost_its_variables(
    shared_environment: Environment, tmp_path: Path
) -> None:
    kernel = shared_environment._source.start("s1", tmp_path)
    host, connection = kernel.host, kernel.connection
    gate = tmp_path / "gate"
    code = f"import os\nwhile not os.path.exists({str(gate)!r}): pass"
    execution = an_execution(tmp_path, code)
    reader = KernelReader(host, connection, lambda *_: None, "s1")
    kill: Any = host.kill

    def kill_once_the_code_has_ended() -> None:
        gate.touch()
        poller = select.poll()
        poller.register(connection._wire, select.POLLIN)  # type: ignore[attr-defined]
        assert poller.poll(60_000)
        kill()

    host.kill = kill_once_the_code_has_ended  # type: ignore[method-assign]
    host.interrupt = lambda: None  # type: ignore[method-assign]
    reader.start()
    reader.submit(execution)
    reader.interrupt(execution, kill_after=0.5)
    result = execution.deliver()
    reader.stop()
    host.kill = kill  # type: ignore[method-assign]
    host.stop()

    assert result.status is ExecutionStatus.CANCELLED
    assert result.death is not None
    assert not result.variables_survived
