"""An engine, a client of our own to play tricks with, and environments in containers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.container.engine import Engine
from taskweaver_ext.errors import SessionError
from tests.support.containers import container_environment, require_engine


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine, with the test image."""
    return require_engine()


@pytest.fixture
def docker_client(engine: Engine) -> Iterator[DockerClient]:
    """What other programs would do to our containers."""
    client = DockerClient(base_url=engine.url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def container_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """An environment without sessions, for the tests of one module."""
    with container_environment(tmp_path_factory.mktemp("containers")) as environment:
        yield environment


@pytest.fixture
def contained(container_sessions: Environment, tmp_path: Path) -> Iterator[Environment]:
    """An environment with a fresh session "s1" in a container with default settings."""
    container_sessions.start_session("s1", session_dir=tmp_path / "session")
    yield container_sessions
    with contextlib.suppress(SessionError):  # the test has stopped it
        container_sessions.stop_session("s1")
