"""One suite for every place where kernels can run.

A test that looks at processes of this machine, or at settings that only local
kernels have, says so with the mark `local_only`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from tests.support.containers import container_environment
from tests.support.gateways import gateway_environment

OPENERS: dict[str, Callable[[Path], Environment]] = {
    "local": Environment,
    "container": container_environment,
    "gateway": gateway_environment,
}


@pytest.fixture(scope="module", params=OPENERS)
def shared_environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """An environment without sessions, for the tests of one module."""
    folder = tmp_path_factory.mktemp("environment")
    with OPENERS[request.param](folder) as environment:
        yield environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take `local_only` tests out of the runs on other hosts."""
    items[:] = [item for item in items if not _is_elsewhere(item)]


def _is_elsewhere(item: pytest.Item) -> bool:
    host = getattr(item, "callspec", None) and item.callspec.params.get("shared_environment")  # type: ignore[attr-defined]
    return host not in (None, "local") and item.get_closest_marker("local_only") is not None
