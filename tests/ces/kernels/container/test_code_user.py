"""Who the code in a container is, and what it may do with what is mounted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.errors import ConfigError
from tests.support.containers import CODE_USER, container_environment
from tests.support.executions import run

ANOTHER_USER = 1234


def test_code_is_not_root_and_we_can_read_and_remove_what_it_makes(
    contained: Environment, tmp_path: Path
) -> None:
    code = "import os; os.mkdir('closed', 0o700); open('closed/made', 'w').write('by code')"
    run(contained, code)
    identity = run(contained, "print(os.getuid(), os.geteuid(), os.getgid())").result
    with ExecutorRegistry(contained, "s1") as registry:
        shells = [registry.get("bash", fresh=fresh).execute("id -u") for fresh in (False, True)]

    made = tmp_path / "session" / "cwd" / "closed" / "made"
    assert identity.stdout[0].startswith(f"{CODE_USER} {CODE_USER} ")
    assert [shell.stdout for shell in shells] == [[f"{CODE_USER}\n"]] * 2
    assert CODE_USER != 0
    assert made.read_text() == "by code"
    assert made.stat().st_uid == CODE_USER
    shutil.rmtree(made.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_code_is_the_owner_of_the_folder_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir(mode=0o700)
    os.chown(tmp_path / "given", ANOTHER_USER, ANOTHER_USER + 1)
    with container_environment(tmp_path / "env") as environment:
        environment.start_session("s1", cwd=tmp_path / "given")
        run(environment, "open('made', 'w').close()")

    made = (tmp_path / "given" / "made").stat()
    assert (made.st_uid, made.st_gid) == (ANOTHER_USER, ANOTHER_USER + 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders of root")
def test_a_folder_of_root_is_refused_unless_the_user_is_said(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    with (
        container_environment(tmp_path / "env") as environment,
        pytest.raises(ConfigError, match="belongs to root, and code in a container"),
    ):
        environment.start_session("s1", cwd=tmp_path / "given")

    settings = ContainerSettings(user="0:0")
    with container_environment(tmp_path / "env", settings) as environment:
        environment.start_session("s1", cwd=tmp_path / "given")
        result = run(environment, "import os; open('made', 'w').close(); print(os.getuid())").result

    assert result.stdout == ["0\n"]
    assert (tmp_path / "given" / "made").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_ours_is_given_to_the_user_that_is_said(tmp_path: Path) -> None:
    settings = ContainerSettings(user=f"{ANOTHER_USER}:{ANOTHER_USER}")
    with container_environment(tmp_path, settings) as environment:
        environment.start_session("s1")
        run(environment, "open('made', 'w').close()")

    assert (tmp_path / "sessions/s1/cwd/made").stat().st_uid == ANOTHER_USER


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change what a container sees")
def test_set_user_id_bits_and_devices_count_nowhere_in_what_is_mounted(
    contained: Environment,
) -> None:
    result = run(
        contained,
        """
import os
flags = {}
for line in open("/proc/self/mountinfo"):
    place, options = line.split()[4:6]
    flags[place] = sorted({"nosuid", "nodev"} & set(options.split(",")))
open("program", "w").write("#!/bin/sh")
os.chmod("program", 0o6755)
print([flags[os.getcwd()], flags["/run/taskweaver"], flags["/tmp"], flags["/dev/shm"],
                  os.statvfs("program").f_flag & os.ST_NOSUID > 0])
""",
    ).result

    sealed = ["nodev", "nosuid"]
    assert result.stdout == [f"{[sealed, sealed, sealed, sealed, True]}\n"]
