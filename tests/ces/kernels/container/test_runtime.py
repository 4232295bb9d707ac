"""Containers can be run with what the engine has besides its default, such as gVisor's `runsc`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import DockerException

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine, shared_engine
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import KernelStartError
from tests.support.containers import CODE_USER, IMAGE, container_environment
from tests.support.docker_engine import EngineError, PrivateEngine
from tests.support.executions import run
from tests.support.needs import MissingError, need

DOWNLOAD_SECONDS = 120


def test_a_runtime_that_the_engine_does_not_have_is_named(tmp_path: Path) -> None:
    with (
        container_environment(tmp_path, ContainerSettings(runtime="nonesuch")) as environment,
        pytest.raises(KernelStartError, match="has no runtime 'nonesuch'.*docker info"),
    ):
        environment.start_session("s1")


def test_the_engines_own_runtime_can_be_named(tmp_path: Path) -> None:
    with container_environment(tmp_path, ContainerSettings(runtime="runc")) as environment:
        environment.start_session("s1")

        result = run(environment, "print('hello')").result

    assert result.stdout == ["hello\n"]
    assert result.notices == []


@pytest.fixture(scope="module")
def gvisor(engine: Engine) -> Iterator[str]:
    """The address of an engine that can run containers with gVisor."""
    folder = Path(tempfile.mkdtemp(prefix="twe-", dir="/tmp"))
    own = PrivateEngine(folder)
    need("runsc", lambda: _start_with_gvisor(own, folder, engine))
    yield own.url
    shared_engine(own.url).close()
    own.remove()


def _start_with_gvisor(own: PrivateEngine, folder: Path, engine: Engine) -> None:
    if os.geteuid() != 0:
        raise MissingError("only root can start an engine that has runsc")
    runtime = folder / "runsc"
    try:
        # Its own network stack does not know how newer systems count; it can use theirs.
        runtime.write_text(f'#!/bin/sh\nexec {_find_runsc(folder)} --network=host "$@"\n')
        runtime.chmod(0o755)
        own.start("--iptables=false", f"--add-runtime=runsc={runtime}")
        source = DockerClient(base_url=engine.url)
        target = DockerClient(base_url=own.url, timeout=300)
        target.images.load(source.images.get(IMAGE).save(named=IMAGE))  # type: ignore[arg-type]
        source.close()
        with contextlib.closing(target):
            target.containers.run(
                IMAGE, ["true"], runtime="runsc", network_mode="none", remove=True
            )
    except (EngineError, DockerException, OSError, subprocess.SubprocessError) as error:
        own.remove()
        raise MissingError(f"runsc runs no container here: {error}") from error


def _find_runsc(folder: Path) -> str:
    """The program: what is installed, else Debian's, which is not installed for that."""
    if found := shutil.which("runsc"):
        return found
    for command in (["apt-get", "download", "runsc"], ["sh", "-c", "dpkg -x runsc_*.deb ."]):
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, timeout=DOWNLOAD_SECONDS
        )
    return str(folder / "usr/bin/runsc")


def test_code_runs_on_the_kernel_of_gvisor(gvisor: str, tmp_path: Path) -> None:
    settings = ContainerSettings(engine_url=gvisor, image=IMAGE, runtime="runsc")
    with Environment(tmp_path, EnvMode.Container, container=settings) as environment:
        environment.start_session("s1")
        code = "import os; open('made', 'w').write('by code'); print(os.uname().release)"
        result = run(environment, code, timeout=60).result
        with ExecutorRegistry(environment, "s1") as registry:
            texts = [
                registry.get("bash", fresh=fresh).execute("uname -r; cat made; id -u")
                for fresh in (False, True)
            ]

        assert result.status is ExecutionStatus.SUCCESS
        assert result.stdout != [f"{os.uname().release}\n"]
        for text in texts:
            assert "".join(text.stdout) == f"{result.stdout[0]}by code{CODE_USER}\n"
    assert (tmp_path / "sessions/s1/cwd/made").read_text() == "by code"
