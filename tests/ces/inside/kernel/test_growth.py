"""Nothing grows with the number of executions, nor with what they show."""

from __future__ import annotations

import gc

import psutil
import pytest

from taskweaver_ext.ces.environment import Environment
from tests.support.executions import kernel_pid

MEGABYTE = 1 << 20

SMALL = [
    "print('x' * 100); display('shown')\n'value'",
    "import subprocess; subprocess.run(['true'])",
    "import threading; t = threading.Thread(target=print, args=('t',)); t.start(); t.join()",
    "import asyncio; await asyncio.sleep(0); print('awaited', flush=True)",
    "1 / 0",
]

LARGE = {
    "errors": "raise ValueError('x' * (1 << 20))",
    "values": "class Large:\n    def __repr__(self): return 'x' * (1 << 20)\nLarge()",
    "displays": "display({'image/png': 'A' * (1 << 20)}, raw=True)",
    "prints": "print('x' * (1 << 20))",
}


def _processes(environment: Environment) -> list[psutil.Process]:
    kernel = psutil.Process(kernel_pid(environment))
    zygote = kernel.parent()
    assert zygote is not None
    return [kernel, zygote, psutil.Process()]


def test_small_executions_leave_nothing_behind(environment: Environment) -> None:
    processes = _processes(environment)

    def run_some(count: int) -> list[tuple[int, int, int]]:
        for number in range(count):
            environment.execute_code("s1", SMALL[number % len(SMALL)])
        gc.collect()
        environment.execute_code("s1", "pass")
        return [(p.memory_info().rss, p.num_fds(), p.num_threads()) for p in processes]

    before = run_some(50)
    after = run_some(250)

    for process_before, process_after in zip(before, after, strict=True):
        assert process_after[0] - process_before[0] < 4 * MEGABYTE
        assert process_after[1:] == process_before[1:]


@pytest.mark.parametrize("name", LARGE)
def test_what_executions_show_does_not_pile_up_in_the_kernel(
    environment: Environment, name: str
) -> None:
    kernel = psutil.Process(kernel_pid(environment))
    for _ in range(3):
        environment.execute_code("s1", LARGE[name])
    before = kernel.memory_info().rss

    for _ in range(15):
        environment.execute_code("s1", LARGE[name])
    environment.execute_code("s1", "import gc; gc.collect()")  # an error and its frames are a cycle

    assert kernel.memory_info().rss - before < 8 * MEGABYTE
