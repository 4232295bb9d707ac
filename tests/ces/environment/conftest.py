"""One suite for every place where kernels can run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment


@pytest.fixture(scope="module")
def shared_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with Environment(tmp_path_factory.mktemp("env")) as environment:
        yield environment


@pytest.fixture
def environment(shared_environment: Environment, tmp_path: Path) -> Iterator[Environment]:
    """An environment with a fresh session "s1"."""
    shared_environment.start_session("s1", session_dir=tmp_path / "session")
    yield shared_environment
    shared_environment.stop_session("s1")
