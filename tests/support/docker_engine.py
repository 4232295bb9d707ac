"""A Docker engine of our own for tests: installed, started and stopped without systemd.

    python -m tests.support.docker_engine with COMMAND...   stops what it started afterwards
    python -m tests.support.docker_engine start             prints DOCKER_HOST=...
    python -m tests.support.docker_engine stop              stops only what `start` started

Standard library only, because it runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

DEFAULT_FOLDER = Path("/tmp/taskweaver-engine")
DEFAULT_URLS = ("unix:///var/run/docker.sock",)

_PACKAGES = ("docker.io", "iptables", "ca-certificates")
_START_SECONDS = 60.0
_SEEN_SECONDS = 5.0
_STOP_SECONDS = 30.0
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = "cpu cpuacct cpuset memory devices freezer blkio pids".split()
"""What an engine needs. More of them, taken from where they are, break engines that run already."""
_SERVICE_GUARD = Path("/usr/sbin/policy-rc.d")


class EngineError(Exception):
    """No engine can be had here; the message says why."""


def answers(url: str) -> bool:
    """Whether an engine answers at this address."""
    if not url.startswith("unix://"):
        return False
    connection = http.client.HTTPConnection("localhost", timeout=5)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(5)
    try:
        connection.sock.connect(url.removeprefix("unix://"))
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def find_engine(folder: Path = DEFAULT_FOLDER) -> str | None:
    """The address of an engine that answers: the configured one, ours, or the machine's."""
    configured = os.environ.get("DOCKER_HOST")
    candidates = (configured, PrivateEngine(folder).url, *DEFAULT_URLS)
    return next((url for url in candidates if url and answers(url)), None)


class PrivateEngine:
    """An engine with its own folder, socket, images and containers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"unix://{folder}/docker.sock"

    def start(self, *arguments: str) -> None:
        """Start it and wait until it answers; does nothing when it already does."""
        if os.geteuid() != 0:
            raise EngineError("starting a Docker engine needs root; start one yourself")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)  # users of the socket must be able to get there
        with _locked(self._folder / "lock"):
            if answers(self.url):
                return
            install()
            _mount_cgroups()
            complaints = [
                self._try(*arguments, *fallback)
                for fallback in _fallbacks()
                if not answers(self.url)
            ]
        if not answers(self.url):
            raise EngineError("dockerd does not start: " + " | ".join(complaints))

    def stop(self) -> None:
        """Stop it, and wait for its end."""
        self.signal(signal.SIGTERM)
        self.wait_until_ended()

    def remove(self) -> None:
        """Stop it and remove all it has."""
        self.stop()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            mounted_at = line.split()[1]
            if mounted_at.startswith(f"{self._folder}/"):
                subprocess.run(["umount", "-l", mounted_at], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the engine's own process, if it runs."""
        if (process := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def wait_until_ended(self) -> None:
        """Wait until its process is gone."""
        deadline = time.monotonic() + _STOP_SECONDS
        while (process := self.pid) is not None:
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    @property
    def pid(self) -> int | None:
        """The process, when it is really the engine of this folder."""
        try:
            process = int((self._folder / "docker.pid").read_text())
            command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return process if str(self._data).encode() in command else None

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _try(self, *arguments: str) -> str:
        """Start the process once; returns the end of its log when that fails."""
        # Left by an engine that was killed, it would keep the next one from starting.
        (self._folder / "docker.pid").unlink(missing_ok=True)
        log_path = self._folder / "log"
        # It outlives us, so it is no child of ours.
        command = ["setsid", "--fork", "dockerd", "--data-root", str(self._data)]
        command += ["--exec-root", str(self._folder / "exec")]
        command += ["--pidfile", str(self._folder / "docker.pid"), "--host", self.url, *arguments]
        with log_path.open("ab") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
        started_at = time.monotonic()
        has_been_seen = False
        while time.monotonic() < started_at + _START_SECONDS:
            if answers(self.url):
                return ""
            if self.pid is not None:
                has_been_seen = True
            elif has_been_seen or time.monotonic() > started_at + _SEEN_SECONDS:
                break
            time.sleep(0.05)
        self.signal(signal.SIGKILL)
        return " ".join(log_path.read_text(errors="replace").splitlines()[-3:])


def install() -> None:
    """Install the engine from Debian's packages, unless it is there."""
    if shutil.which("dockerd") and shutil.which("iptables"):
        return
    if not shutil.which("apt-get"):
        raise EngineError("there is no dockerd, and only Debian's packages are known here")
    guard_is_ours = not _SERVICE_GUARD.exists()
    if guard_is_ours:  # keeps the package from starting a second engine
        _SERVICE_GUARD.write_text("#!/bin/sh\nexit 101\n")
        _SERVICE_GUARD.chmod(0o755)
    apt = ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=120"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install_packages = [*apt, "install", "--no-install-recommends", *_PACKAGES]
    try:
        subprocess.run([*apt, "update"], env=environment, capture_output=True)
        run = subprocess.run(install_packages, env=environment, capture_output=True, text=True)
        if run.returncode != 0:
            raise EngineError(f"docker.io cannot be installed: {run.stderr.strip()[-300:]}")
    finally:
        if guard_is_ours:
            _SERVICE_GUARD.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fallbacks() -> Iterator[tuple[str, ...]]:
    """What to start with: as it is, without NAT, and without anything the machine may refuse."""
    without_nat = ("--iptables=false", "--ip-masq=false")
    if _has_nat():
        yield ()
    yield without_nat
    yield (*without_nat, "--bridge=none", "--storage-driver=vfs")


def _has_nat() -> bool:
    listing = ["iptables", "-w", "5", "-t", "nat", "-nL"]
    return subprocess.run(listing, capture_output=True).returncode == 0


def _mount_cgroups() -> None:
    """Mount what limits need, where the machine has started without it."""
    mounts = Path("/proc/mounts").read_text()
    if (_CGROUPS / "cgroup.controllers").exists() or " cgroup rw" in mounts and "memory" in mounts:
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "cgroups", str(_CGROUPS)])
    for line in Path("/proc/cgroups").read_text().splitlines()[1:]:
        name, _, _, is_enabled = line.split()
        if is_enabled == "1" and name in _CONTROLLERS:
            folder = _CGROUPS / name
            folder.mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "cgroup", "-o", name, "cgroup", str(folder)])


def run_with_engine(command: list[str]) -> int:
    """Run a command with an engine, if there can be one; stop the engine if it is ours."""
    url, engine = find_engine(), None
    if url is None:
        engine = PrivateEngine(DEFAULT_FOLDER)
        try:
            engine.start()
            url = engine.url
        except EngineError as error:
            sys.stderr.write(f"no Docker engine: {error}\n")
    environment = {**os.environ, **({"DOCKER_HOST": url} if url else {})}
    try:
        with _interrupts_left_to_the_command():
            return subprocess.run(command, env=environment).returncode
    finally:
        if engine is not None:
            engine.stop()


@contextlib.contextmanager
def _interrupts_left_to_the_command() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def main(arguments: list[str]) -> int:
    """Start or stop the engine of tests."""
    match arguments:
        case ["with", *command] if command:
            return run_with_engine(command)
        case ["start"]:
            url = find_engine()
            if url is None:
                engine = PrivateEngine(DEFAULT_FOLDER)
                engine.start()
                url = engine.url
            sys.stdout.write(f"DOCKER_HOST={url}\n")
            return 0
        case ["stop"]:
            PrivateEngine(DEFAULT_FOLDER).stop()
            return 0
        case _:
            sys.stderr.write(__doc__ or "")
            return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except EngineError as failure:
        sys.exit(f"error: {failure}")
