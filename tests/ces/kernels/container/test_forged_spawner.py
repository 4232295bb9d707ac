"""Code in a container that speaks for its spawner costs little, and its container's end says so."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from tests.support.containers import container_environment
from tests.support.executions import LIMIT_SECONDS, MemoryWatch
from tests.support.forged_spawner import FORGE

MOST_GROWTH_BYTES = 64 << 20
WAIT = "\nimport time; time.sleep(600)"

FORGERIES = {
    "forge(frame(b'xyz'))": "Expecting value",
    "forge(struct.pack('!I', 1 << 31))": "too long",
    "forge(frame(b'[' * 1_000_000))": "recursion",
    'forge(frame(b\'{"ended":1,"code":1e400}\'))': "'code' is no whole number",
    'forge(frame(b\'{"ended":Infinity,"code":0}\'))': "'ended' is no number",
    "forge(frame(b'{\"id\":1,\"error\":' + b'[' * 900 + b']' * 900 + b'}'))": "'error' is no text",
    'forge(frame(b\'{"id":7777777,"result":1}\'), 0)': "more than it was asked",
    "forge(frame(b'{\"id\":1,\"result\":[' + b'[],' * 340_000 + b'0]}'), 0)": "more than it was",
    'forge(frame(b\'{"ended":1,"code":0}\') * 40_000, 0)': "more than it was asked",
}

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the code traces a process by its registers"
)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[ExecutorRegistry]:
    with container_environment(tmp_path) as environment:
        environment.start_session("s1")
        with ExecutorRegistry(environment, "s1") as registry:
            yield registry


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_a_spawner_never_says_ends_its_container(
    registry: ExecutorRegistry, forgery: str
) -> None:
    program = registry.get("python", fresh=True)
    assert program.execute("print('before')", timeout=LIMIT_SECONDS).stdout == ["before\n"]
    memory, began = MemoryWatch(os.getpid()), time.monotonic()

    result = program.execute(FORGE + forgery + WAIT, timeout=LIMIT_SECONDS)

    assert memory.growth() < MOST_GROWTH_BYTES
    assert time.monotonic() - began < LIMIT_SECONDS / 2
    assert result.status is ExecutionStatus.DIED
    assert "nonsense came from the process that starts programs in it" in (result.error or "")
    assert FORGERIES[forgery] in (result.error or "")
    assert program.execute("print('after')", timeout=LIMIT_SECONDS).stdout == ["after\n"]
