"""Building the image that kernels run in, with no registry in reach."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient

from taskweaver_ext.ces.kernels.container.base_image import (
    content_hash,
    installed_closure,
    write_base_tar,
)
from taskweaver_ext.ces.kernels.container.engine import Engine
from taskweaver_ext.ces.kernels.container.image import DOCKERFILE, build_image
from taskweaver_ext.errors import ConfigError
from tests.support.containers import IMAGE


@pytest.fixture
def built(engine: Engine, docker_client: DockerClient) -> Iterator[str]:
    """A name of our own for the image: another process may be at work on the other one."""
    image = f"taskweaver-test-built:{os.getpid()}"
    docker_client.images.get(IMAGE).tag(image)
    build_image(engine, image, is_offline=True)
    yield image
    engine.remove_image(image)


def test_an_image_that_is_up_to_date_is_not_built_again(engine: Engine, built: str) -> None:
    said: list[str] = []

    build_image(engine, built, is_offline=True, say=said.append)

    assert said == [f"{built} is up to date"]


def test_the_running_python_serves_when_no_registry_answers(engine: Engine, built: str) -> None:
    said: list[str] = []

    build_image(engine, built, base_image="127.0.0.1:9/nobody/here:1", say=said.append)

    assert "no registry answers" in said[1]
    assert said[-1] == f"{built} is up to date"


def test_a_package_that_is_not_here_cannot_be_put_into_an_image(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="pip install no-such-package"):
        build_image(engine, IMAGE, packages=["no-such-package"], is_offline=True)


def test_a_base_image_of_the_engine_is_used_as_it_is(engine: Engine) -> None:
    image = f"taskweaver-test-derived:{os.getpid()}"
    said: list[str] = []

    try:
        build_image(engine, image, base_image=IMAGE, say=said.append)

        assert any("already satisfied: ipykernel" in line for line in said)
        assert engine.image_labels(image) is not None
    finally:
        engine.remove_image(image)


def test_the_closure_holds_what_a_package_depends_on() -> None:
    names = {
        distribution.metadata["Name"].lower() for distribution in installed_closure(["ipykernel"])
    }

    assert {"ipykernel", "ipython", "pyzmq", "tornado", "traitlets"} <= names
    assert "pytest" not in names


def test_the_base_has_the_layout_of_an_official_image() -> None:
    tar = io.BytesIO()

    write_base_tar(tar, ["traitlets"])

    tar.seek(0)
    with tarfile.open(fileobj=tar) as archive:
        entries = {entry.name: entry for entry in archive}
    assert entries["usr/local/bin/python3"].issym()
    assert entries["bin"].linkname == "usr/bin"
    assert entries["tmp"].mode == 0o1777
    assert any(name.endswith("site-packages/traitlets/__init__.py") for name in entries)
    assert any(name.startswith("usr/lib64/ld-") or "/ld-linux" in name for name in entries)
    assert {entry.uid for entry in entries.values()} == {0}
    assert not any("/test/" in name for name in entries)


def test_the_content_changes_with_what_is_packed() -> None:
    assert content_hash(["ipykernel"]) == content_hash(["ipykernel"])
    assert content_hash(["ipykernel"]) != content_hash(["ipykernel", "pytest"])


def test_another_environment_of_the_same_interpreter_makes_the_same_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content_hash(["ipykernel"])
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))

    assert content_hash(["ipykernel"]) == before


def test_the_dockerfile_is_part_of_the_package() -> None:
    assert "ipykernel" in DOCKERFILE.read_text()
