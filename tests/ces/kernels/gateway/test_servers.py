"""Stock Jupyter Servers as gateways: encrypted, behind a path of their own, without a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import ConfigError, KernelStartError
from tests.support.executions import digest_of, digest_of_stdout
from tests.support.gateways import CERTIFICATE, TOKEN, GatewayProcess, start_jupyter_server

LINES = 20_000


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A server with a token, behind https and a path."""
    server = start_jupyter_server(
        tmp_path_factory.mktemp("encrypted"),
        f"--IdentityProvider.token={TOKEN}",
        url="https://localhost/some/path",
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A server that wants no token."""
    server = start_jupyter_server(tmp_path_factory.mktemp("open"), "--IdentityProvider.token=")
    yield server
    server.stop()


def use(settings: GatewaySettings, folder: Path) -> None:
    """Do there what is done with kernels: start, much output, interrupt, end."""
    with Environment(folder, EnvMode.Gateway, gateway=settings) as environment:
        environment.start_session("s1")
        flood = environment.execute_code("s1", f"for i in range({LINES}): print('line', i)")
        sleep = environment.execute_code(
            "s1",
            "print('go'); import time; time.sleep(1000)",
            on_output=lambda *_: environment.interrupt("s1"),
            timeout=30,
        )
        pid = int(environment.execute_code("s1", "import os; os.getpid()").output)

    assert digest_of_stdout(flood) == digest_of(f"line {i}\n" for i in range(LINES))
    assert sleep.status is ExecutionStatus.CANCELLED
    assert not Path(f"/proc/{pid}").exists()


def start_error(settings: GatewaySettings, folder: Path) -> str:
    """Why a session does not start."""
    with (
        Environment(folder, EnvMode.Gateway, gateway=settings) as environment,
        pytest.raises((KernelStartError, ConfigError)) as error,
    ):
        environment.start_session("s1")
    return str(error.value)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    encrypted: GatewayProcess, tmp_path: Path
) -> None:
    message = start_error(encrypted.settings(), tmp_path)

    assert f"{encrypted.url} is not trusted: self-signed certificate" in message
    assert "TASKWEAVER_GATEWAY_CA_FILE" in message


def test_capitals_in_the_address_do_not_make_it_trusted(
    encrypted: GatewayProcess, tmp_path: Path
) -> None:
    url = encrypted.url.replace("https://", "HTTPS://")

    message = start_error(GatewaySettings(url=url, token=TOKEN), tmp_path)

    assert "is not trusted" in message


def test_a_certificate_that_is_named_is_trusted(encrypted: GatewayProcess, tmp_path: Path) -> None:
    use(replace(encrypted.settings(), ca_file=CERTIFICATE), tmp_path)


@pytest.mark.parametrize("variable", ["TASKWEAVER_GATEWAY_CA_FILE", "SSL_CERT_FILE"])
def test_the_environment_names_gateway_token_and_certificate(
    encrypted: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("TASKWEAVER_GATEWAY_URL", encrypted.url)
    monkeypatch.setenv("TASKWEAVER_GATEWAY_TOKEN", TOKEN)
    monkeypatch.setenv(variable, str(CERTIFICATE))

    with Environment(tmp_path, EnvMode.Gateway) as environment:
        environment.start_session("s1")
        result = environment.execute_code("s1", "6 * 7")

    assert result.output == "42"


@pytest.mark.parametrize("name", ["missing.pem", "empty.pem"])
def test_a_file_without_certificates_is_named(
    encrypted: GatewayProcess, tmp_path: Path, name: str
) -> None:
    (tmp_path / "empty.pem").touch()

    message = start_error(replace(encrypted.settings(), ca_file=tmp_path / name), tmp_path)

    assert f"The certificates in {tmp_path / name} cannot be read" in message


def test_a_host_that_the_certificate_is_not_for_is_refused(
    encrypted: GatewayProcess, tmp_path: Path
) -> None:
    url = encrypted.url.replace("localhost", "127.1")  # the same host by another name

    message = start_error(GatewaySettings(url=url, token=TOKEN, ca_file=CERTIFICATE), tmp_path)

    assert "is not trusted: Hostname mismatch" in message


def test_an_address_without_its_path_is_no_gateway(
    encrypted: GatewayProcess, tmp_path: Path
) -> None:
    url = encrypted.url.removesuffix("/some/path")

    message = start_error(GatewaySettings(url=url, token=TOKEN, ca_file=CERTIFICATE), tmp_path)

    assert f"There is no gateway at {url}" in message
    assert "base_url" in message
    assert "<" not in message


def test_one_that_is_encrypted_is_not_reached_without(
    encrypted: GatewayProcess, tmp_path: Path
) -> None:
    url = encrypted.url.replace("https", "http")

    message = start_error(GatewaySettings(url=url, token=TOKEN), tmp_path)

    assert "whether its address begins with https://" in message


@pytest.mark.parametrize("token", ["wrong", ""])
def test_a_servers_refusal_names_the_token(
    encrypted: GatewayProcess, tmp_path: Path, token: str
) -> None:
    settings = GatewaySettings(url=encrypted.url, token=token, ca_file=CERTIFICATE)

    message = start_error(settings, tmp_path)

    assert "refused" in message
    assert "TASKWEAVER_GATEWAY_TOKEN" in message
    assert TOKEN not in message


def test_the_address_that_jupyter_prints_is_enough(
    encrypted: GatewayProcess, tmp_path: Path
) -> None:
    url = f"{encrypted.url}/lab?token={TOKEN}"
    settings = GatewaySettings(url=url, ca_file=CERTIFICATE)

    with Environment(tmp_path, EnvMode.Gateway, gateway=settings) as environment:
        environment.start_session("s1")
        result = environment.execute_code("s1", "6 * 7")

    assert result.output == "42"


@pytest.mark.parametrize("token", ["", "one-too-many"])
def test_a_server_that_wants_no_token_is_used_without(
    open_to_all: GatewayProcess, tmp_path: Path, token: str
) -> None:
    use(GatewaySettings(url=open_to_all.url, token=token), tmp_path)
