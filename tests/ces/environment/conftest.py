"""One suite for every place where kernels can run.

What a place cannot do by its nature, a test that asks for it says with a mark
and the reason: `local_only` (neither containers nor gateways), `not_in_sandbox`,
`not_in_container`, `not_on_gateway`. Everything else runs everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from taskweaver_ext.ces.environment import Environment
from tests.support.containers import container_environment, require_engine
from tests.support.executions import OpenEnvironment
from tests.support.gateways import (
    enterprise_environment,
    enterprise_gateway,
    gateway_environment,
    kernel_gateway,
)
from tests.support.sandboxes import require_sandbox, sandbox_environment

OPENERS: dict[str, OpenEnvironment] = {
    "local": Environment,
    "sandbox": sandbox_environment,
    "container": container_environment,
    "gateway": gateway_environment,
    "enterprise-gateway": enterprise_environment,
}

NEEDED: dict[str, Callable[[], object]] = {
    "sandbox": require_sandbox,
    "container": require_engine,
    "gateway": kernel_gateway,
    "enterprise-gateway": enterprise_gateway,
}
"""What must be there first; it is started once and outlives the tests."""

MARKS = {
    "local": (),
    "sandbox": ("not_in_sandbox",),
    "container": ("local_only", "not_in_container"),
    "gateway": ("local_only", "not_on_gateway"),
    "enterprise-gateway": ("local_only", "not_on_gateway"),
}
"""With which marks a test is not meant for each of them."""


@pytest.fixture(scope="module", params=OPENERS)
def open_environment(request: pytest.FixtureRequest) -> OpenEnvironment:
    """Opens an environment whose kernels run in one of the places."""
    place: str = request.param
    if place in NEEDED:
        NEEDED[place]()
    return OPENERS[place]


@pytest.fixture(scope="module")
def shared_environment(
    open_environment: OpenEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """An environment without sessions, for the tests of one module."""
    with open_environment(tmp_path_factory.mktemp("environment")) as environment:
        yield environment


@pytest.fixture(autouse=True)
def _gateway_answers(request: pytest.FixtureRequest) -> None:
    """Give a test a gateway that answers, whatever became of it in the test before."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("open_environment") == "enterprise-gateway":
        enterprise_gateway().revive()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take tests out of the runs in places that they are not meant for."""
    items[:] = [item for item in items if not _is_elsewhere(item)]


def _is_elsewhere(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    place = callspec.params.get("open_environment") if callspec is not None else None
    marks = MARKS[place] if place is not None else ()
    return any(item.get_closest_marker(mark) is not None for mark in marks)
