"""What code in a container cannot do, tried from inside on a real engine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from docker import DockerClient

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.client.host import RUNTIME_FOLDER
from taskweaver_ext.ces.kernels.container import prepared_container
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import Engine
from taskweaver_ext.ces.kernels.modes import EnvMode
from tests.support.containers import IMAGE, container_environment, container_of
from tests.support.executions import run

ANOTHER_USER = 1234
SECRET = "a-value-that-nobody-else-may-see"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One session for all tests here, with a variable for its code."""
    folder = tmp_path_factory.mktemp("hardened")
    with container_environment(folder, env={"PLUGIN_map_KEY": SECRET}) as environment:
        environment.start_session("s1", session_dir=folder / "s1")
        yield environment


@contextlib.contextmanager
def another_session(environment: Environment, folder: Path) -> Iterator[str]:
    """A session of its own for a test, also for its second try."""
    environment.start_session(folder.name, session_dir=folder)
    try:
        yield folder.name
    finally:
        environment.stop_session(folder.name)


def value_of(environment: Environment, code: str) -> object:
    """The value of the last expression, which must be JSON."""
    heard = run(environment, f"import json, os\n{code}")
    assert heard.result.status is ExecutionStatus.SUCCESS, heard.result.error
    return json.loads(heard.result.stdout[-1])


def test_code_can_write_in_its_folder_and_in_memory_only(session: Environment) -> None:
    writable = value_of(
        session,
        """
found = []
for folder, folders, _ in os.walk("/"):
    if folder.startswith("/proc"):
        folders.clear()
        continue
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY)
    except OSError:
        try:
            descriptor = os.open(folder + "/probe", os.O_CREAT | os.O_WRONLY)
            os.remove(folder + "/probe")
        except OSError:
            continue
    os.close(descriptor)
    found.append(folder)
mounts = {line.split()[1]: line.split()[2] for line in open("/proc/mounts")}
def kind_of(folder):
    above = [mount for mount in mounts if (folder + "/").startswith(mount.rstrip("/") + "/")]
    return mounts[max(above, key=len)]
print(json.dumps([folder for folder in found if kind_of(folder) not in ("tmpfs", "mqueue")]))
""",
    )

    assert writable == value_of(session, "print(json.dumps([os.getcwd()]))")


def test_an_image_with_a_volume_gives_no_room_on_the_disk(
    tmp_path: Path, docker_client: DockerClient
) -> None:
    dockerfile = io.BytesIO(f"FROM {IMAGE}\nVOLUME /data\n".encode())
    image, _ = docker_client.images.build(fileobj=dockerfile, rm=True, network_mode="none")
    try:
        settings = ContainerSettings(image=str(image.id))
        with container_environment(tmp_path, settings) as environment:
            environment.start_session("s1")

            mounts = run(environment, "print(open('/proc/self/mountinfo').read())").text()
    finally:
        docker_client.images.remove(str(image.id), force=True)

    [volume] = [line for line in mounts.splitlines() if line.split()[4:5] == ["/data"]]
    assert " - tmpfs " in volume


def test_code_has_no_network(session: Environment) -> None:
    addresses = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET
    ]
    with socket.create_server(("0.0.0.0", 0)) as service:
        port = service.getsockname()[1]

        reached = value_of(
            session,
            f"""
import socket
reached = []
for address in {[*addresses, "1.1.1.1", "host.docker.internal"]!r}:
    try:
        socket.create_connection((address, {port}), timeout=2).close()
        reached.append(address)
    except OSError:
        pass
print(json.dumps([reached, os.listdir("/sys/class/net")]))
""",
        )

    assert reached == [[], ["lo"]]


def test_code_does_not_see_the_engine(session: Environment, engine: Engine) -> None:
    path = engine.url.removeprefix("unix://")

    found = value_of(
        session,
        f"""
import stat
sockets = []
for folder, _, files in os.walk("/"):
    if not folder.startswith("/proc"):
        paths = [os.path.join(folder, name) for name in files]
        sockets += [p for p in paths if os.path.lexists(p) and stat.S_ISSOCK(os.lstat(p).st_mode)]
print(json.dumps([os.path.exists({path!r}), sockets]))
""",
    )

    assert found[0] is False  # type: ignore[index]
    assert {os.path.dirname(path) for path in found[1]} == {"/run/taskweaver"}  # type: ignore[index]


def test_code_has_no_capabilities_and_cannot_gain_any(session: Environment) -> None:
    status = value_of(
        session,
        """
lines = open("/proc/self/status").read().splitlines()
print(json.dumps(dict(line.split(":\\t", 1) for line in lines)))
""",
    )

    assert isinstance(status, dict)
    assert {int(status[name], 16) for name in status if name.startswith("Cap")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_code_sees_its_variables_and_nothing_of_our_environment(
    session: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TASKWEAVER_OF_THE_HOST", "seen")
    with another_session(session, tmp_path / "s2") as name:
        heard = run(session, "import os, json; print(json.dumps(dict(os.environ)))", session=name)

    seen = json.loads(heard.result.stdout[-1])
    assert seen["PLUGIN_map_KEY"] == SECRET
    assert seen["HOME"] == "/tmp"
    assert "TASKWEAVER_OF_THE_HOST" not in seen
    assert not {"LOGNAME", "PWD", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST"} & set(seen)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_caller_who_is_not_root_owns_what_the_code_makes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        os.chown(folder, ANOTHER_USER, ANOTHER_USER)
        shutil.copytree(RUNTIME_FOLDER, folder / "runtime")  # ours may be private
        monkeypatch.setattr(prepared_container, "RUNTIME_FOLDER", folder / "runtime")

        said = call_as_another_user(engine, lambda: use_kernel_and_shell(engine, folder))

        made = {path.name: path.stat() for path in folder.glob("cwd/by-*")}
    assert said == f"{ANOTHER_USER}\n{ANOTHER_USER}\n"
    assert set(made) == {"by-the-kernel", "by-the-shell"}
    assert {status.st_uid for status in made.values()} == {ANOTHER_USER}
    assert {stat.S_IMODE(status.st_mode) for status in made.values()} == {0o640}


def use_kernel_and_shell(engine: Engine, folder: Path) -> str:
    settings = ContainerSettings(engine_url=engine.url, image=IMAGE)
    (folder / "cwd").mkdir()
    os.umask(0o027)
    with (
        Environment(folder / "env", EnvMode.Container, container=settings) as environment,
        ExecutorRegistry(environment, "s1", cwd=folder / "cwd") as registry,
    ):
        code = "import os; open('by-the-kernel', 'w').close(); print(os.getuid())"
        by_kernel = registry.get("python").execute(code)
        by_shell = registry.get("bash").execute("touch by-the-shell; id -u")
    return "".join(by_kernel.stdout + by_shell.stdout) + (by_kernel.error or "")


def call_as_another_user(engine: Engine, function: Callable[[], str]) -> str:
    """Call a function in a child process of another user who may use the engine."""
    group = os.stat(engine.url.removeprefix("unix://")).st_gid
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of pytest's are not used
        child = os.fork()
    if not child:
        try:
            os.setgroups([group])
            os.setgid(ANOTHER_USER)
            os.setuid(ANOTHER_USER)
            os.write(sender, function().encode())
        except BaseException as error:  # noqa: BLE001 - the parent is to hear of it
            os.write(sender, repr(error).encode())
        finally:
            os._exit(0)
    os.close(sender)
    with open(receiver) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


def test_key_and_variables_are_hidden_from_other_users(
    session: Environment, docker_client: DockerClient
) -> None:
    inside = "/run/taskweaver"
    key = value_of(session, f"print(json.dumps(json.load(open('{inside}/settings.json'))['key']))")

    description = container_of(docker_client).attrs
    folder = next(
        Path(mount["Source"]) for mount in description["Mounts"] if mount["Destination"] == inside
    )

    assert str(key) not in json.dumps(description)
    assert SECRET not in json.dumps(description)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "settings.json").stat().st_mode) == 0o600


def test_limits_are_in_force(session: Environment) -> None:
    limits = value_of(
        session,
        """
import resource
def read(*names):
    for name in names:
        path = "/sys/fs/cgroup/" + name
        if os.path.exists(path):
            return open(path).read().split()[0]
print(json.dumps([
    read("memory.max", "memory/memory.limit_in_bytes"),
    read("pids.max", "pids/pids.max"),
    resource.getrlimit(resource.RLIMIT_FSIZE)[0],
    resource.getrlimit(resource.RLIMIT_CORE)[0],
    os.statvfs("/tmp").f_blocks * os.statvfs("/tmp").f_frsize,
]))
""",
    )

    assert limits == [str(2 << 30), "256", 1 << 30, 0, 512 << 20]


@pytest.mark.parametrize(
    "announcement",
    [
        {"path": "/etc/passwd"},
        {"path": "../../../../../../etc/passwd"},
        {"path": "link"},
        {"path": "folder/passwd"},
        {"path": "/proc/self/environ"},
    ],
    ids=lambda announcement: announcement["path"],
)
def test_a_forged_artifact_leads_nowhere(
    session: Environment, announcement: dict[str, str]
) -> None:
    announcement = {"name": "forged", "type": "file", **announcement}

    heard = run(
        session,
        f"""
import os
from IPython.display import display
for name, target in (("link", "/etc/passwd"), ("folder", "/etc")):
    if not os.path.lexists(name):
        os.symlink(target, name)
display({{"application/vnd.taskweaver.artifact+json": {announcement!r}}}, raw=True)
""",
    )

    assert heard.result.status is ExecutionStatus.SUCCESS
    assert heard.result.artifact == []


HOSTILE_FRAMES = {
    "a frame without end": (
        """
wire.send(b"\\x02" + b"\\x00" * 4 + b"\\xff" * 4)
while True:
    wire.send(bytes(1 << 20))
""",
        "nonsense came from it",
    ),
    "a message that is no JSON": (
        "wire.send(b'\\x03' + b'\\x00\\x00\\x00\\x01' * 2 + b'{')",
        "nonsense came from it",
    ),
    "endless descriptors": (
        """
zeros = os.open("/dev/zero", os.O_RDONLY)
for _ in range(2000):
    frame = b"\\x05" + b"\\x00" * 8
    wire.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [zeros] * 8))])
os._exit(1)
""",
        "exited with code 1",
    ),
}


@pytest.mark.parametrize(("attack", "end"), HOSTILE_FRAMES.values(), ids=HOSTILE_FRAMES)
def test_code_that_takes_over_the_wire_harms_only_itself(
    contained: Environment, attack: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    process = psutil.Process()
    memory, descriptors = process.memory_info().rss, process.num_fds()

    result = run(
        contained,
        f"""
import array, os, socket, stat, time
for descriptor in range(3, 100):
    try:
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            wire = socket.socket(fileno=os.dup(descriptor))
            if "wire" in str(wire.getpeername()):
                wire.setblocking(True)
                break
    except OSError:
        pass
{attack}
time.sleep(60)
""",
        timeout=10,
    ).result
    after = run(contained, "print('fresh')").result

    assert result.status is ExecutionStatus.DIED
    assert end in (result.error or "")
    assert ".." not in (result.error or "")
    assert "Traceback" not in caplog.text
    assert after.stdout == ["fresh\n"]
    assert process.memory_info().rss < memory + (64 << 20)
    assert process.num_fds() < descriptors + 20


def test_each_protection_can_be_given_up(tmp_path: Path, docker_client: DockerClient) -> None:
    settings = ContainerSettings(
        keeps_capabilities=True,
        may_gain_privileges=True,
        has_writable_root=True,
        has_network=True,
        sees_host_names=True,
        has_init=False,
        user="0:0",
        read_only_mounts={"/usr/share": "/given"},
    )
    with container_environment(tmp_path, settings) as environment:
        environment.start_session("s1")

        found = value_of(
            environment,
            """
status = open("/proc/self/status").read()
given = os.listdir("/given")
try:
    open("/given/made", "w")
except OSError as error:
    refusal = error.errno
open("/made", "w").close()
print(json.dumps(["eth0" in os.listdir("/sys/class/net"), os.getpid(), bool(given), refusal,
                  "NoNewPrivs:\\t0" in status, "CapBnd:\\t0000000000000000" in status]))
""",
        )

    assert found == [True, 1, True, 30, True, False]
