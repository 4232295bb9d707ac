"""The thread that owns a kernel's connection, where no execution through a session gets it."""

from __future__ import annotations

from pathlib import Path

import psutil

from taskweaver_ext.ces.artifacts import ArtifactStore
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.execution import Execution
from taskweaver_ext.ces.kernels.reader import KernelReader
from taskweaver_ext.ces.output_sink import OutputSink
from taskweaver_ext.ces.results import ExecutionId, ExecutionStatus
from tests.support.executions import wait_until


def test_code_given_to_a_kernel_that_has_just_died_was_not_interrupted(
    shared_environment: Environment, tmp_path: Path
) -> None:
    kernel = shared_environment._source.start("s1", tmp_path)
    execution = Execution(
        ExecutionId("e1"),
        "1",
        sink=OutputSink(tmp_path, "e1"),
        artifacts=ArtifactStore(tmp_path, tmp_path),
        metadata={},
    )
    reader = KernelReader(kernel.host, kernel.connection, lambda *_: None, "s1")
    pid: int = kernel.host.pid  # type: ignore[attr-defined]
    psutil.Process(pid).kill()
    wait_until(lambda: kernel.host.death() is not None)

    reader.submit(execution)
    reader.start()
    result = execution.deliver()
    reader.stop()
    kernel.host.stop()

    assert result.status is ExecutionStatus.DIED
    assert result.error == "The kernel was gone before the code could run: killed by SIGKILL."
