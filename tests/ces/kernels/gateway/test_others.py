"""Others have a say behind a gateway: it looks at kernels and ends them, and so do its clients."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.client.tracing import LOGGER_NAME
from taskweaver_ext.ces.kernels.gateway.channel import ReconnectingChannel
from taskweaver_ext.ces.kernels.gateway.messages import Channel
from tests.support.executions import LIMIT_SECONDS, has_ended, run, wait_until
from tests.support.gateways import (
    TOKEN,
    GatewayProcess,
    gateway_environment,
    kernel_gateway,
    start_kernel_gateway,
)

WAITS = "print('go'); import time; time.sleep(1000)"


class OtherClient:
    """Another client with the gateway's token, who knows the kernel of session "s1"."""

    def __init__(self, gateway: GatewayProcess, environment: Environment) -> None:
        name = run(environment, "import ipykernel; print(ipykernel.get_connection_file())").text()
        self._path = f"/api/kernels/{Path(name.strip()).stem.removeprefix('kernel-')}"
        self._http = httpx.Client(
            base_url=gateway.url, headers={"Authorization": f"token {TOKEN}"}, trust_env=False
        )

    def look(self) -> Any:  # noqa: ANN401 - what the gateway says
        """The kernel as the gateway sees it."""
        return self._http.get(self._path).json()

    def end(self) -> None:
        """End the kernel."""
        assert self._http.delete(self._path, timeout=LIMIT_SECONDS).status_code == 204

    def close(self) -> None:
        self._http.close()


@pytest.fixture(scope="module")
def shared_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with gateway_environment(tmp_path_factory.mktemp("environment")) as environment:
        yield environment


@pytest.fixture(scope="module")
def gateway() -> GatewayProcess:
    return kernel_gateway()


@pytest.fixture
def other(environment: Environment) -> Iterator[OtherClient]:
    other = OtherClient(kernel_gateway(), environment)
    yield other
    other.close()


def test_the_gateway_sees_when_a_kernel_is_busy_and_idle(
    environment: Environment, other: OtherClient
) -> None:
    seen: list[str] = []

    def look(_stream: str, _text: str) -> None:
        wait_until(lambda: other.look()["execution_state"] == "busy")
        seen.append("busy")
        environment.interrupt("s1")

    environment.execute_code("s1", WAITS, on_output=look)

    assert seen == ["busy"]
    wait_until(lambda: other.look()["execution_state"] == "idle")


def test_a_gateway_puts_an_idle_kernel_away_and_the_session_goes_on(tmp_path: Path) -> None:
    gateway = start_kernel_gateway(
        "--MappingKernelManager.cull_idle_timeout=1",
        "--MappingKernelManager.cull_interval=1",
        "--MappingKernelManager.cull_connected=True",
    )
    try:
        with gateway_environment(tmp_path, gateway) as environment:
            environment.start_session("s1")
            environment.execute_code("s1", "x = 1")
            wait_until(lambda: environment.sessions()[0].state == "dead")
            after = environment.execute_code("s1", "'x' in dir()")
    finally:
        gateway.stop()

    assert after.output == "False"
    assert [notice.kind for notice in after.notices] == ["restarted"]


def test_a_kernel_that_another_client_ended_is_replaced(
    environment: Environment, other: OtherClient
) -> None:
    environment.execute_code("s1", "x = 1")
    other.end()
    wait_until(lambda: environment.sessions()[0].state == "dead")

    after = environment.execute_code("s1", "'x' in dir()", timeout=LIMIT_SECONDS)

    assert after.output == "False"
    assert "ended on the gateway, not by us" in after.notices[0].message


def test_code_whose_kernel_another_client_ends_does_not_hang(
    environment: Environment, other: OtherClient
) -> None:
    ending = threading.Thread(target=other.end)

    heard = run(environment, WAITS, on_output=lambda *_: ending.start())
    ending.join()

    # The gateway interrupts the kernel before it ends it.
    assert heard.result.status in (ExecutionStatus.DIED, ExecutionStatus.ERROR)
    assert environment.execute_code("s1", "6 * 7", timeout=LIMIT_SECONDS).output == "42"


def test_a_kernel_that_ended_without_a_word_is_missed(
    environment: Environment, other: OtherClient
) -> None:
    environment.execute_code(
        "s1",
        """
import signal
handlers = get_ipython().kernel.control_handlers
handlers["shutdown_request"] = lambda *_: signal.raise_signal(signal.SIGKILL)
""",
    )
    other.end()

    missed = environment.execute_code("s1", WAITS, timeout=LIMIT_SECONDS)

    assert missed.status is ExecutionStatus.DIED
    assert "does not know it any more" in (missed.error or "")
    assert environment.execute_code("s1", "6 * 7").output == "42"


def test_a_request_that_was_lost_without_a_sign_is_sent_again(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    send: Any = ReconnectingChannel.send
    lost: list[str] = []

    def lose_the_first(line: ReconnectingChannel, channel: Channel, *message: object) -> object:
        if channel == "shell" and not lost:
            lost.append("a message's id")
            return lost[0]
        return send(line, channel, *message)

    monkeypatch.setattr(ReconnectingChannel, "send", lose_the_first)
    environment.execute_code("s1", "count = globals().get('count', 0) + 1", timeout=30)

    assert lost
    assert environment.execute_code("s1", "count").output == "1"


def test_replies_go_by_the_thread_that_has_the_socket(environment: Environment) -> None:
    code = """
kernel = get_ipython().kernel
has_thread = getattr(kernel, "shell_channel_thread", None) is not None
getattr(kernel, "_supports_kernel_subshells", False) is has_thread
"""

    assert environment.execute_code("s1", code).output == "True"


def test_a_gateway_that_is_killed_is_noticed_soon(tmp_path: Path) -> None:
    gateway = start_kernel_gateway()
    with gateway_environment(tmp_path, gateway) as environment:
        environment.start_session("s1")

        heard = run(environment, WAITS, on_output=lambda *_: gateway.process.kill())
        gateway.stop()

    assert heard.result.status is ExecutionStatus.DIED
    assert "out of reach" in (heard.result.error or "")


def test_a_program_that_ends_without_closing_leaves_no_kernel(
    tmp_path: Path, gateway: GatewayProcess
) -> None:
    program = f"""
import sys
from taskweaver_ext import Environment, EnvMode
environment = Environment({str(tmp_path)!r}, EnvMode.Gateway)
environment.start_session("s1")
print(environment.execute_code("s1", "import os; os.getpid()").output)
"""
    settings = {
        "TASKWEAVER_GATEWAY_URL": gateway.url,
        "TASKWEAVER_GATEWAY_TOKEN": TOKEN,
    }

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )

    assert done.returncode == 0, done.stderr
    assert has_ended(int(done.stdout))


def test_the_stages_of_a_start_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TASKWEAVER_DEBUG_STARTUP", "1")

    with caplog.at_level(logging.INFO, LOGGER_NAME), gateway_environment(tmp_path) as environment:
        environment.start_session("s1")

    assert re.findall(r"start of kernel s1: (.+) after", caplog.text) == [
        "the gateway has answered",
        "the gateway has started a kernel",
        "the connection to it is open",
        "our runtime has taken over",
        "startup scripts and plugins are loaded",
        "done",
    ]
