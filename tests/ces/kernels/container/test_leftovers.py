"""A process that is killed leaves containers; others remove them, and only them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.container.engine import Engine
from taskweaver_ext.ces.kernels.container.leftovers import remove_leftovers
from tests.support.containers import IMAGE
from tests.support.executions import wait_until

USE_A_CONTAINER = """
import sys
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.modes import EnvMode

folder, url, image = sys.argv[1:]
settings = ContainerSettings(engine_url=url, image=image)
with Environment(folder, EnvMode.Container, container=settings) as environment:
    environment.start_session("left")
    print(environment.execute_code("left", "import os; os.uname().nodename").output, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(engine: Engine, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that uses a container until its input ends; gives the container's short id."""
    process = subprocess.Popen(
        [sys.executable, "-c", USE_A_CONTAINER, str(folder), engine.url, IMAGE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process, process.stdout.readline().strip().strip("'")
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def ids(engine: Engine) -> set[str]:
    return {container["Id"][:12] for container in engine.list_ours()}


def test_what_a_killed_process_left_is_removed_and_nothing_else(
    engine: Engine, tmp_path: Path, contained: Environment
) -> None:
    with (
        another_process(engine, tmp_path / "dead") as (doomed, left),
        another_process(engine, tmp_path / "alive") as (_, kept),
    ):
        [folder] = [
            Path(container["Labels"]["taskweaver_ext.folder"])
            for container in engine.list_ours()
            if container["Id"].startswith(left)
        ]
        doomed.kill()
        doomed.wait()

        remove_leftovers(engine)  # unless another process has been faster

        assert left not in ids(engine)
        assert kept in ids(engine)
        assert not folder.exists()
        assert contained.execute_code("s1", "1 + 1").output == "2"


def test_the_next_start_removes_what_a_killed_process_left(engine: Engine, tmp_path: Path) -> None:
    with another_process(engine, tmp_path / "dead") as (doomed, left):
        doomed.kill()
        doomed.wait()

    with another_process(engine, tmp_path / "next"):
        wait_until(lambda: left not in ids(engine))


def test_a_kernel_whose_owner_was_killed_ends_by_itself(engine: Engine, tmp_path: Path) -> None:
    with another_process(engine, tmp_path / "dead") as (doomed, left):
        doomed.kill()
        doomed.wait()

        wait_until(lambda: engine.has_ended(left))

    remove_leftovers(engine)
