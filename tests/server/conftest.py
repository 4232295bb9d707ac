"""Servers in processes of their own: one for the tests of a module, or as many as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.server import ServerProcess

OpenServer: TypeAlias = Callable[..., ServerProcess]


def make_project(folder: Path) -> Path:
    """A project that says where code runs, and nothing else."""
    folder.mkdir()
    (folder / "taskweaver_config.json").write_text('{"execution_service.kernel_mode": "local"}')
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


@pytest.fixture
def open_server(project: Path) -> Iterator[OpenServer]:
    """Starts servers in the project; each is ended after the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **variables: stack.enter_context(
            ServerProcess(project, *arguments, **variables)
        )


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all tests of a module, with all that it starts once."""
    project = make_project(tmp_path_factory.mktemp("server") / "project")
    with ServerProcess(project) as server:
        session = server.make_session()
        server.run_to_end(session, "pass")
        server.run_to_end(session, "true", "bash")
        server.end_sessions()
        yield server


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server without sessions at work."""
    yield shared_server
    shared_server.end_sessions()
