"""Kernels behind a gateway: lines that break, gateways that refuse, kernels that are replaced."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from scripts.campaigns import gateway_cuts
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import ExecutionEvent, StatusChanged
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings
from taskweaver_ext.ces.kernels.gateway.connection import GatewayConnection
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import ConfigError, KernelStartError
from tests.support.executions import digest_of, digest_of_stdout, run
from tests.support.gateways import (
    TOKEN,
    GatewayProcess,
    ReservedPort,
    gateway_environment,
    kernel_gateway,
    start_kernel_gateway,
)
from tests.support.proxy import FailingProxy

LINES = 100_000
MANY_LINES = f"for i in range({LINES}): print('line', i)"


def expected_digest() -> str:
    return digest_of(f"line {i}\n" for i in range(LINES))


@pytest.fixture(scope="module")
def gateway() -> GatewayProcess:
    return kernel_gateway()


@pytest.fixture
def proxy(gateway: GatewayProcess) -> Iterator[FailingProxy]:
    port = urlsplit(gateway.url).port
    assert port is not None
    proxy = FailingProxy(port)
    yield proxy
    proxy.close()


@pytest.fixture
def environment(proxy: FailingProxy, tmp_path: Path) -> Iterator[Environment]:
    """An environment with a session "s1" behind the proxy."""
    settings = GatewaySettings(url=proxy.url, token=TOKEN, reconnect_seconds=3.0)
    with Environment(tmp_path, EnvMode.Gateway, gateway=settings) as environment:
        environment.start_session("s1")
        yield environment


def test_nothing_is_lost_on_a_connection_that_fails_again_and_again(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    struck = gateway_cuts.play_rounds(gateway, tmp_path, gateway_cuts.ROUNDS // 10, seed=7)

    assert struck == {"cut", "swallow", "stall"}


def test_nothing_is_lost_in_a_black_hole(environment: Environment, proxy: FailingProxy) -> None:
    swallow_at = proxy.passed_bytes + 200_000
    has_swallowed = threading.Event()

    def swallow_once(total: int) -> None:
        if total > swallow_at and not has_swallowed.is_set():
            has_swallowed.set()
            proxy.swallow()

    proxy.on_passed = swallow_once
    result = environment.execute_code("s1", MANY_LINES, timeout=60)

    assert has_swallowed.is_set()
    assert result.status is ExecutionStatus.SUCCESS
    assert digest_of_stdout(result) == expected_digest()
    assert any("nothing was lost" in notice.message for notice in result.notices)


def test_a_request_that_was_lost_on_its_way_is_sent_again(
    environment: Environment, proxy: FailingProxy
) -> None:
    environment.execute_code("s1", "count = 0")
    proxy.swallow()

    result = environment.execute_code("s1", "count += 1; count", timeout=30)

    assert result.output == "1"
    assert environment.execute_code("s1", "count").output == "1"


def test_a_gateway_that_stays_out_of_reach_is_a_death(
    environment: Environment, proxy: FailingProxy
) -> None:
    def refuse(_stream: str, _text: str) -> None:
        proxy.refuse()

    heard = run(environment, "print('go')\nimport time; time.sleep(1000)", on_output=refuse)
    proxy.allow()  # so that the kernel can be ended

    assert heard.result.status is ExecutionStatus.DIED
    assert heard.result.death is not None
    assert "out of reach" in heard.result.death.detail


def test_an_answer_survives_a_cut(environment: Environment, proxy: FailingProxy) -> None:
    def answer(_prompt: str, _password: bool) -> str:
        proxy.swallow()
        return "yes"

    result = environment.execute_code("s1", "input('sure? ')", on_input=answer, timeout=30)

    assert result.output == "'yes'"


def test_an_interrupt_that_was_lost_on_its_way_is_sent_again(
    environment: Environment, proxy: FailingProxy
) -> None:
    def lose_the_interrupt(_stream: str, _text: str) -> None:
        proxy.swallow()
        environment.interrupt("s1")

    code = "print('go'); import time; time.sleep(1000)"
    heard = run(environment, code, on_output=lose_the_interrupt, timeout=30)

    assert heard.result.status is ExecutionStatus.CANCELLED
    assert heard.result.variables_survived


def test_an_interrupt_of_a_request_that_was_lost_is_made_good(
    environment: Environment, proxy: FailingProxy
) -> None:
    def interrupt_at_once(event: ExecutionEvent) -> None:
        if isinstance(event, StatusChanged) and event.status == "running":
            environment.interrupt("s1")

    proxy.swallow()
    result = environment.execute_code(
        "s1", "import time; time.sleep(1000)", on_event=interrupt_at_once, timeout=30
    )

    assert result.status is ExecutionStatus.CANCELLED
    assert environment.execute_code("s1", "6 * 7").output == "42"


def test_a_kernel_that_the_gateway_restarts_has_died(environment: Environment) -> None:
    environment.execute_code("s1", "x = 1")

    dead = environment.execute_code("s1", "print('bye'); import os; os.kill(os.getpid(), 9)")
    after = environment.execute_code("s1", "'x' in globals()")

    assert dead.status is ExecutionStatus.DIED
    assert "".join(dead.stdout) == "bye\n"
    assert not dead.variables_survived
    assert after.output == "False"
    assert [notice.kind for notice in after.notices] == ["restarted"]


def test_files_travel_in_messages_where_no_disk_is_shared(
    environment: Environment, tmp_path: Path
) -> None:
    plugin = """
from taskweaver.plugin import Plugin, register_plugin
@register_plugin
class Save(Plugin):
    def __call__(self):
        self.ctx._folder = __import__("pathlib").Path("/tmp")
        self.ctx.add_artifact("text", "text.txt", "txt", "contents")
"""
    environment.load_plugin("s1", "save", plugin)

    result = environment.execute_code("s1", "save()")

    [artifact] = result.artifact
    assert Path(artifact.file_name).read_text() == "contents"
    assert str(tmp_path) in artifact.file_name


def test_what_plugins_were_granted_is_there(
    gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUGIN_mail_password", "granted")
    monkeypatch.setenv("MAIL_PASSWORD", "not granted")
    code = "import os; [os.environ.get(n) for n in ('PLUGIN_mail_password', 'MAIL_PASSWORD')]"

    with gateway_environment(tmp_path, gateway) as environment:
        environment.start_session("s1")
        result = environment.execute_code("s1", code)

    assert result.output == "['granted', None]"


def test_the_callers_variables_are_no_part_of_the_code(
    gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    plain = GatewayConnection.run

    def look(self: GatewayConnection, code: str, **more: Any) -> None:  # noqa: ANN401 - passed on
        sent.append(code)
        plain(self, code, **more)

    monkeypatch.setattr(GatewayConnection, "run", look)
    variables = {"GREETING": "s3cret ' \" \n {x}"}
    with gateway_environment(tmp_path, gateway, env=variables) as environment:
        environment.start_session("s1")
        result = environment.execute_code("s1", "import os; os.environ['GREETING']")

    assert ast.literal_eval(result.output) == variables["GREETING"]
    assert not any("s3cret" in code for code in sent)


def test_code_that_is_too_long_for_a_gateway_is_refused(environment: Environment) -> None:
    code = f"text = '''{'x' * (10 << 20)}'''"

    result = environment.execute_code("s1", code, timeout=30)

    assert result.status is ExecutionStatus.ERROR
    assert "10 MB" in (result.error or "")
    assert environment.execute_code("s1", "1").output == "1"


def test_the_kernel_is_gone_from_the_gateway_after_its_session(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    with Environment(tmp_path, EnvMode.Gateway, gateway=gateway.settings()) as environment:
        environment.start_session("s1")
        pid = int(environment.execute_code("s1", "import os; os.getpid()").output)
        environment.stop_session("s1")

    assert not Path(f"/proc/{pid}").exists()


def test_a_gateways_rate_limit_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    limited = start_kernel_gateway(
        "--ZMQChannelsWebsocketConnection.iopub_msg_rate_limit=20",
        "--ZMQChannelsWebsocketConnection.rate_limit_window=1",
    )
    try:
        with Environment(tmp_path, EnvMode.Gateway, gateway=limited.settings()) as environment:
            environment.start_session("s1")
            code = "for i in range(60): display(i)\nprint('end')"
            heard = run(environment, code)
    finally:
        limited.stop()

    assert [display.bundle["text/plain"] for display in heard.result.displays] == [
        str(i) for i in range(60)
    ]
    assert heard.text() == "end\n"
    assert any("rate limit" in notice.message for notice in heard.result.notices)


@pytest.mark.parametrize("token", ["wrong", ""])
def test_a_refused_token_is_named_with_its_gateway(
    gateway: GatewayProcess, tmp_path: Path, token: str
) -> None:
    message = start_error(replace(gateway.settings(), token=token), tmp_path)

    assert gateway.url in message
    assert "401" in message
    assert "TASKWEAVER_GATEWAY_TOKEN" in message


def test_an_unknown_kernelspec_names_those_there_are(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    message = start_error(replace(gateway.settings(), kernel_name="fortran"), tmp_path)

    assert "'fortran'" in message
    assert "python3" in message


def test_a_gateway_that_is_not_there_cannot_be_reached(tmp_path: Path) -> None:
    with closing(ReservedPort()) as port:  # on which nobody listens
        url = f"http://127.0.0.1:{port.number}"
        message = start_error(GatewaySettings(url=url), tmp_path)

    assert f"{url} cannot be reached" in message


def test_something_else_than_a_gateway_is_recognised(tmp_path: Path, model_url: str) -> None:
    message = start_error(GatewaySettings(url=model_url), tmp_path)

    assert model_url in message


def test_an_address_that_is_none_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    settings = GatewaySettings(url="localhost:8888")
    with (
        Environment(tmp_path, EnvMode.Gateway, gateway=settings) as environment,
        pytest.raises(ConfigError, match="http://"),
    ):
        environment.start_session("s1")


def start_error(settings: GatewaySettings, folder: Path) -> str:
    """Why a session does not start."""
    with (
        Environment(folder, EnvMode.Gateway, gateway=settings) as environment,
        pytest.raises(KernelStartError) as error,
    ):
        environment.start_session("s1")
    return str(error.value)


@pytest.fixture
def model_url(proxy: FailingProxy) -> str:
    """An address where somebody listens who never answers as a gateway would."""
    proxy.refuse()
    return proxy.url


def test_the_token_is_not_shown(gateway: GatewayProcess) -> None:
    assert TOKEN not in repr(gateway.settings())
    assert httpx.get(f"{gateway.url}/api/kernelspecs", trust_env=False).status_code == 401
