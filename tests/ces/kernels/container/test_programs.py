"""Shells and programs of a session with a container run inside of it, and end with it."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from docker import DockerClient

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import LateOutput, StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus, KernelDeath
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.container import program, spawner
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.ces.kernels.container.limits import ContainerLimits
from taskweaver_ext.ces.kernels.container.monitor import ContainerMonitor
from taskweaver_ext.ces.kernels.container.program_site import ContainerProgramSite
from taskweaver_ext.ces.programs.languages import Language
from taskweaver_ext.ces.programs.site import ProcessSettings
from taskweaver_ext.errors import KernelError
from tests.support.containers import CODE_USER, container_environment, container_of
from tests.support.executions import LIMIT_SECONDS, run, wait_until

LIMITS = ContainerLimits(memory_bytes=256 << 20, processes=40, folder_bytes=30 << 20)
COUNT = "for number in $(seq 200); do echo $number; sleep 0.05; done"
SLEEP = ProcessSettings(path="/bin/sleep", command=("sleep", "1000"), cwd=Path("/"), environment={})
SHELL_AND_PROGRAM = [pytest.param(False, id="shell"), pytest.param(True, id="program")]


@pytest.fixture(scope="module")
def environment_with_limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A session "limited" whose container may use little, for all tests that do not end it."""
    folder = tmp_path_factory.mktemp("programs")
    with container_environment(folder, ContainerSettings(limits=LIMITS)) as environment:
        environment.start_session("limited")
        with environment.programs("limited") as site:
            assert site.has_file("/")  # the line to it is open from now on
        yield environment


@pytest.fixture
def registry(environment_with_limits: Environment) -> Iterator[ExecutorRegistry]:
    with ExecutorRegistry(environment_with_limits, "limited") as registry:
        yield registry


@pytest.fixture
def own(contained: Environment) -> Iterator[ExecutorRegistry]:
    """Executors of a session whose container the test may end."""
    with ExecutorRegistry(contained, "s1") as registry:
        yield registry


def limits_named(result: ExecutionResult) -> str:
    return " ".join(notice.message for notice in result.notices if notice.kind == "limit")


def execute(
    registry: ExecutorRegistry,
    code: str,
    *,
    fresh: bool = False,
    timeout: float = LIMIT_SECONDS,
    on_output: Callable[[str, str], None] | None = None,
    **options: object,
) -> ExecutionResult:
    executor = registry.get("bash", fresh=fresh)
    return executor.execute(code, timeout=timeout, on_output=on_output, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("fresh", SHELL_AND_PROGRAM)
def test_it_can_do_no_more_than_the_kernel(
    registry: ExecutorRegistry, environment_with_limits: Environment, fresh: bool
) -> None:
    [session] = environment_with_limits.sessions()
    made = Path(session.cwd) / f"made-{fresh}"

    result = execute(
        registry,
        f"pwd; echo text >{made.name}; touch /usr/made 2>&1; ls /sys/class/net;"
        " echo $HOME; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status",
        fresh=fresh,
    )

    said = "".join(result.stdout)
    assert said.startswith(f"{session.cwd}\n")
    assert "Read-only file system" in said
    assert said.split()[-6:] == ["lo", "/tmp", "CapEff:", "0" * 16, "NoNewPrivs:", "1"]
    assert made.read_text() == "text\n"
    assert made.stat().st_uid == CODE_USER


@pytest.mark.parametrize("fresh", SHELL_AND_PROGRAM)
def test_it_runs_while_the_kernel_is_busy(
    registry: ExecutorRegistry, environment_with_limits: Environment, fresh: bool
) -> None:
    results: list[ExecutionResult] = []

    def use_the_shell(_stream: str, _text: str) -> None:
        results.append(execute(registry, "echo meanwhile", fresh=fresh))

    run(environment_with_limits, "print('busy')", session="limited", on_output=use_the_shell)

    assert results[0].stdout == ["meanwhile\n"]


def test_our_environment_is_not_theirs_and_variables_are(
    environment_with_limits: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKWEAVER_OURS", "secret")
    with ExecutorRegistry(environment_with_limits, "limited", env={"GIVEN": "given"}) as registry:
        for fresh in (False, True):
            said = execute(registry, "echo $GIVEN; env", fresh=fresh).stdout

            assert "".join(said).startswith("given\n")
            assert "TASKWEAVER_OURS" not in "".join(said)


def test_what_a_background_job_writes_later_is_late_output(
    environment_with_limits: Environment,
) -> None:
    heard: list[LateOutput] = []
    with ExecutorRegistry(
        environment_with_limits, "limited", on_late_output=heard.append
    ) as registry:
        job = "(until [ -e /tmp/gate ]; do sleep 0.01; done; echo later)"
        result = execute(registry, f"{job} & echo now", execution_id="mine")

        assert result.stdout == ["now\n"]
        execute(registry, "touch /tmp/gate")
        wait_until(lambda: heard)
    assert [(late.execution_id, late.text) for late in heard] == [("mine", "later\n")]


def test_an_interpreter_that_the_image_lacks_is_a_result(registry: ExecutorRegistry) -> None:
    result = registry.get("javascript").execute("1")

    assert result.status is ExecutionStatus.ERROR
    assert result.error == "exec: node not found in PATH (ENOENT)"


def test_raw_bytes_are_kept_outside(registry: ExecutorRegistry) -> None:
    result = execute(registry, r"printf 'text\n\xff\xfe'", fresh=True)

    assert result.error == "exec: Output on stdout is not UTF-8 text (BINARY_OUTPUT)"
    assert Path(result.artifact[0].file_name).read_bytes() == b"text\n\xff\xfe"


def test_a_language_that_is_built_first_is_built_inside(
    environment_with_limits: Environment,
) -> None:
    copied = Language(
        name="copied", command="{program}", arguments=(), build=("cp", "{file}", "{program}")
    )
    script = Language(
        name="script",
        command="bash",
        arguments=("{program}",),
        build=("cp", "{file}", "{program}"),
        suffix=".sh",
    )
    with ExecutorRegistry(
        environment_with_limits, "limited", languages={"copied": copied, "script": script}
    ) as registry:
        built = registry.get("script").execute('echo "from $0"', timeout=LIMIT_SECONDS)
        unusable = registry.get("copied").execute("#!/bin/bash", timeout=LIMIT_SECONDS)

    assert built.stdout[0].startswith("from /tmp/taskweaver-")
    assert unusable.error == "exec: Cannot start the process: Permission denied (EACCES)"


def test_a_program_that_takes_too_much_memory_names_the_limit(
    registry: ExecutorRegistry, environment_with_limits: Environment
) -> None:
    hog = "python3 -c 'bytearray(10**9)'"

    program = execute(registry, f"exec {hog}", fresh=True)
    command = execute(registry, f"kept=kept; {hog}")

    assert program.error == "exec: Out of memory (limit 268,435,456 bytes) (OUT_OF_MEMORY)"
    assert command.exit_code == 137
    assert "256 MiB of memory" in limits_named(command)
    assert execute(registry, "echo $kept").stdout == ["kept\n"]
    assert run(environment_with_limits, "1", session="limited").result.notices == []


@pytest.mark.parametrize("fresh", SHELL_AND_PROGRAM)
def test_a_fork_bomb_names_the_limit_and_leaves_nothing(
    registry: ExecutorRegistry, fresh: bool
) -> None:
    result = execute(registry, ":(){ :|:& };:; sleep 1000", fresh=fresh, timeout=2)

    assert result.status is not ExecutionStatus.SUCCESS
    assert "at most 40 processes" in limits_named(result)
    said = "".join(execute(registry, "ps -e -o args=", fresh=fresh).stdout).split()
    assert said.count("sleep") == 0
    assert said.count("bash") <= 1
    assert "<defunct>" not in said


def test_a_limit_is_named_only_to_what_met_it(
    registry: ExecutorRegistry, environment_with_limits: Environment
) -> None:
    execute(registry, "true")  # there is a shell
    many = "import subprocess\nfor _ in range(50): subprocess.Popen(['sleep', '1000'])"

    met = registry.get("python", fresh=True).execute(many, timeout=LIMIT_SECONDS)
    by_shell = execute(registry, "echo")
    by_kernel = run(environment_with_limits, "print()", session="limited").result

    assert "at most 40 processes" in limits_named(met)
    assert limits_named(by_shell) == limits_named(by_kernel) == ""


@pytest.mark.parametrize("fresh", SHELL_AND_PROGRAM)
def test_a_folder_that_grows_too_large_stops_the_program(tmp_path: Path, fresh: bool) -> None:
    with (
        container_environment(tmp_path, ContainerSettings(limits=LIMITS)) as environment,
        ExecutorRegistry(environment, "s1") as registry,
    ):
        fill = "for number in $(seq 1000); do head -c 1000000 /dev/zero >filler-$number; done"
        result = execute(registry, fill, fresh=fresh)

        assert result.status in (ExecutionStatus.ERROR, ExecutionStatus.DIED)
        assert "may grow by 30 MiB" in limits_named(result)
        assert execute(registry, "echo fine; rm filler*", fresh=fresh).stdout == ["fine\n"]


@pytest.mark.parametrize("fresh", SHELL_AND_PROGRAM)
@pytest.mark.parametrize(("action", "cause"), [("kill", "signal"), ("remove", "container_gone")])
def test_the_end_of_the_container_is_noticed_within_a_second(
    own: ExecutorRegistry, docker_client: DockerClient, action: str, cause: str, fresh: bool
) -> None:
    ended_at: list[float] = []

    def end(_stream: str, _text: str) -> None:
        if not ended_at:
            container = container_of(docker_client)
            container.remove(force=True) if action == "remove" else container.kill()
            ended_at.append(time.monotonic())

    result = execute(own, COUNT, fresh=fresh, on_output=end)
    noticed_at = time.monotonic()

    assert result.status is ExecutionStatus.DIED
    assert result.death is not None
    assert result.death.cause == cause
    assert noticed_at - ended_at[0] < 5  # a tenth of it where nothing else runs
    again = execute(own, "echo fresh", fresh=fresh)
    assert again.stdout == ["fresh\n"]
    assert [notice.kind for notice in again.notices] == ([] if fresh else ["restarted"])


def test_a_kernel_that_ends_takes_the_shell_with_it_and_that_is_said(
    own: ExecutorRegistry, contained: Environment
) -> None:
    ending = threading.Thread(target=run, args=(contained, "import os; os._exit(3)"))

    def end_the_kernel(_stream: str, text: str) -> None:
        if text.startswith("1\n"):
            ending.start()

    result = execute(own, COUNT, on_output=end_the_kernel)

    ending.join(LIMIT_SECONDS)
    assert result.status is ExecutionStatus.DIED
    assert result.error == "The shell is gone: its container ended: exited with code 3."
    assert not result.variables_survived


@pytest.mark.parametrize("fresh", SHELL_AND_PROGRAM)
def test_nothing_is_sent_into_a_container_that_is_known_to_be_dead(
    own: ExecutorRegistry,
    contained: Environment,
    docker_client: DockerClient,
    monkeypatch: pytest.MonkeyPatch,
    fresh: bool,
) -> None:
    execute(own, "kept=kept", fresh=fresh)
    another_thread_knows = threading.Event()
    find_death = ContainerMonitor.death

    def find_death_late(monitor: ContainerMonitor, wait_seconds: float = 1.0) -> KernelDeath | None:
        """The kernel's reader is the last to learn of the end."""
        if threading.current_thread().name.startswith("taskweaver-reader-"):
            assert another_thread_knows.wait(LIMIT_SECONDS)
        another_thread_knows.set()
        return find_death(monitor, wait_seconds)

    monkeypatch.setattr(ContainerMonitor, "death", find_death_late)
    container_of(docker_client).kill()
    wait_until(lambda: contained.sessions()[0].state == "dead")

    result = execute(own, "echo $kept", fresh=fresh)

    assert result.status is ExecutionStatus.SUCCESS
    assert fresh or "its container ended: killed by SIGKILL" in result.notices[0].message


def test_a_pause_is_told_and_the_command_goes_on(
    own: ExecutorRegistry, docker_client: DockerClient
) -> None:
    seen: list[str] = []

    def pause(_stream: str, text: str) -> None:
        if text.startswith("1\n"):
            container_of(docker_client).pause()

    def unpause(event: object) -> None:
        if isinstance(event, StatusChanged):
            seen.append(event.status)
            if event.status == "paused":
                container_of(docker_client).unpause()

    result = execute(own, "seq 5; sleep 0.5; seq 6 10", on_output=pause, on_event=unpause)

    assert result.status is ExecutionStatus.SUCCESS
    assert "".join(result.stdout).split() == [str(number) for number in range(1, 11)]
    assert seen[-2:] == ["paused", "resumed"]


@pytest.mark.parametrize("fresh", SHELL_AND_PROGRAM)
def test_what_is_paused_when_its_time_is_up_is_killed(
    own: ExecutorRegistry, docker_client: DockerClient, fresh: bool
) -> None:
    def pause(_stream: str, _text: str) -> None:
        if container_of(docker_client).status == "running":
            container_of(docker_client).pause()

    result = execute(own, COUNT, fresh=fresh, timeout=2, on_output=pause)

    assert result.status is ExecutionStatus.TIMEOUT
    assert execute(own, "echo fresh", fresh=fresh).stdout == ["fresh\n"]


def test_a_session_that_is_stopped_ends_its_programs(
    own: ExecutorRegistry, contained: Environment
) -> None:
    stopping = threading.Thread(target=contained.stop_session, args=("s1",))

    def stop(_stream: str, text: str) -> None:
        if text.startswith("1\n"):
            stopping.start()

    result = execute(own, COUNT, fresh=True, on_output=stop)
    stopping.join(LIMIT_SECONDS)
    afterwards = execute(own, "echo", fresh=True)

    assert result.status is ExecutionStatus.DIED
    assert (afterwards.error or "").endswith("(SESSION)")


def test_code_that_ends_what_starts_programs_ends_the_container(own: ExecutorRegistry) -> None:
    result = execute(own, "kill -9 $PPID; sleep 1000", fresh=True)

    assert result.status is ExecutionStatus.DIED
    assert "the process that starts programs in it ended" in (result.error or "")
    assert execute(own, "echo fresh", fresh=True).stdout == ["fresh\n"]


def test_a_container_is_not_put_away_under_a_program(tmp_path: Path) -> None:
    with (
        container_environment(tmp_path, max_kernels=1) as environment,
        ExecutorRegistry(environment, "s1") as registry,
    ):
        gate = environment.env_dir / "sessions" / "s1" / "cwd" / "gate"

        def start_another(_stream: str, _text: str) -> None:
            another = threading.Thread(target=environment.start_session, args=("s2",))
            another.start()
            threads.append(another)
            another.join(0.5)
            is_waiting.append(another.is_alive())
            gate.touch()

        threads: list[threading.Thread] = []
        is_waiting: list[bool] = []
        wait = "echo begun; until [ -e gate ]; do sleep 0.01; done"
        result = execute(registry, wait, fresh=True, on_output=start_another)
        threads[0].join(LIMIT_SECONDS)

        assert is_waiting == [True]
        assert result.status is ExecutionStatus.SUCCESS
        assert {info.session_id: info.state for info in environment.sessions()} == {
            "s1": "put_away",
            "s2": "idle",
        }


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act for another user")
def test_programs_of_another_user_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir(mode=0o777)
    (tmp_path / "cwd").chmod(0o777)
    with container_environment(tmp_path, ContainerSettings(user="1234:1234")) as environment:
        environment.start_session("s1", cwd=tmp_path / "cwd")
        with ExecutorRegistry(environment, "s1") as registry:
            for fresh in (False, True):
                result = execute(registry, "id -u; cat", fresh=fresh, stdin="read")

                assert "".join(result.stdout) == "1234\nread"


def test_a_program_that_is_started_too_late_is_ended(
    own: ExecutorRegistry, contained: Environment, docker_client: DockerClient
) -> None:
    execute(own, "true", fresh=True)
    with (
        contained.programs("s1") as site,
        paused(contained, docker_client),
        pytest.raises(KernelError, match="is paused"),
    ):
        site.start(SLEEP)

    said = "".join(execute(own, "ps -e -o args=", fresh=True).stdout)
    assert "ps -e" in said
    assert "sleep 1000" not in said


def test_a_program_that_a_stalled_spawner_starts_too_late_is_ended(
    own: ExecutorRegistry, contained: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    [spawner_pid] = execute(own, "echo $PPID", fresh=True).stdout
    signal_spawner = f"import os, signal; os.kill({spawner_pid.strip()}, signal.SIG%s)"
    with contained.programs("s1") as site, monkeypatch.context() as impatient:
        run(contained, signal_spawner % "STOP")
        impatient.setattr(spawner, "ANSWER_SECONDS", 0.5)
        with pytest.raises(KernelError, match="has not answered in time"):
            site.start(SLEEP)
    run(contained, signal_spawner % "CONT")

    said = "".join(execute(own, "ps -e -o args=", fresh=True).stdout)
    assert "ps -e" in said
    assert "sleep 1000" not in said


def test_a_program_that_cannot_be_looked_after_is_ended(
    own: ExecutorRegistry, contained: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def have_no_room() -> None:
        raise OSError(errno.EMFILE, "no descriptor is left")

    execute(own, "true", fresh=True)
    before = psutil.Process().num_fds()

    with monkeypatch.context() as changed:
        changed.setattr(program, "Waker", have_no_room)
        refused = execute(own, "exec sleep 1000", fresh=True)

    assert refused.error == "exec: Cannot start the process: Too many open files (EMFILE)"
    assert "sleep 1000" not in "".join(execute(own, "ps -e -o args=", fresh=True).stdout)
    wait_until(lambda: psutil.Process().num_fds() <= before)


def test_a_paused_container_starts_no_program_and_that_is_said(
    own: ExecutorRegistry, contained: Environment, docker_client: DockerClient
) -> None:
    execute(own, "true", fresh=True)

    with paused(contained, docker_client):
        refused = execute(own, "echo", fresh=True)

    assert refused.status is ExecutionStatus.ERROR
    assert "is paused, so nothing can be started in it" in (refused.error or "")
    assert execute(own, "echo again", fresh=True).stdout == ["again\n"]


@pytest.mark.parametrize("language", ["bash", "python"])
def test_what_is_given_to_a_container_while_it_is_paused_hears_of_it_and_runs_afterwards(
    own: ExecutorRegistry, docker_client: DockerClient, language: str
) -> None:
    execute(own, "true")  # there is a shell in any case
    executor = own.get(language)
    executor.execute("kept=4", timeout=LIMIT_SECONDS)
    container_of(docker_client).pause()

    def unpause(event: object) -> None:
        if isinstance(event, StatusChanged) and event.status == "paused":
            container_of(docker_client).unpause()

    code = "echo $kept" if language == "bash" else "print(kept)"
    result = executor.execute(code, on_event=unpause, timeout=LIMIT_SECONDS)

    assert result.stdout == ["4\n"]
    assert result.is_success


@contextlib.contextmanager
def paused(contained: Environment, client: DockerClient) -> Iterator[None]:
    """Pause the container until the end of the block, and see that it is known."""
    container_of(client).pause()
    try:
        with contained.programs("s1") as site:
            assert isinstance(site, ContainerProgramSite)
            wait_until(lambda: site.is_paused)
        yield
    finally:
        container_of(client).unpause()


def test_a_pipe_that_cannot_be_made_inside_is_closed_here(tmp_path: Path) -> None:
    with container_environment(tmp_path, ContainerSettings(transport="tcp")) as environment:
        environment.start_session("s1")
        with environment.programs("s1") as site:
            folder = site.make_folder()
            assert site.has_file("/")
            run(environment, "import os; os.system('rm -r /tmp/taskweaver-*')")
            before = _connected_ports()

            with pytest.raises(FileNotFoundError):
                folder.make_pipe("stdout")

            wait_until(lambda: _connected_ports() <= before)


def _connected_ports() -> set[int]:
    """Of our connections, whatever state each is in."""
    return {one.laddr.port for one in psutil.Process().net_connections("tcp")}
