"""The files that a result names are there for as long as the result is, and no longer."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable

import pytest

from taskweaver_ext.ces.execution.executor import Executor
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.process import ProcessExecutor
from taskweaver_ext.ces.shell import ShellExecutor

LONG = "head -c 3000000 /dev/zero | tr '\\0' x"
BYTES = "head -c 1000 /dev/urandom"

MAKERS: dict[str, Callable[[], tuple[Executor, Callable[[], None]]]] = {
    "a shell": lambda: _with_close(ShellExecutor()),
    "a program": lambda: _with_close(ProcessExecutor("bash")),
    "a registry's shell": lambda: _of_registry(fresh=False),
    "a registry's program": lambda: _of_registry(fresh=True),
}


def _with_close(executor: ShellExecutor | ProcessExecutor) -> tuple[Executor, Callable[[], None]]:
    return executor, executor.close


def _of_registry(*, fresh: bool) -> tuple[Executor, Callable[[], None]]:
    registry = ExecutorRegistry()
    return registry.get("bash", fresh=fresh), registry.close


@pytest.mark.parametrize("maker", MAKERS)
def test_long_output_outlives_its_closed_executor_and_goes_with_the_result(maker: str) -> None:
    executor, close = MAKERS[maker]()
    result = executor.execute(LONG)
    executor.execute("true")
    close()
    del executor, close
    gc.collect()
    path = result.full_output_paths["stdout"]

    assert path.stat().st_size == 3_000_000
    another = copy.deepcopy(result)
    assert pickle.loads(pickle.dumps(result)).full_output_paths == result.full_output_paths
    del result
    gc.collect()
    assert path.exists(), "a copy still names it"
    del another
    gc.collect()
    assert not path.parent.exists()


def test_raw_bytes_outlive_their_closed_executor_too() -> None:
    executor = ProcessExecutor("bash")
    result = executor.execute(BYTES)
    executor.close()
    del executor
    gc.collect()

    (artifact,) = result.artifact
    with open(artifact.file_name, "rb") as file:
        assert len(file.read()) == 1000


def test_a_closed_executor_without_such_results_leaves_no_folder() -> None:
    executor = ShellExecutor()
    long = executor.execute(LONG)
    path = long.full_output_paths["stdout"]
    short = executor.execute("echo short")
    del long
    gc.collect()
    assert path.exists(), "the executor keeps it"

    executor.close()

    assert short.is_success
    assert not path.parent.exists()
