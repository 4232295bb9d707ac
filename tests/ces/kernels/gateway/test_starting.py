"""Kernels that a gateway fails to start: the first is replaced, the second is an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.errors import KernelNotReadyError
from tests.support.executions import wait_until
from tests.support.gateways import TOKEN, GatewayProcess, start_kernel_gateway, write_kernelspec

LAUNCHER = """
import os, sys, time
tries = os.path.join({folder!r}, "tries")
with open(tries, "a") as file:
    file.write("x")
if os.path.getsize(tries) <= {failures}:
    {failure}
os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def jupyter_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jupyter")


@pytest.fixture(scope="module")
def gateway(jupyter_path: Path) -> Iterator[GatewayProcess]:
    option = "--JupyterWebsocketPersonality.list_kernels=True"
    gateway = start_kernel_gateway(option, jupyter_path=jupyter_path)
    yield gateway
    gateway.stop()


def open_environment(
    gateway: GatewayProcess,
    jupyter_path: Path,
    folder: Path,
    *,
    failures: int,
    failure: str,
    start_seconds: float = 60.0,
) -> Environment:
    """An environment whose first kernels fail in some way."""
    name = folder.name[-30:].strip("_")
    launcher = folder / "launcher.py"
    launcher.write_text(
        LAUNCHER.format(folder=str(folder), failures=failures, failure=failure), encoding="utf-8"
    )
    write_kernelspec(jupyter_path, name, sys.executable, str(launcher))
    settings = replace(gateway.settings(), kernel_name=name, start_seconds=start_seconds)
    return Environment(folder / "env", EnvMode.Gateway, gateway=settings)


def test_a_kernel_that_dies_at_its_start_is_replaced(
    gateway: GatewayProcess, jupyter_path: Path, tmp_path: Path
) -> None:
    with open_environment(
        gateway, jupyter_path, tmp_path, failures=1, failure="sys.exit(1)"
    ) as environment:
        environment.start_session("s1")

        assert environment.execute_code("s1", "6 * 7").output == "42"


def test_a_kernel_that_never_answers_is_replaced(
    gateway: GatewayProcess, jupyter_path: Path, tmp_path: Path
) -> None:
    with open_environment(
        gateway, jupyter_path, tmp_path, failures=1, failure="time.sleep(1000)", start_seconds=12.0
    ) as environment:
        environment.start_session("s1")

        assert environment.execute_code("s1", "6 * 7").output == "42"
    wait_until(lambda: not kernels_of(gateway))


def test_a_kernelspec_that_never_works_is_named(
    gateway: GatewayProcess, jupyter_path: Path, tmp_path: Path
) -> None:
    with (
        open_environment(
            gateway, jupyter_path, tmp_path, failures=1000, failure="sys.exit(1)", start_seconds=2.0
        ) as environment,
        pytest.raises(KernelNotReadyError, match="Look at the gateway's log"),
    ):
        environment.start_session("s1")
    wait_until(lambda: not kernels_of(gateway))


def kernels_of(gateway: GatewayProcess) -> list[str]:
    headers = {"Authorization": f"token {TOKEN}"}
    answer = httpx.get(f"{gateway.url}/api/kernels", headers=headers, trust_env=False)
    return [kernel["id"] for kernel in answer.raise_for_status().json()]
