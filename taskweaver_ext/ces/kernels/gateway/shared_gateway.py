"""One gateway on this machine for all processes of a user.

The first process that needs it starts it, under a lock; the others find it by a file
in a private folder. Whether it lives is told by a lock that only it holds, so
that a file left behind by a killed gateway is never believed. Which process
it is stands in the file that is locked, from its first moment on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import httpx

from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings
from taskweaver_ext.ces.kernels.gateway.bounded_http import AnswerError, BoundedHttp
from taskweaver_ext.config.folders import home_folder
from taskweaver_ext.errors import ConfigError, KernelStartError
from taskweaver_ext.machine.child_environment import child_environment

IDLE_SECONDS = 900.0
"""How long the gateway stays without kernels."""

_ATTEMPTS = 3
_START_SECONDS = 60.0
_LOCK_SECONDS = 2 * _START_SECONDS
_HEALTH_SECONDS = 5.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05
_SCRIPT = Path(__file__).with_name("process.py")
_ALIVE_FILE = "alive"
_METADATA_FILE = "gateway.json"
_LOG_FILE = "gateway.log"
_LOCK_FILE = "lock"
_LAST_WORDS_CHARACTERS = 1000
_NEEDED_DESCRIPTORS = 64
"""A kernel takes 22 of the gateway's while it starts; with 36 left there was no websocket to it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that runs, as it describes itself."""

    pid: int
    url: str
    token: str = field(repr=False)
    started_at: float

    def is_healthy(self) -> bool:
        """Whether it answers, and to its token."""
        headers = {"Authorization": f"token {self.token}"}
        http = BoundedHttp(self.url, headers, None, trust_env=False)
        try:
            return http.request("GET", "/api/kernelspecs", _HEALTH_SECONDS).is_success
        except (httpx.HTTPError, AnswerError):
            return False
        finally:
            http.close()

    def lack(self) -> str:
        """What it has run out of, in words; empty when it can start more kernels."""
        try:
            used = len(os.listdir(f"/proc/{self.pid}/fd"))
            limits = Path(f"/proc/{self.pid}/limits").read_text()
        except OSError:  # it has ended, or this system does not tell
            return ""
        found = _DESCRIPTOR_LIMIT.search(limits)
        if found is None or int(found[1]) - used >= _NEEDED_DESCRIPTORS:
            return ""
        return f"it has {used:,} files and sockets open and may have {int(found[1]):,}"


_DESCRIPTOR_LIMIT = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)


def default_folder() -> Path:
    """Where this user's gateway on this machine leaves its files; homes may be shared."""
    return home_folder() / "gateway" / socket.gethostname()


class SharedGateway:
    """The door to the shared gateway; any number of processes and threads may use it."""

    def __init__(
        self,
        folder: Path | None = None,
        idle_seconds: float = IDLE_SECONDS,
        lock_seconds: float = _LOCK_SECONDS,
    ) -> None:
        self._folder = folder or default_folder()
        self._idle_seconds = idle_seconds
        self._lock_seconds = lock_seconds

    def connect(self) -> GatewaySettings:
        """Find the gateway or start it; raises KernelStartError, or ConfigError without one."""
        with self._naming_its_folder():
            self._prepare_folder()
            running = self.status()
            if running is None or running.lack() or not running.is_healthy():
                with self._lock():
                    running = self._recover()
        return GatewaySettings(url=running.url, token=running.token)

    def status(self) -> RunningGateway | None:
        """The gateway that runs, if one does and has said so."""
        if not self._is_alive():
            return None
        try:
            with open(self._folder / _METADATA_FILE) as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():
                    return None  # another user may write anything there
                described = json.load(file)
            return RunningGateway(
                int(described["pid"]),
                str(described["url"]),
                str(described["token"]),
                float(described["started_at"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it is just starting, or ending

    def stop(self) -> bool:
        """End the gateway and its kernels; False when there was none."""
        if not self._folder.is_dir():
            return False
        with self._naming_its_folder(), self._lock():
            return self._end()

    @contextlib.contextmanager
    def _naming_its_folder(self) -> Iterator[None]:
        """Tell what is wrong with a file together with what to do about it."""
        try:
            yield
        except OSError as error:
            raise KernelStartError(
                f"The folder {self._folder} of the shared gateway cannot be used: {error}."
                " Remove it, or make it yours."
            ) from error

    def _prepare_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise PermissionError("it belongs to another user")
        self._folder.chmod(0o700)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Only one process starts or ends the gateway at a time; raises KernelStartError."""
        path = self._folder / _LOCK_FILE
        deadline = time.monotonic() + self._lock_seconds
        with open(path, "w") as file:
            while not _has_locked(file):
                if time.monotonic() > deadline:
                    raise KernelStartError(
                        "Another process has been starting or ending the shared gateway for"
                        f" {self._lock_seconds:g} s. If it hangs, end it: it holds {path}"
                        f" (`fuser {path}` names it)."
                    )
                threading.Event().wait(_POLL_SECONDS)
            yield

    def _is_alive(self) -> bool:
        """Whether a gateway holds its lock, which the system takes from it when it dies."""
        try:
            with open(self._folder / _ALIVE_FILE) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _recover(self) -> RunningGateway:
        """With the lock: use what others have started meanwhile, or replace what is broken."""
        for _ in range(_ATTEMPTS):
            running = self._wait_for_metadata(None) if self._is_alive() else self._start()
            lack = "" if running is None else running.lack()
            if running is not None and not lack and running.is_healthy():
                return running
            if lack:
                _log.warning(
                    "The shared gateway (process %d) cannot start more kernels: %s. It is"
                    " started again; the variables of its kernels are lost.",
                    running.pid if running else 0,
                    lack,
                )
            self._end()
        raise KernelStartError(
            f"The shared gateway was started {_ATTEMPTS} times, and each time it was killed, did"
            " not answer or had too few descriptors (ulimit -n); its log is"
            f" {self._folder / _LOG_FILE}: {self._last_words()}"
        )

    def _start(self) -> RunningGateway | None:
        """Start a gateway; None when it was killed before it was ready."""
        if find_spec("kernel_gateway") is None:
            raise ConfigError(
                "There is no gateway to use: set TASKWEAVER_GATEWAY_URL, or install one for this"
                " machine with: pip install jupyter_kernel_gateway"
            )
        self._forget_the_last()
        files = [str(self._folder / name) for name in (_ALIVE_FILE, _METADATA_FILE)]
        with open(self._folder / _LOG_FILE, "w") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT), *files, str(self._idle_seconds)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=child_environment(),
                start_new_session=True,
            )
        # It outlives us, and is reaped if it does not.
        threading.Thread(target=process.wait, name="taskweaver-gateway", daemon=True).start()
        running = self._wait_for_metadata(process)
        if running is not None and running.pid != process.pid:
            process.kill()  # another was faster: this one must not wait for its end
        if running is None and (process.returncode is None or process.returncode >= 0):
            process.kill()
            raise KernelStartError(
                f"The shared gateway did not start; its log is {self._folder / _LOG_FILE}:"
                f" {self._last_words()}"
            )
        return running

    def _forget_the_last(self) -> None:
        """Remove what a dead gateway has left: it must not pass for the next one's."""
        with open(self._folder / _ALIVE_FILE, "a") as file:
            # One that starts just now, its starter having been killed, has left nothing.
            if _has_locked(file):
                file.truncate(0)
                (self._folder / _METADATA_FILE).unlink(missing_ok=True)

    def _wait_for_metadata(self, process: subprocess.Popen[bytes] | None) -> RunningGateway | None:
        """Wait until the gateway has said where it is; None when it has ended instead."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if (running := self.status()) is not None:
                return running
            if process is None and not self._is_alive():
                return None
            if process is not None and process.poll() is not None:
                return self._wait_for_metadata(None)  # another one was faster
            threading.Event().wait(_POLL_SECONDS)
        return None

    def _end(self) -> bool:
        """End the gateway, whatever it does; False when there is none."""
        if not self._is_alive():
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _STOP_SECONDS
            is_told = False
            while self._is_alive() and time.monotonic() < deadline:
                if not is_told and (pid := self._pid()) is not None:
                    is_told = True
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                threading.Event().wait(_POLL_SECONDS)
        return True

    def _pid(self) -> int | None:
        """Which process the gateway is that holds its lock, once it has said so."""
        try:
            return int((self._folder / _ALIVE_FILE).read_text())
        except (OSError, ValueError):
            return None

    def _last_words(self) -> str:
        text = (self._folder / _LOG_FILE).read_text(errors="replace")
        return text[-_LAST_WORDS_CHARACTERS:].strip()


def _has_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
