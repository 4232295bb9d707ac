"""`exec --kernel container` runs programs in a container; `doctor --clean` tidies up."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine
from taskweaver_ext.ces.kernels.container.image import DEFAULT_IMAGE
from taskweaver_ext.ces.kernels.container.leftovers import OWNER_LABEL
from taskweaver_ext.ces.kernels.container.program_container import ProgramContainer
from taskweaver_ext.ces.process import ProcessExecutor
from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.owned_folders import Owner
from tests.support.command_line import PROGRAM
from tests.support.containers import IMAGE, given_to_code, require_engine
from tests.support.executions import LIMIT_SECONDS


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine whose image of kernels also has the name that users know it by."""
    engine = require_engine()
    is_missing = engine.image_labels(DEFAULT_IMAGE) is None
    if is_missing:
        with contextlib.closing(DockerClient(base_url=engine.url)) as client:
            client.images.get(IMAGE).tag(DEFAULT_IMAGE)
    yield engine
    if is_missing:
        engine.remove_image(DEFAULT_IMAGE)


@pytest.fixture
def environ(engine: Engine, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What commands are run with: temporary folders of their own, and one to work in."""
    given_to_code(tmp_path)
    with tempfile.TemporaryDirectory() as folder:
        temporary, home = Path(folder, "tmp"), Path(folder, "home")
        temporary.mkdir()
        folders = {"TMPDIR": str(temporary), "HOME": str(home)}
        yield {**os.environ, "DOCKER_HOST": engine.url, **folders}


def call(*arguments: str, cwd: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        stdin=subprocess.DEVNULL,
    )


def test_streams_files_and_exit_code_are_the_programs(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    code = "pwd; echo error >&2; cat >made; ls /sys/class/net; exit 7"
    options = ("--kernel", "container", "--stdin", "given")

    run = call("exec", "bash", *options, "-c", code, cwd=tmp_path, environ=environ)

    assert (run.stdout, run.stderr, run.returncode) == (f"{tmp_path}\nlo\n", "error\n", 7)
    assert (tmp_path / "made").read_text() == "given"


def test_the_containers_memory_is_the_programs_and_its_limit_is_named_once(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    options = ("--kernel", "container", "--memory", "100M")

    run = call("exec", "python", *options, "-c", "bytearray(10**9)", cwd=tmp_path, environ=environ)

    assert run.returncode == 137
    assert run.stderr.count("100 MiB") == 1
    assert "exec: Out of memory (limit 104,857,600 bytes) (OUT_OF_MEMORY)" in run.stderr


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        (["--timeout", "0.1"], {}, "(TIMEOUT)"),
        (["--cwd", "/nowhere"], {}, "Working directory does not exist '/nowhere' (ENOENT)"),
        ([], {"DOCKER_HOST": "unix:///nowhere"}, "Cannot reach Docker at /nowhere"),
    ],
)
def test_what_keeps_it_from_running_is_said(
    tmp_path: Path,
    environ: dict[str, str],
    options: list[str],
    variables: dict[str, str],
    said: str,
) -> None:
    arguments = ["exec", "bash", "--kernel", "container", *options, "-c", "sleep 1000"]

    run = call(*arguments, cwd=tmp_path, environ={**environ, **variables})

    assert said in run.stderr
    assert run.returncode in (124, 125)


@pytest.mark.skipif(os.getuid() != 0, reason="only root has folders of root")
def test_a_folder_of_root_is_refused_unless_a_variable_says_who_the_code_is(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    arguments = ("exec", "bash", "--kernel", "container", "-c", "id -u")
    os.chown(tmp_path, 0, 0)

    refused = call(*arguments, cwd=tmp_path, environ=environ)
    variables = {**environ, "EXECUTION_SERVICE_CONTAINER_USER": "0:0"}
    allowed = call(*arguments, cwd=tmp_path, environ=variables)

    assert refused.returncode == 125
    assert f"The folder {tmp_path} belongs to root" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert (allowed.stdout, allowed.returncode) == ("0\n", 0)


def test_a_variable_names_the_runtime(tmp_path: Path, environ: dict[str, str]) -> None:
    variables = {**environ, "EXECUTION_SERVICE_CONTAINER_RUNTIME": "nonesuch"}

    run = call(
        "exec", "bash", "--kernel", "container", "-c", "true", cwd=tmp_path, environ=variables
    )

    assert run.returncode == 125
    assert "has no runtime 'nonesuch'" in run.stderr


def test_what_killed_commands_left_is_cleaned_and_what_lives_is_not(
    tmp_path: Path, environ: dict[str, str], engine: Engine
) -> None:
    wait = ("-c", "echo up; sleep 1000")
    killed = [
        start("exec", "bash", "--kernel", "container", *wait, cwd=tmp_path, environ=environ),
        start("exec", "bash", *wait, cwd=tmp_path, environ=environ),
        start("run", "-c", "print('up')\nimport time\ntime.sleep(1000)", cwd=tmp_path,
              environ=environ),
    ]  # fmt: skip
    living = start("exec", "bash", *wait, cwd=tmp_path, environ=environ)
    folders = Path(environ["TMPDIR"])
    for process in killed:
        end(process, is_killed=True)

    cleaned = call("doctor", "--clean", "--json", cwd=tmp_path, environ=environ)
    left = list(folders.iterdir())
    end(living, is_killed=False)

    report = json.loads(cleaned.stdout)
    assert not any(is_owned_by(killed[0].pid, each) for each in engine.list_ours())
    assert {Path(path).name.split("-")[1] for path in report["folders"]} >= {"exec", "run"}
    assert [folder.name.split("-")[1] for folder in left] == ["exec"]
    assert list(folders.iterdir()) == []
    again = call("doctor", "--clean", cwd=tmp_path, environ=environ)
    assert str(folders) not in again.stdout


def is_owned_by(pid: int, container: dict[str, Any]) -> bool:
    owner = Owner.parse(container["Labels"].get(OWNER_LABEL, ""))
    return owner is not None and owner.pid == pid


def start(*arguments: str, cwd: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    """Start a command and wait for the first line of its program."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments], cwd=cwd, env=environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def end(process: subprocess.Popen[str], *, is_killed: bool) -> None:
    process.kill() if is_killed else process.terminate()
    process.wait(LIMIT_SECONDS)
    assert process.stdout is not None
    process.stdout.close()


def test_programs_need_no_kernel_in_their_image_and_outlive_a_container(
    engine: Engine, tmp_path: Path
) -> None:
    settings = ContainerSettings(engine_url=engine.url, image=IMAGE)
    sites = ProgramContainer(given_to_code(tmp_path), settings)
    executor = ProcessExecutor("bash", sites=sites)
    try:
        first = executor.execute("kill -9 $PPID; sleep 1000")
        second = executor.execute("ps -e -o args=")
    finally:
        executor.close()
        sites.close()

    assert first.error == "The program's container ended: killed by SIGKILL."
    assert "".join(second.stdout).count("cold_start.py") == 2  # init, and what starts programs


def test_a_container_that_does_not_start_is_said_and_tried_again(
    engine: Engine, tmp_path: Path
) -> None:
    settings = ContainerSettings(engine_url=engine.url, image="nobody/has-this:1")
    sites = ProgramContainer(given_to_code(tmp_path), settings)
    for _ in range(2):
        with pytest.raises(KernelStartError, match="docker pull nobody/has-this:1"), sites.use():
            pass
    sites.close()
