"""One gateway for many processes, whatever happens to it."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.gateway.shared_gateway import SharedGateway
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import KernelStartError
from tests.support.executions import LIMIT_SECONDS, wait_until

RACERS = 20

RACER = """
import sys
from pathlib import Path
from taskweaver_ext.ces.kernels.gateway.shared_gateway import SharedGateway
gateway = SharedGateway(Path(sys.argv[1]))
for _ in sys.stdin:  # one line for each race
    print(gateway.connect().url, flush=True)
"""


HANGS = """
import fcntl, os, signal, sys
alive = open(sys.argv[1], "w")
fcntl.flock(alive, fcntl.LOCK_EX)
alive.write(str(os.getpid()))
alive.flush()
signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The private folder of a gateway that is stopped after the test."""
    folder = tmp_path / "gateway"
    yield folder
    SharedGateway(folder).stop()


def test_twenty_processes_get_one_gateway_and_again_after_it_was_killed(folder: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(RACERS)
    ]
    try:
        first = race(racers)
        running = SharedGateway(folder).status()
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)
        second = race(racers)
    finally:
        for racer in racers:
            racer.communicate(timeout=LIMIT_SECONDS)

    assert first == {running.url}
    assert len(second) == 1
    assert second != first


def race(racers: list[subprocess.Popen[str]]) -> set[str]:
    """Let all connect at once; return the addresses they got."""
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return {racer.stdout.readline().strip() for racer in racers if racer.stdout is not None}


def test_its_files_are_for_their_owner_only(folder: Path) -> None:
    SharedGateway(folder).connect()

    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "gateway.json").stat().st_mode & 0o777 == 0o600


def test_it_listens_on_this_machine_only_and_wants_its_token(folder: Path) -> None:
    settings = SharedGateway(folder).connect()

    assert settings.url.startswith("http://127.0.0.1:")
    assert len(settings.token) >= 32
    assert httpx.get(f"{settings.url}/api/kernelspecs", trust_env=False).status_code == 401


def test_the_token_is_in_no_command_line_or_environment(folder: Path) -> None:
    settings = SharedGateway(folder).connect()

    running = SharedGateway(folder).status()
    assert running is not None
    for name in ("cmdline", "environ"):
        assert settings.token.encode() not in Path(f"/proc/{running.pid}/{name}").read_bytes()


def test_what_a_dead_gateway_left_is_not_believed(folder: Path) -> None:
    folder.mkdir()
    (folder / "alive").touch()
    # A process that lives, at an address where nobody listens.
    stale = {"pid": os.getpid(), "url": "http://127.0.0.1:9", "token": "t", "started_at": 0.0}
    (folder / "gateway.json").write_text(json.dumps(stale))

    settings = SharedGateway(folder).connect()

    assert settings.url != "http://127.0.0.1:9"


def test_one_that_is_killed_while_it_starts_is_started_again(folder: Path) -> None:
    gateway = SharedGateway(folder)

    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(gateway.connect)
        wait_until(lambda: gateway._pid() is not None)
        os.kill(gateway._pid() or 0, signal.SIGKILL)
        settings = connecting.result(LIMIT_SECONDS)

    running = gateway.status()
    assert running is not None
    assert running.url == settings.url


def test_one_that_hangs_while_it_starts_is_ended_on_command(folder: Path) -> None:
    gateway = SharedGateway(folder)
    folder.mkdir()
    hanging = subprocess.Popen([sys.executable, "-c", HANGS, str(folder / "alive")])
    wait_until(lambda: gateway._pid() is not None)

    assert gateway.stop()

    assert hanging.wait(LIMIT_SECONDS) == -signal.SIGTERM


def test_the_folder_of_another_user_is_not_used(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    folder.mkdir()
    os.chown(folder, 12345, 12345)

    with pytest.raises(KernelStartError, match="belongs to another user"):
        SharedGateway(folder).connect()


@pytest.mark.parametrize("content", ["{", '{"pid": "x"}'])
def test_metadata_that_make_no_sense_are_replaced(content: str, folder: Path) -> None:
    folder.mkdir(mode=0o755)
    for name in ("gateway.json", "alive", "lock"):
        (folder / name).write_text(content)

    settings = SharedGateway(folder).connect()

    running = SharedGateway(folder).status()
    assert running is not None
    assert running.url == settings.url
    assert folder.stat().st_mode & 0o777 == 0o700


def test_one_that_hangs_is_replaced(folder: Path) -> None:
    gateway = SharedGateway(folder)
    gateway.connect()
    hanging = gateway.status()
    assert hanging is not None
    os.kill(hanging.pid, signal.SIGSTOP)

    settings = gateway.connect()

    assert settings.url != hanging.url
    wait_until(lambda: not Path(f"/proc/{hanging.pid}").exists())


@pytest.mark.parametrize("left", [0, 3, 20, 40])
def test_one_that_has_run_out_of_descriptors_is_named_and_replaced(
    left: int, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = SharedGateway(folder)
    gateway.connect()
    exhausted = gateway.status()
    assert exhausted is not None
    limit = len(os.listdir(f"/proc/{exhausted.pid}/fd")) + left
    resource.prlimit(exhausted.pid, resource.RLIMIT_NOFILE, (limit, limit))

    settings = gateway.connect()
    with Environment(tmp_path, EnvMode.Gateway, gateway=settings) as environment:
        environment.start_session("s1")
        result = environment.execute_code("s1", "6 * 7", timeout=LIMIT_SECONDS)

    assert settings.url != exhausted.url
    assert result.output == "42"
    assert f"files and sockets open and may have {limit:,}" in caplog.text
    wait_until(lambda: not Path(f"/proc/{exhausted.pid}").exists())


def test_it_may_open_as_many_files_as_the_system_lets_it(folder: Path) -> None:
    SharedGateway(folder).connect()

    running = SharedGateway(folder).status()
    assert running is not None
    least, most = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
    assert least == most


def test_a_starter_that_is_killed_leaves_a_gateway_that_others_use(folder: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", RACER, str(folder)], stdin=subprocess.PIPE, text=True
    )
    assert starter.stdin is not None
    starter.stdin.write("go\n")
    starter.stdin.flush()
    wait_until(lambda: (folder / "alive").exists())
    starter.kill()
    starter.communicate()

    settings = SharedGateway(folder).connect()

    running = SharedGateway(folder).status()
    assert running is not None
    assert running.url == settings.url


def test_a_starter_that_hangs_is_not_waited_for_without_end(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        with pytest.raises(KernelStartError, match="Another process has been starting"):
            SharedGateway(folder, lock_seconds=0.2).connect()


def test_it_ends_by_itself_when_nobody_uses_it(folder: Path) -> None:
    gateway = SharedGateway(folder, idle_seconds=0.4)

    gateway.connect()

    wait_until(lambda: gateway.status() is None)
    assert not (folder / "gateway.json").exists()


def test_a_kernel_keeps_it_from_ending(folder: Path, tmp_path: Path) -> None:
    gateway = SharedGateway(folder, idle_seconds=2.0)
    with Environment(tmp_path, EnvMode.Gateway, gateway=gateway.connect()) as environment:
        environment.start_session("s1")
        result = environment.execute_code("s1", "import time; time.sleep(4); 'still here'")

    assert result.output == "'still here'"


def test_stopping_one_that_does_not_run_says_so(folder: Path) -> None:
    assert not SharedGateway(folder).stop()


def test_it_ends_with_its_kernels_on_command(folder: Path, tmp_path: Path) -> None:
    gateway = SharedGateway(folder)
    with Environment(tmp_path, EnvMode.Gateway, gateway=gateway.connect()) as environment:
        environment.start_session("s1")
        pid = int(environment.execute_code("s1", "import os; os.getpid()").output)
        assert gateway.stop()
        wait_until(lambda: not Path(f"/proc/{pid}").exists())

    assert gateway.status() is None


def test_a_session_survives_the_death_of_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TASKWEAVER_GATEWAY_URL", raising=False)
    shared = SharedGateway()
    code = "print('go'); import time; time.sleep(1000)"
    with Environment(tmp_path, EnvMode.Gateway) as environment:
        try:
            environment.start_session("s1")
            first = shared.status()
            assert first is not None
            died = environment.execute_code(
                "s1",
                code,
                on_output=lambda *_: os.kill(first.pid, signal.SIGKILL),
                timeout=LIMIT_SECONDS,
            )
            after = environment.execute_code("s1", "6 * 7")
            second = shared.status()
        finally:
            environment.close()
            shared.stop()

    assert died.status is ExecutionStatus.DIED
    assert after.output == "42"
    assert [notice.kind for notice in after.notices] == ["restarted"]
    assert second is not None
    assert second.url != first.url
