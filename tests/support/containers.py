"""Containers for tests: an engine that answers, an image that was built once."""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from docker import DockerClient
from docker.models.containers import Container

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine, shared_engine
from taskweaver_ext.ces.kernels.container.image import build_image
from taskweaver_ext.ces.kernels.container.leftovers import OWNER_LABEL, SESSION_LABEL
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.machine.owned_folders import Owner
from tests.support.docker_engine import find_engine

IMAGE = "taskweaver-ext-kernel:test"
ENGINE_IS_NEEDED = "TASKWEAVER_TEST_NEEDS_ENGINE"
"""Set where a test without an engine is a failure instead of being skipped."""


@functools.cache
def _engine_with_image() -> Engine | None:
    url = find_engine()
    if url is None:
        return None
    engine = shared_engine(url)
    # Test processes that run at once must not all build.
    with open(Path(tempfile.gettempdir()) / "taskweaver-test-image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_image(engine, IMAGE, is_offline=True)
    return engine


def require_engine() -> Engine:
    """The engine that tests use, with the image of kernels; skips the test without one."""
    engine = _engine_with_image()
    if engine is None:
        reason = "no Docker engine answers; run scripts/test as root, or start Docker"
        if os.environ.get(ENGINE_IS_NEEDED):
            pytest.fail(reason)
        pytest.skip(reason)
    return engine


def container_environment(
    folder: Path, settings: ContainerSettings | None = None, **more: object
) -> Environment:
    """An environment whose kernels run in containers of the test image."""
    settings = replace(settings or ContainerSettings(), engine_url=require_engine().url)
    if settings.image == ContainerSettings().image:
        settings = replace(settings, image=IMAGE)
    return Environment(folder, EnvMode.Container, container=settings, **more)  # type: ignore[arg-type]


def container_of(client: DockerClient, session: str = "s1") -> Container:
    """The container in which a session of this process runs."""
    own = f"{OWNER_LABEL}={Owner.this_process()}"
    labels = [f"{SESSION_LABEL}={session}", own]
    [container] = client.containers.list(filters={"label": labels})
    return container
