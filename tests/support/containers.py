"""Containers for tests: an engine that answers, an image that was built once."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from docker import DockerClient
from docker.errors import DockerException
from docker.models.containers import Container

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.container.code_user import UNPRIVILEGED
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine, shared_engine
from taskweaver_ext.ces.kernels.container.image import build_image
from taskweaver_ext.ces.kernels.container.leftovers import OWNER_LABEL, SESSION_LABEL
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.machine.owned_folders import Owner
from tests.support.docker_engine import find_engine
from tests.support.needs import MissingError, need

IMAGE = "taskweaver-ext-kernel:test"
CODE_USER = UNPRIVILEGED if os.getuid() == 0 else os.getuid()
"""Who code in a container is that works in a folder of ours."""


@functools.cache
def require_engine() -> Engine:
    """The engine that tests use, with the image of kernels; skips the test without one."""
    return need("engine", _engine_with_image)


def _engine_with_image() -> Engine:
    url = find_engine()
    if url is None:
        raise MissingError("no Docker engine answers; run scripts/test as root, or start Docker")
    engine = shared_engine(url)
    try:
        # Runs of tests that share an engine must not all build.
        with open(Path(tempfile.gettempdir()) / "taskweaver-test-image.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            build_image(engine, IMAGE, is_offline=True)
        with contextlib.closing(DockerClient(base_url=url)) as client:
            client.containers.run(IMAGE, ["python3", "--version"], remove=True)
    except (ConfigError, DockerException) as error:
        raise MissingError(f"the Docker engine at {url} runs no container: {error}") from error
    return engine


def container_environment(
    folder: Path, settings: ContainerSettings | None = None, **more: object
) -> Environment:
    """An environment whose kernels run in containers of the test image."""
    settings = replace(settings or ContainerSettings(), engine_url=require_engine().url)
    if settings.image == ContainerSettings().image:
        settings = replace(settings, image=IMAGE)
    return Environment(folder, EnvMode.Container, container=settings, **more)  # type: ignore[arg-type]


def given_to_code(folder: Path) -> Path:
    """A folder that code in a container may be given: where we are root, another's."""
    if os.getuid() == 0:
        os.chown(folder, CODE_USER, CODE_USER)
    return folder


def container_of(client: DockerClient, session: str = "s1") -> Container:
    """The container in which a session of this process runs."""
    own = f"{OWNER_LABEL}={Owner.this_process()}"
    labels = [f"{SESSION_LABEL}={session}", own]
    [container] = client.containers.list(filters={"label": labels})
    return container
