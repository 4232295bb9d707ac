"""Code that takes too much gets a result that names the limit, and the session goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine
from taskweaver_ext.ces.kernels.container.limits import ContainerLimits, size_text
from taskweaver_ext.errors import ConfigError
from tests.support.containers import container_environment, given_to_code
from tests.support.executions import run

LIMITS = ContainerLimits(
    memory_bytes=256 << 20, processes=40, file_bytes=10 << 20, folder_bytes=30 << 20
)

FILL_THE_FOLDER = """
import itertools, time
for number in itertools.count():
    try:
        with open(f"filler-{number}", "wb") as file:
            file.write(bytes(1 << 20))
        time.sleep(0.01)
    except KeyboardInterrupt:
        if not is_stubborn:
            raise
"""


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Environment]:
    """A session "s1" that may use little."""
    with container_environment(tmp_path, ContainerSettings(limits=LIMITS)) as environment:
        environment.start_session("s1")
        yield environment


def limits_named(result: ExecutionResult) -> str:
    return " ".join(notice.message for notice in result.notices if notice.kind == "limit")


def assert_usable(environment: Environment) -> None:
    assert run(environment, "print(6 * 7)").result.stdout == ["42\n"]


def test_a_kernel_that_takes_too_much_memory_dies_of_that(limited: Environment) -> None:
    result = run(limited, "print('so far', flush=True); hog = bytearray(10**9)").result

    assert result.status is ExecutionStatus.DIED
    assert result.stdout == ["so far\n"]
    assert result.death is not None
    assert result.death.cause == "out_of_memory"
    assert "256 MiB" in (result.error or "")
    assert_usable(limited)


def test_a_child_that_takes_too_much_memory_is_named(limited: Environment) -> None:
    result = run(
        limited,
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'bytearray(10**9)']).returncode",
    ).result

    assert result.status is ExecutionStatus.SUCCESS
    assert result.output == "-9"
    assert "256 MiB of memory" in limits_named(result)


BOMBS = {
    "forks": "import os, time\nwhile os.fork(): pass\ntime.sleep(1)",
    "forks that heed nothing": "import os\nwhile True:\n    try: os.fork()\n"
    "    except BaseException: pass",
    "a shell's fork bomb": "import os\nos.system('bash -c \":(){ :|:& };:; sleep 1\"')",
    "threads": "import threading\nwait = threading.Event().wait\n"
    "while True: threading.Thread(target=wait).start()",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_too_many_processes_are_refused_and_named(limited: Environment, bomb: str) -> None:
    result = run(limited, bomb, timeout=5).result

    assert "at most 40 processes" in limits_named(result)
    limited.restart_session("s1")
    assert_usable(limited)


def test_a_file_that_grows_too_large_is_named(limited: Environment) -> None:
    result = run(limited, "open('large', 'wb').write(bytes(11 << 20))").result

    assert result.status is ExecutionStatus.ERROR
    assert "File too large" in (result.error or "")
    assert "10 MiB" in limits_named(result)


def test_a_folder_that_grows_too_large_stops_the_code_and_keeps_its_variables(
    limited: Environment,
) -> None:
    run(limited, "kept = 'kept'")

    result = run(limited, f"is_stubborn = False\n{FILL_THE_FOLDER}").result

    assert result.status is ExecutionStatus.ERROR
    assert "may grow by 30 MiB" in limits_named(result)
    assert run(limited, "print(kept)").result.stdout == ["kept\n"]


def test_files_without_a_name_count_as_well(limited: Environment) -> None:
    hoard = """
import itertools, os, time
files = []
for number in itertools.count():
    files.append(open("nameless", "wb", buffering=0))
    os.unlink("nameless")
    files[-1].write(bytes(1 << 20))
    time.sleep(0.01)
"""

    result = run(limited, hoard, timeout=30).result

    assert result.status is ExecutionStatus.ERROR
    assert "may grow by 30 MiB" in limits_named(result)


def test_code_that_goes_on_filling_its_folder_is_killed(limited: Environment) -> None:
    result = run(limited, f"is_stubborn = True\n{FILL_THE_FOLDER}").result

    assert result.status is ExecutionStatus.DIED
    assert "may grow by 30 MiB" in (result.error or "")
    assert_usable(limited)


MAKE_FILES = {
    "files": "open(f'file-{number}', 'w').close()",
    "folders": "os.mkdir(f'folder-{number}')",
    "links": "os.symlink('nowhere', f'link-{number}')",
}


@pytest.mark.parametrize("make", MAKE_FILES.values(), ids=MAKE_FILES)
def test_a_folder_that_holds_too_many_files_stops_the_code_and_keeps_its_variables(
    tmp_path: Path, make: str
) -> None:
    limits = ContainerLimits(folder_files=3_000)
    with container_environment(tmp_path, ContainerSettings(limits=limits)) as environment:
        environment.start_session("s1")
        run(environment, "import itertools, os, time; kept = 'kept'")

        code = f"for number in itertools.count():\n    {make}; time.sleep(0.0002)"
        result = run(environment, code, timeout=120).result

        assert result.status is ExecutionStatus.ERROR
        assert "may grow by 3,000 files and folders" in limits_named(result)
        assert run(environment, "print(kept)").result.stdout == ["kept\n"]
    assert len(list((tmp_path / "sessions/s1/cwd").iterdir())) < 300_000


def test_code_that_heeds_nothing_and_fills_the_disk_fast_is_killed_soon(tmp_path: Path) -> None:
    limits = ContainerLimits(folder_bytes=64 << 20, memory_bytes=1 << 30)
    with container_environment(tmp_path, ContainerSettings(limits=limits)) as environment:
        environment.start_session("s1")

        code = FILL_THE_FOLDER.replace("time.sleep(0.01)", "").replace("1 << 20", "32 << 20")
        result = run(environment, f"is_stubborn = True\n{code}", timeout=120).result

        assert result.status is ExecutionStatus.DIED
        assert "may grow by 64 MiB" in (result.error or "")
        assert_usable(environment)


def test_a_full_temporary_folder_is_an_error_of_the_code(tmp_path: Path) -> None:
    limits = ContainerLimits(tmp_bytes=1 << 20)
    with container_environment(tmp_path, ContainerSettings(limits=limits)) as environment:
        environment.start_session("s1")

        result = run(environment, "open('/tmp/large', 'wb').write(bytes(2 << 20))").result

        assert "No space left on device" in (result.error or "")
        assert_usable(environment)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a disk that is full")
def test_a_full_disk_is_an_error_of_the_code(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "full", str(disk)], check=True)
    try:
        with container_environment(tmp_path / "environment") as environment:
            environment.start_session("s1", cwd=given_to_code(disk))

            result = run(environment, "open('large', 'wb').write(bytes(2 << 20))").result

            assert "No space left on device" in (result.error or "")
            assert_usable(environment)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("name", [entry.name for entry in fields(ContainerLimits)])
def test_a_limit_that_is_none_to_an_engine_is_refused(name: str, limit: int) -> None:
    with pytest.raises(ConfigError, match=f"above 0, or None for no limit: {name} is {limit}"):
        ContainerLimits(**{name: limit})


def test_no_limits_are_set_when_none_are_wanted(tmp_path: Path) -> None:
    limits = ContainerLimits(
        memory_bytes=None,
        processes=None,
        cpus=None,
        file_bytes=None,
        folder_bytes=None,
        folder_files=None,
        tmp_bytes=None,
    )
    with container_environment(tmp_path, ContainerSettings(limits=limits)) as environment:
        environment.start_session("s1")

        result = run(
            environment,
            "import resource; resource.getrlimit(resource.RLIMIT_FSIZE)[0]",
        ).result

        assert result.output == "-1"
        assert result.notices == []


@pytest.mark.parametrize(
    ("size", "text"),
    [(100, "100 bytes"), (1536, "1.5 KiB"), (256 << 20, "256 MiB"), (4 << 30, "4 GiB")],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert size_text(size) == text


def test_limits_that_are_not_in_force_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Engine.create

    def create_without_limits(
        engine: Engine, name: str, description: Mapping[str, Any]
    ) -> tuple[str, list[str]]:
        limits = ("Memory", "MemorySwap", "PidsLimit", "NanoCpus", "Ulimits")
        host = {key: value for key, value in description["HostConfig"].items() if key not in limits}
        return create(engine, name, {**description, "HostConfig": host})

    monkeypatch.setattr(Engine, "create", create_without_limits)  # as one that ignores them
    with container_environment(tmp_path) as environment:
        environment.start_session("s1")

        first, second = (run(environment, "pass").result for _ in range(2))

    assert "does not enforce these limits" in limits_named(first)
    assert "memory, processes, CPU" in limits_named(first)
    assert second.notices == []
