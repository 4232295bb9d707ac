"""Kernels in containers: they live, are interrupted, are killed from outside, and end."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq
from docker import DockerClient
from docker.errors import NotFound

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.client.wire import CONTROL_PORT, STDIN_PORT, Waker
from taskweaver_ext.ces.kernels.container.connection import SharedFolderChannels
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.engine import (
    Engine,
    EngineGoneError,
    Trouble,
    advice_about_engine,
)
from taskweaver_ext.ces.kernels.container.failures import missing_engine
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import KernelStartError
from tests.support.containers import IMAGE, container_environment, container_of, given_to_code
from tests.support.executions import LIMIT_SECONDS, run, wait_until, with_enough_time

COUNT_SLOWLY = """
import time
print("go", flush=True)
for number in range(30):
    print(number, flush=True)
    time.sleep(0.05)
"""

PLUGIN = """
from taskweaver.plugin import Plugin, register_plugin

@register_plugin
class Save(Plugin):
    def __call__(self, text):
        self.log("info", "saving")
        return self.ctx.add_artifact("note", "note.txt", "txt", text)
"""


def test_sockets_in_a_shared_folder_are_chosen_on_this_machine(
    contained: Environment, docker_client: DockerClient
) -> None:
    host = container_of(docker_client).attrs["HostConfig"]

    assert host["NetworkMode"] == "none"
    assert not host["PortBindings"]


def test_an_artifact_of_a_plugin_is_on_this_machine(contained: Environment, tmp_path: Path) -> None:
    contained.load_plugin("s1", "save", PLUGIN)

    result = run(contained, "save('written inside')").result

    [artifact] = result.artifact
    assert Path(artifact.file_name).read_text() == "written inside"
    assert Path(artifact.file_name).parent == tmp_path / "session" / "cwd"
    assert result.log == [("info", "Plugin-save", "saving")]


def test_what_is_put_into_the_folder_can_be_read_inside(
    contained: Environment, tmp_path: Path
) -> None:
    (tmp_path / "session" / "cwd" / "upload.csv").write_text("1,2\n")

    result = run(contained, "print(open('upload.csv').read(), end='')").result

    assert result.stdout == ["1,2\n"]


def test_a_folder_that_the_image_needs_itself_is_mounted_elsewhere(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/usr/local/share") as cwd,
        container_environment(tmp_path) as environment,
    ):
        environment.start_session("s1", cwd=given_to_code(Path(cwd)))
        environment.load_plugin("s1", "save", PLUGIN)
        result = run(environment, "import os; save('x'); os.getcwd()").result
        [artifact] = result.artifact
        made = Path(artifact.file_name).read_text()

    assert result.output == "'/work'"
    assert made == "x"


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_an_interrupt_reaches_the_children(tmp_path: Path, transport: str) -> None:
    settings = ContainerSettings(transport=transport)  # type: ignore[arg-type]
    with container_environment(tmp_path, settings) as environment:
        environment.start_session("s1")
        is_going = threading.Event()
        code = """
import subprocess
child = subprocess.Popen(["sleep", "1000"])
print("go", flush=True)
child.wait()
"""

        with ThreadPoolExecutor() as pool:
            running = pool.submit(
                run, environment, code, on_output=lambda _stream, _text: is_going.set()
            )
            assert is_going.wait(LIMIT_SECONDS)
            environment.interrupt("s1")
            result = running.result(LIMIT_SECONDS).result
        left = run(environment, "import os; os.system('ps -e -o args | grep -c \"[s]leep 1000\"')")

        assert result.status is ExecutionStatus.CANCELLED
        assert result.variables_survived
        assert left.text() == "0\n"


def test_code_that_heeds_no_interrupt_is_killed(contained: Environment) -> None:
    code = "import re; re.match('(a+)+$', 'a' * 60 + 'b')  # keeps the interpreter"

    result = with_enough_time(
        lambda seconds: run(contained, code, timeout=seconds).result,
        lambda result: not result.variables_survived,
    )

    assert result.status is ExecutionStatus.TIMEOUT
    assert not result.variables_survived
    assert run(contained, "print('fresh')").result.stdout == ["fresh\n"]


@pytest.mark.parametrize(
    ("action", "cause"), [("kill", "signal"), ("remove", "container_gone"), ("stop", "signal")]
)
def test_a_container_that_is_ended_from_outside_is_noticed_within_a_second(
    contained: Environment, docker_client: DockerClient, action: str, cause: str
) -> None:
    container = container_of(docker_client)
    ended_at: list[float] = []

    def end(_stream: str, _text: str) -> None:
        if not ended_at:
            if action == "remove":
                container.remove(force=True)
            else:
                getattr(container, action)()
            ended_at.append(time.monotonic())

    result = run(contained, COUNT_SLOWLY.replace("30", "1000"), on_output=end).result
    noticed_at = time.monotonic()

    assert result.status is ExecutionStatus.DIED
    assert result.death is not None
    assert result.death.cause == cause
    assert noticed_at - ended_at[0] < 5  # a tenth of it where nothing else runs
    assert run(contained, "print('fresh')").result.stdout == ["fresh\n"]


def test_a_container_that_ends_while_idle_is_replaced(
    contained: Environment, docker_client: DockerClient
) -> None:
    container_of(docker_client).kill()

    result = run(contained, "print('fresh')").result

    if not result.is_success:  # it was asked before the end was known
        result = run(contained, "print('fresh')").result
    assert result.stdout == ["fresh\n"]
    assert "restarted" in {notice.kind for notice in result.notices}


def test_a_pause_is_told_and_the_code_goes_on_afterwards(
    contained: Environment, docker_client: DockerClient
) -> None:
    container = container_of(docker_client)
    seen: list[str] = []
    is_paused = threading.Event()

    def pause_on_first_output(_stream: str, _text: str) -> None:
        if not is_paused.is_set():
            container.pause()
            is_paused.set()

    def unpause_when_told(event: object) -> None:
        if isinstance(event, StatusChanged):
            seen.append(event.status)
            if event.status == "paused":
                container.unpause()

    result = contained.execute_code(
        "s1",
        COUNT_SLOWLY,
        on_output=pause_on_first_output,
        on_event=unpause_when_told,
        timeout=LIMIT_SECONDS,
    )

    assert result.status is ExecutionStatus.SUCCESS
    assert "".join(result.stdout).split() == ["go", *map(str, range(30))]
    assert seen[-2:] == ["paused", "resumed"]


def test_a_paused_container_is_killed_when_time_is_up(
    contained: Environment, docker_client: DockerClient
) -> None:
    container_of(docker_client).pause()

    result = run(contained, "print('never')", timeout=0.5).result

    assert result.status is ExecutionStatus.TIMEOUT
    assert "paused" in result.notices[0].message
    assert run(contained, "print('fresh')").result.stdout == ["fresh\n"]


def test_ten_sessions_at_once_do_not_mix(tmp_path: Path) -> None:
    names = [f"many-{number}" for number in range(10)]

    def use(name: str) -> str:
        environment.start_session(name)
        code = f"for number in range(2000): print({name!r}, number)"
        return run(environment, code, session=name).text()

    with (
        container_environment(tmp_path) as environment,
        ThreadPoolExecutor(len(names)) as pool,
    ):
        texts = list(pool.map(use, names))

    for name, text in zip(names, texts, strict=True):
        assert text == "".join(f"{name} {number}\n" for number in range(2000))


def test_a_missing_image_names_the_command_that_helps(tmp_path: Path) -> None:
    settings = ContainerSettings(image="nobody/has-this:1")

    with (
        container_environment(tmp_path, settings) as environment,
        pytest.raises(KernelStartError, match="docker pull nobody/has-this:1"),
    ):
        environment.start_session("s1")


def test_a_missing_engine_is_said(tmp_path: Path) -> None:
    settings = ContainerSettings(engine_url=f"unix://{tmp_path}/no.sock")

    with (
        Environment(tmp_path, EnvMode.Container, container=settings) as environment,
        pytest.raises(KernelStartError, match=r"Cannot reach Docker at .*/no\.sock\. Start Docker"),
    ):
        environment.start_session("s1")


@pytest.mark.skipif(sys.platform != "linux", reason="services are started otherwise elsewhere")
@pytest.mark.parametrize(
    ("url", "trouble", "command"),
    [
        ("unix:///run/docker.sock", "absent", "sudo systemctl start docker"),
        ("unix:///run/docker.sock", "silent", "sudo systemctl restart docker"),
        ("unix:///run/docker.sock", "denied", "sudo usermod -aG docker $USER"),
        ("tcp://10.0.0.1:2375", "silent", "correct DOCKER_HOST"),
    ],
)
def test_the_command_that_helps_is_named(url: str, trouble: Trouble, command: str) -> None:
    assert command in advice_about_engine(url, trouble)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_engine_that_one_may_not_use_is_said(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        listener.bind(f"{folder}/engine.sock")
        os.chmod(f"{folder}/engine.sock", 0o600)
        listener.listen()
        os.seteuid(65534)
        try:
            with pytest.raises(EngineGoneError, match="permission denied") as caught:
                Engine(f"unix://{folder}/engine.sock")
        finally:
            os.seteuid(0)

    assert "usermod -aG docker" in str(missing_engine(caught.value))


def test_an_image_without_python_is_said(tmp_path: Path, engine: Engine) -> None:
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    empty.seek(0)
    image = f"taskweaver-test-empty:{os.getpid()}"
    engine.import_image(empty, image, [])
    settings = ContainerSettings(image=image)

    try:
        with (
            container_environment(tmp_path, settings) as environment,
            pytest.raises(KernelStartError, match="has no 'python3'"),
        ):
            environment.start_session("s1")
    finally:
        engine.remove_image(image)


def test_an_image_without_ipykernel_is_said(tmp_path: Path, engine: Engine) -> None:
    dockerfile = f"FROM {IMAGE}\nRUN python3 -m pip uninstall -y ipykernel".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(dockerfile)
        tar.addfile(entry, io.BytesIO(dockerfile))
    context.seek(0)
    image = f"taskweaver-test-bare:{os.getpid()}"
    engine.build(context, image, arguments={}, labels={}, has_network=False, say=lambda _text: None)

    try:
        with (
            container_environment(tmp_path, ContainerSettings(image=image)) as environment,
            pytest.raises(KernelStartError, match=f"image build --base {image}"),
        ):
            environment.start_session("s1")
    finally:
        engine.remove_image(image)


def test_an_image_that_is_removed_is_missed_at_the_next_start_only(
    tmp_path: Path, docker_client: DockerClient
) -> None:
    image = f"taskweaver-test-removed:{os.getpid()}"
    docker_client.images.get(IMAGE).tag(image)
    with container_environment(tmp_path, ContainerSettings(image=image)) as environment:
        environment.start_session("s1")
        docker_client.images.remove(image, force=True)

        assert run(environment, "print('goes on')").result.stdout == ["goes on\n"]
        with pytest.raises(KernelStartError, match="has no image"):
            environment.restart_session("s1")


def test_nothing_is_left_of_a_session(
    contained: Environment, docker_client: DockerClient, tmp_path: Path
) -> None:
    container = container_of(docker_client)
    folder = Path(container.labels["taskweaver_ext.folder"])
    run(contained, "import subprocess; subprocess.Popen(['sleep', '1000'])")

    contained.stop_session("s1")

    wait_until(lambda: not folder.exists())
    with pytest.raises(NotFound):
        container.reload()


def test_published_ports_serve_where_no_folder_can_be_shared(
    tmp_path: Path, docker_client: DockerClient
) -> None:
    with container_environment(tmp_path, ContainerSettings(transport="tcp")) as environment:
        environment.start_session("s1")
        bindings = container_of(docker_client).attrs["HostConfig"]["PortBindings"]

        lines = run(environment, "for number in range(50_000): print(number)")
        reached = run(
            environment,
            """
import socket
for address in (("1.1.1.1", 53), ("8.8.8.8", 53)):
    try:
        socket.create_connection(address, timeout=1)
        print("reached", address)
    except OSError:
        pass
try:
    socket.getaddrinfo("example.com", 80)
    print("resolved")
except OSError:
    pass
""",
        )

        assert lines.text() == "".join(f"{number}\n" for number in range(50_000))
        assert reached.text() == ""
        assert {b[0]["HostIp"] for b in bindings.values()} == {"127.0.0.1"}
        assert any("services of the host" in notice.message for notice in lines.result.notices)


@pytest.mark.parametrize("failing_port", [STDIN_PORT, CONTROL_PORT])
def test_a_start_that_fails_late_leaves_nothing_open(
    container_sessions: Environment, monkeypatch: pytest.MonkeyPatch, failing_port: int
) -> None:
    """The kernel has come by then, and some of the channels to it are open."""
    attach, open_wire = SharedFolderChannels.attach, SharedFolderChannels.open_wire
    wires: list[socket.socket] = []

    def attach_some(
        channels: SharedFolderChannels,
        channel: zmq.Socket[bytes],
        port: int,
        published: Mapping[int, int],
    ) -> None:
        if port == failing_port:
            raise zmq.ZMQError(errno.EMFILE)
        attach(channels, channel, port, published)

    def keep_wire(
        channels: SharedFolderChannels, published: Mapping[int, int], seconds: float, end: Waker
    ) -> socket.socket:
        wires.append(open_wire(channels, published, seconds, end))
        return wires[-1]

    monkeypatch.setattr(SharedFolderChannels, "attach", attach_some)
    monkeypatch.setattr(SharedFolderChannels, "open_wire", keep_wire)
    before = count_pipes()

    with pytest.raises(KernelStartError, match="Too many open files"):
        container_sessions.start_session("s1")

    assert [wire.fileno() for wire in wires] == [-1]
    assert count_pipes() <= before


def count_pipes() -> int:
    """How many pipes are open here; of sockets, the SDK keeps a changing number open."""
    folder = Path("/proc/self/fd")
    links = []
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            links.append(str(entry.readlink()))
    return sum(link.startswith("pipe:") for link in links)


def test_a_container_that_ends_before_its_ports_are_known_is_said(
    tmp_path: Path, engine: Engine
) -> None:
    settings = ContainerSettings(python="false", transport="tcp")
    with (
        container_environment(tmp_path, settings) as environment,
        pytest.raises(KernelStartError, match=r"ended at once \(exited with code 1\)"),
    ):
        environment.start_session("s1")
