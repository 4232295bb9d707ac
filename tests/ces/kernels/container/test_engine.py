"""The engine stops, dies and comes back; whatever it does, there is a true result in time."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine, shared_engine
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import KernelStartError
from tests.support.containers import IMAGE
from tests.support.docker_engine import EngineError, PrivateEngine
from tests.support.executions import LIMIT_SECONDS, run, with_enough_time
from tests.support.needs import MissingError, need

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a second engine"),
    # The SDK forgets to close a socket when the engine goes away while it connects.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

OPTIONS = ("--iptables=false",)
"""It must leave the rules of the first engine alone. (`--bridge=none` would remove its bridge.)"""

COUNT = """
import time
for number in range(20):
    print(number, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def own_engine(engine: Engine) -> Iterator[PrivateEngine]:
    """A second engine that may be stopped, with the image of the first."""
    # Sockets lie deep below it, and their paths must not be long.
    own = PrivateEngine(Path(tempfile.mkdtemp(prefix="twe-", dir="/tmp")))
    need("second engine", lambda: _start(own))
    source, target = DockerClient(base_url=engine.url), DockerClient(base_url=own.url, timeout=300)
    target.images.load(source.images.get(IMAGE).save(named=IMAGE))  # type: ignore[arg-type]
    source.close()
    target.close()
    yield own
    shared_engine(own.url).close()
    own.remove()


def _start(own: PrivateEngine) -> None:
    try:
        own.start(*OPTIONS)
    except EngineError as error:
        own.remove()
        raise MissingError(f"no second engine can be started: {error}") from error


@pytest.fixture
def on_own_engine(own_engine: PrivateEngine, tmp_path: Path) -> Iterator[Environment]:
    """A session "s1" on the engine that may be stopped."""
    own_engine.start(*OPTIONS)
    settings = ContainerSettings(engine_url=own_engine.url, image=IMAGE)
    with Environment(tmp_path, EnvMode.Container, container=settings) as environment:
        environment.start_session("s1")
        yield environment
        own_engine.start(*OPTIONS)
    gc.collect()  # such sockets are found now, and not in a test of something else


def run_stubborn_code(environment: Environment) -> ExecutionResult:
    """Run code that keeps the interpreter from heeding its timeout."""
    code = "import re; re.match('(a+)+$', 'a' * 60 + 'b')"
    return with_enough_time(
        lambda seconds: run(environment, code, timeout=seconds).result,
        lambda result: not result.variables_survived,
    )


def test_an_engine_that_stops_ends_the_execution(
    on_own_engine: Environment, own_engine: PrivateEngine
) -> None:
    result = run(
        on_own_engine,
        "print('go', flush=True); import time; time.sleep(1000)",
        on_output=lambda *_: own_engine.signal(signal.SIGTERM),
    ).result
    own_engine.wait_until_ended()

    assert result.status is ExecutionStatus.DIED
    assert result.death is not None
    assert result.death.cause in ("signal", "engine_gone")
    with pytest.raises(KernelStartError, match="Cannot reach Docker"):
        run(on_own_engine, "pass")
    own_engine.start(*OPTIONS)
    assert run(on_own_engine, "print('back')").result.stdout == ["back\n"]


def test_code_goes_on_when_only_the_engine_dies(
    on_own_engine: Environment, own_engine: PrivateEngine
) -> None:
    has_killed: list[bool] = []

    def kill_on_first_output(_stream: str, _text: str) -> None:
        if not has_killed:
            has_killed.append(True)
            own_engine.signal(signal.SIGKILL)

    counted = run(on_own_engine, COUNT, on_output=kill_on_first_output)
    own_engine.wait_until_ended()
    timed_out = run(on_own_engine, "while True: pass", timeout=0.5).result
    killed = run_stubborn_code(on_own_engine)

    assert counted.text().split() == [str(number) for number in range(20)]
    assert timed_out.status is ExecutionStatus.TIMEOUT
    assert timed_out.variables_survived
    assert killed.status is ExecutionStatus.TIMEOUT
    assert killed.death is not None
    assert killed.death.cause == "engine_gone"


def test_a_shell_ends_with_its_engine_and_outlives_one_that_is_killed(
    on_own_engine: Environment, own_engine: PrivateEngine
) -> None:
    def count_and(number: signal.Signals, to: int) -> ExecutionResult:
        def end_the_engine(_stream: str, text: str) -> None:
            if text.startswith("1\n"):
                own_engine.signal(number)

        code = f"for number in $(seq {to}); do echo $number; sleep 0.1; done"
        result = executor.execute(code, on_output=end_the_engine, timeout=LIMIT_SECONDS)
        own_engine.wait_until_ended()
        return result

    with ExecutorRegistry(on_own_engine, "s1") as registry:
        executor = registry.get("bash")
        outlived = count_and(signal.SIGKILL, to=20)
        own_engine.start(*OPTIONS)  # which ends what it finds running
        ended = count_and(signal.SIGTERM, to=10_000)
        refused = executor.execute("echo")
        own_engine.start(*OPTIONS)
        again = executor.execute("echo back", timeout=LIMIT_SECONDS)

    assert "".join(outlived.stdout).split() == [str(number) for number in range(1, 21)]
    assert ended.status is ExecutionStatus.DIED
    assert ended.death is not None
    assert ended.death.cause in ("signal", "engine_gone")
    assert (refused.error or "").startswith("exec: Cannot reach Docker")
    assert again.stdout == ["back\n"]


def test_what_an_absent_engine_could_not_remove_is_removed_later(
    on_own_engine: Environment, own_engine: PrivateEngine
) -> None:
    own_engine.signal(signal.SIGKILL)
    own_engine.wait_until_ended()
    on_own_engine.stop_session("s1")
    own_engine.start(*OPTIONS)

    on_own_engine.start_session("s2")
    on_own_engine.stop_session("s2")

    assert shared_engine(own_engine.url).list_ours() == []


def test_an_engine_that_hangs_does_not_hang_us(
    on_own_engine: Environment, own_engine: PrivateEngine
) -> None:
    own_engine.signal(signal.SIGSTOP)
    try:
        result = run_stubborn_code(on_own_engine)
    finally:
        own_engine.signal(signal.SIGCONT)

    assert result.status is ExecutionStatus.TIMEOUT


def test_an_engine_that_hangs_costs_a_start_or_a_stop_only_seconds(
    on_own_engine: Environment, own_engine: PrivateEngine
) -> None:
    own_engine.signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(KernelStartError, match="it does not answer"):
            on_own_engine.start_session("s2")
        on_own_engine.stop_session("s1")
    finally:
        own_engine.signal(signal.SIGCONT)

    assert time.monotonic() - began < LIMIT_SECONDS
