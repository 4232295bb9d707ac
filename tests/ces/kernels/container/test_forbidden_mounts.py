"""A folder that leads out of a container is not given to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.prepared_container import (
    forbidden_mounts,
    refuse_forbidden_mounts,
)
from taskweaver_ext.errors import ConfigError, KernelStartError, SessionError
from tests.support.containers import container_environment, given_to_code, require_engine


@pytest.mark.parametrize(
    ("folder", "what"),
    [
        ("/", "socket"),
        ("/run", "the socket of a container engine"),
        ("/var/run", "the socket of a container engine"),  # a link to the former
        ("/srv/engine", "the engine's socket"),
        ("/tmp", "the sockets and keys of other kernels"),
    ],
)
def test_a_folder_with_a_way_out_is_refused(folder: str, what: str) -> None:
    ways = forbidden_mounts("unix:///srv/engine/docker.sock")

    with pytest.raises(KernelStartError, match=what):
        refuse_forbidden_mounts([Path("/srv/work"), Path(folder)], ways)


def test_a_link_to_such_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/run")

    with pytest.raises(KernelStartError):
        refuse_forbidden_mounts([tmp_path / "link"], forbidden_mounts("tcp://127.0.0.1:2375"))


def test_other_folders_are_given(tmp_path: Path) -> None:
    refuse_forbidden_mounts(
        [tmp_path, Path("/srv"), Path("/tmp/work")], forbidden_mounts("tcp://127.0.0.1:2375")
    )


def test_a_session_there_does_not_start(tmp_path: Path) -> None:
    socket = Path(require_engine().url.removeprefix("unix://"))
    mounts = ContainerSettings(read_only_mounts={str(socket.parent): "/engine"})
    with (
        container_environment(tmp_path / "a") as environment,
        # It may be root's, too, which is seen first.
        pytest.raises(
            (KernelStartError, ConfigError), match="cannot be given to a container|belongs to root"
        ),
    ):
        environment.start_session("s1", cwd=socket.parent)
    with (
        container_environment(tmp_path / "b", mounts) as environment,
        pytest.raises(KernelStartError, match="cannot be given to a container"),
    ):
        environment.start_session("s1")


def test_code_is_not_given_the_folder_in_which_its_output_is_kept(tmp_path: Path) -> None:
    given_to_code(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with container_environment(tmp_path / "work") as environment:
        for cwd in (tmp_path, tmp_path / "link"):
            with pytest.raises(SessionError, match="outside of the working directory"):
                environment.start_session("s1", cwd=cwd)
        own = given_to_code(tmp_path / "work" / "sessions" / "s1")
        with pytest.raises(SessionError, match="outside of the working directory"):
            environment.start_session("s1", cwd=own)
        with pytest.raises(SessionError, match="outside of the working directory"):
            ExecutorRegistry(environment, cwd=tmp_path, folder=tmp_path / "records")

        (tmp_path / "elsewhere").mkdir()
        environment.start_session("s1", cwd=given_to_code(tmp_path / "elsewhere"))
