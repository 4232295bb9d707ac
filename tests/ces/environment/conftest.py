"""One suite for every place where kernels can run.

A test that looks at processes of this machine, or at settings that only local
kernels have, says so with the mark `local_only`; one that asks for what a
gateway does not have, with `not_on_gateway` and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from tests.support.containers import container_environment
from tests.support.gateways import enterprise_environment, gateway_environment

OPENERS: dict[str, Callable[[Path], Environment]] = {
    "local": Environment,
    "container": container_environment,
    "gateway": gateway_environment,
    "enterprise-gateway": enterprise_environment,
}

ON_GATEWAYS = {
    "gateway": {
        "test_attribution.py",
        "test_code.py",
        "test_input.py",
        "test_plugins.py",
        "test_streaming.py",
    },
    "enterprise-gateway": {"test_code.py", "test_input.py"},
}
"""The parts of the suite that are tried on each, for the sake of time."""


@pytest.fixture(scope="module", params=OPENERS)
def shared_environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """An environment without sessions, for the tests of one module."""
    folder = tmp_path_factory.mktemp("environment")
    with OPENERS[request.param](folder) as environment:
        yield environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take tests out of the runs on hosts that they are not meant for."""
    items[:] = [item for item in items if not _is_elsewhere(item)]


def _is_elsewhere(item: pytest.Item) -> bool:
    host = getattr(item, "callspec", None) and item.callspec.params.get("shared_environment")  # type: ignore[attr-defined]
    if host in ON_GATEWAYS and (
        item.path.name not in ON_GATEWAYS[host]
        or item.get_closest_marker("not_on_gateway") is not None
    ):
        return True
    return host not in (None, "local") and item.get_closest_marker("local_only") is not None
