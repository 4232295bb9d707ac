"""Gateways for tests: real ones, each in a process of its own, started when first asked for."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import httpx

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.machine.child_environment import child_environment
from tests.support.data import DATA
from tests.support.needs import MissingError, need

TOKEN = "a-token-for-tests"
START_SECONDS = 120.0
HANGS_SECONDS = 20.0
INSTALL_SECONDS = 280.0

_ENTERPRISE_PACKAGES = ("jupyter_enterprise_gateway==3.3.0", "setuptools<80")
"""It pins old packages, so it has an environment of its own; its kernels run in ours."""


CERTIFICATE = DATA / "localhost.pem"
"""Of an encrypted gateway on this machine; signed by itself, so clients do not trust it unasked."""


class GatewayProcess:
    """A gateway that runs until it is stopped."""

    def __init__(
        self, command: list[str], environment: dict[str, str], url: str, port: ReservedPort
    ) -> None:
        self.url = url
        self._port = port
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `stop`
        self._start = functools.partial(
            subprocess.Popen,
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.process = self._start()
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        headers = {"Authorization": f"token {TOKEN}"}
        options: dict[str, Any] = {"headers": headers, "trust_env": False, "verify": False}
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/api/kernelspecs", **options).is_success:
                    return
            if self.process.poll() is not None:
                self._log.seek(0)
                raise MissingError(f"a gateway cannot be started: {self._log.read()[-2000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError("the gateway does not answer")
            time.sleep(0.05)

    def revive(self) -> None:
        """Start it again if it hangs: one may wait for ever to say goodbye to a dead kernel."""
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(f"{self.url}/api", trust_env=False, verify=False, timeout=HANGS_SECONDS)
            return
        self.process.kill()
        self.process.wait()
        self.process = self._start()
        self._wait_until_it_answers()

    def settings(self) -> GatewaySettings:
        """How to use it."""
        return GatewaySettings(url=self.url, token=TOKEN)

    def stop(self) -> None:
        """End it, and its kernels by their watching their parent."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
        self._port.close()


class ReservedPort:
    """A port on which only a server that we tell of it can listen, until it is closed."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        # A server that sets this too may listen; the system gives the port to no other.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give it back."""
        self._socket.close()


def start_kernel_gateway(*options: str, jupyter_path: Path | None = None) -> GatewayProcess:
    """Start a Kernel Gateway of the tests' own environment, perhaps with more kernelspecs."""
    port = ReservedPort()
    command = [
        sys.executable,
        "-m",
        "kernel_gateway",
        "--KernelGatewayApp.ip=127.0.0.1",
        f"--KernelGatewayApp.port={port.number}",
        "--KernelRestarter.time_to_dead=0.5",
        *options,
    ]
    environment = child_environment({"KG_AUTH_TOKEN": TOKEN})
    if jupyter_path is not None:
        environment["JUPYTER_PATH"] = str(jupyter_path)
    return GatewayProcess(command, environment, f"http://127.0.0.1:{port.number}", port)


def start_jupyter_server(
    folder: Path, *options: str, url: str = "http://localhost"
) -> GatewayProcess:
    """Start a Jupyter Server as it comes, at this address and a port of its own."""
    port = ReservedPort()
    scheme, _, place = url.partition("://")
    host, _, prefix = place.partition("/")
    command = [
        sys.executable,
        "-m",
        "jupyter_server",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port.number}",
        "--ServerApp.open_browser=False",
        f"--ServerApp.root_dir={folder}",
        f"--ServerApp.base_url=/{prefix}",
        *options,
    ]
    if scheme == "https":
        command += [
            f"--ServerApp.certfile={CERTIFICATE}",
            f"--ServerApp.keyfile={CERTIFICATE.with_suffix('.key')}",
        ]
    environment = child_environment({"HOME": str(folder), "JUPYTER_CONFIG_DIR": str(folder)})
    url = f"{scheme}://{host}:{port.number}/{prefix}".rstrip("/")
    return GatewayProcess(command, environment, url, port)


@functools.cache
def kernel_gateway() -> GatewayProcess:
    """The Kernel Gateway that tests share; it keeps its limits on output, as others' do."""
    gateway = need("kernel gateway", start_kernel_gateway)
    atexit.register(gateway.stop)
    return gateway


@functools.cache
def enterprise_gateway() -> GatewayProcess:
    """The Enterprise Gateway that tests share."""
    gateway = need("enterprise gateway", _start_enterprise_gateway)
    atexit.register(gateway.stop)
    return gateway


def _start_enterprise_gateway() -> GatewayProcess:
    python = _enterprise_python()
    port = ReservedPort()
    command = [
        str(python.with_name("jupyter")),
        "enterprisegateway",
        "--ip=127.0.0.1",
        f"--port={port.number}",
        "--port_retries=0",
        "--KernelRestarter.time_to_dead=0.5",
    ]
    environment = child_environment(
        {
            "EG_AUTH_TOKEN": TOKEN,
            "EG_UNAUTHORIZED_USERS": "",
            "EG_UID_BLACKLIST": "",
            "JUPYTER_PATH": str(_enterprise_kernelspecs(python.parent.parent / "specs")),
            "PATH": os.pathsep.join((str(python.parent), os.defpath)),
        }
    )
    return GatewayProcess(command, environment, f"http://127.0.0.1:{port.number}", port)


def _enterprise_python() -> Path:
    """The interpreter of Enterprise Gateway's environment, which is made once and kept."""
    name = f"enterprise-gateway-3.3.0-python-{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path.home() / ".cache" / "taskweaver-ext-tests" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            install = [str(python), "-m", "pip", "install", "--quiet", *_ENTERPRISE_PACKAGES]
            try:
                venv.create(folder, with_pip=True, clear=True)
                subprocess.run(
                    install, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                why = str(error.stderr or error.output or error)[-300:]
                raise MissingError(f"Enterprise Gateway cannot be installed: {why}") from error
            (folder / "complete").touch()
    return python


def _enterprise_kernelspecs(folder: Path) -> Path:
    """Where Enterprise Gateway finds a kernel of the tests' own environment."""
    write_kernelspec(folder, "python3", sys.executable, "-m", "ipykernel_launcher")
    return folder


def write_kernelspec(jupyter_path: Path, name: str, *command: str) -> None:
    """Add a kernel to what a gateway with this JUPYTER_PATH can start."""
    spec = {
        "argv": [*command, "-f", "{connection_file}"],
        "display_name": name,
        "language": "python",
    }
    path = jupyter_path / "kernels" / name / "kernel.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(spec))


def gateway_environment(
    folder: Path, gateway: GatewayProcess | None = None, **more: object
) -> Environment:
    """An environment whose kernels run behind a Kernel Gateway."""
    settings = (gateway or kernel_gateway()).settings()
    return Environment(folder, EnvMode.Gateway, gateway=settings, **more)  # type: ignore[arg-type]


def enterprise_environment(folder: Path, **more: object) -> Environment:
    """An environment whose kernels run behind an Enterprise Gateway."""
    return gateway_environment(folder, enterprise_gateway(), **more)
