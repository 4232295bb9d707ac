"""An engine that fails for a moment is asked again, once; what it made meanwhile is removed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine, shared_engine
from taskweaver_ext.ces.kernels.container.leftovers import OWNER_LABEL
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.owned_folders import Owner
from tests.support.containers import IMAGE
from tests.support.executions import run, wait_until
from tests.support.unreliable_engine import Failure, UnreliableEngine, unreliable_engine

FAILURES = {
    "busy": Failure("/containers/create", message="context deadline exceeded"),
    "same name": Failure("/create", status=409, message='The name "/x" is already in use'),
    "port taken": Failure("/start", message="Bind for 127.0.0.1:49153 failed"),
}


@pytest.fixture
def unreliable(engine: Engine) -> Iterator[UnreliableEngine]:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        unreliable_engine(Path(folder), engine.url) as unreliable,
    ):
        yield unreliable
        shared_engine(unreliable.url).close()


@pytest.fixture
def environment(unreliable: UnreliableEngine, tmp_path: Path) -> Iterator[Environment]:
    settings = ContainerSettings(engine_url=unreliable.url, image=IMAGE)
    with Environment(tmp_path, EnvMode.Container, container=settings) as environment:
        yield environment


def containers_of_ours(engine: Engine) -> list[str]:
    ours = str(Owner.this_process())
    return [each["Id"] for each in engine.list_ours() if each["Labels"][OWNER_LABEL] == ours]


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_what_fails_once_is_tried_again(
    environment: Environment, unreliable: UnreliableEngine, engine: Engine, failure: Failure
) -> None:
    before = containers_of_ours(engine)
    failure.times = 1
    unreliable.failures.append(failure)

    environment.start_session("s1")

    assert failure.times == 0
    assert run(environment, "print('works')").result.stdout == ["works\n"]
    assert len(containers_of_ours(engine)) == len(before) + 1


def test_what_fails_twice_is_said_and_leaves_nothing(
    environment: Environment, unreliable: UnreliableEngine, engine: Engine
) -> None:
    before = containers_of_ours(engine)
    unreliable.failures.append(Failure("/start", times=3, message="no port is left"))

    with pytest.raises(KernelStartError, match="the engine failed at it twice: no port is left"):
        environment.start_session("s1")

    assert unreliable.failures[0].times == 1
    assert containers_of_ours(engine) == before


def test_a_container_of_which_we_never_heard_is_removed_at_the_next_start(
    environment: Environment, unreliable: UnreliableEngine, engine: Engine
) -> None:
    before = containers_of_ours(engine)
    unreliable.failures.append(Failure("/containers/create", is_done_first=True))
    with pytest.raises(KernelStartError, match="Cannot reach Docker"):
        environment.start_session("s1")
    [unheard_of] = set(containers_of_ours(engine)) - set(before)

    environment.start_session("s2")

    wait_until(lambda: unheard_of not in containers_of_ours(engine))
    wait_until(lambda: not shared_engine(unreliable.url).unremoved)
