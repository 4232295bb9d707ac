"""A kernel in a child process on this machine.

Its sockets lie in a folder that only its owner can open; its own standard
streams go to a log there. The process is forked from a zygote where that is
possible, and started the ordinary way elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol

import zmq

from taskweaver_ext.ces.execution.results import KernelDeath, signal_name
from taskweaver_ext.ces.inside.sandbox.rules import Rules
from taskweaver_ext.ces.inside.spawner.process_tree import (
    MARK,
    ProcessFamily,
    kill_family,
    wait_status_of,
)
from taskweaver_ext.ces.kernels.client.host import RUNTIME_FOLDER, KernelConnection, KernelSettings
from taskweaver_ext.ces.kernels.client.tracing import reached
from taskweaver_ext.ces.kernels.client.wire import WireConnection, WireListener
from taskweaver_ext.ces.kernels.local.zygote import Zygote, ZygoteError, inherited_state
from taskweaver_ext.ces.programs.orphan_killer import ORPHAN_KILLER
from taskweaver_ext.ces.programs.site import ProgramSite
from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.interpreters import explain_why_unusable
from taskweaver_ext.machine.owned_folders import make_owned_folder

START_SECONDS = 60.0
SHORT_FOLDER = Path("/tmp")
"""Where sockets lie: their paths are limited."""
_DEATH_SECONDS = 1.0
_LIVENESS_MILLISECONDS = 50
_POLL_SECONDS = 0.005
_LAST_WORDS_CHARACTERS = 2000
_CREDENTIALS = struct.Struct("3i")
"""Of the process that has connected to a socket: its number, user and group."""

_LONGEST_PARENT_BYTES = 75
"""Of the folder that sockets lie in: their paths have 107 bytes at most, or 103 on some systems."""


class KernelProcess(Protocol):
    """A kernel's process, however it was started."""

    pid: int

    def has_ended(self, wait_seconds: float) -> bool:
        """Whether it has ended, or does so in time; it is not collected yet."""

    def collect(self) -> int | None:
        """The wait status of a process that has ended; None when it is not known."""

    def may_be_at(self, wire: socket.socket) -> bool:
        """Whether this process can be the one that has connected."""


class LocalKernelHost:
    """A `KernelHost` for this machine."""

    def __init__(
        self,
        settings: KernelSettings,
        python: str,
        context: zmq.Context[zmq.Socket[bytes]],
        zygote: Zygote | None,
        *,
        restriction: Literal["guard"] | Rules | None = None,
    ) -> None:
        """A host whose kernel is not started yet.

        Args:
            restriction: What the kernel gives up before it runs code.
        """
        self._restriction = restriction
        self._settings = settings
        self._python = python
        self._context = context
        self._zygote = zygote
        self._mark = uuid.uuid4().hex
        self._folder = _make_private_folder()
        ORPHAN_KILLER.watch(ProcessFamily(0, self._mark))
        self._process: KernelProcess | None = None
        self._family: ProcessFamily | None = None
        self._death: KernelDeath | None = None

    @property
    def pid(self) -> int | None:
        """The kernel's process id, once it has one."""
        return self._process.pid if self._process else None

    @property
    def folder(self) -> Path:
        """The private folder with its sockets; removed by `stop`."""
        return self._folder

    @property
    def programs(self) -> ProgramSite | None:
        """They run on this machine, as the kernel does."""
        return None

    @property
    def is_over(self) -> bool:
        """Whether the kernel has been seen to have ended."""
        return self._death is not None

    def start(self) -> KernelConnection:
        """Start the process and wait for its hello."""
        key = uuid.uuid4().hex
        self._write_connection_file(key)
        listener = WireListener(self._folder / "wire")
        try:
            self._process = self._start_process(key)
            self._family = ProcessFamily(self._process.pid, self._mark)
            self._family.tag()
            ORPHAN_KILLER.watch(self._family)
            reached(f"process {self._process.pid} started")
            wire = self._accept(listener, self._process)
            reached("connected")
        finally:
            listener.close()
        # Whatever happens, Ctrl-C too: open sockets would keep their context from ending.
        with contextlib.ExitStack() as opened:
            opened.callback(wire.close)
            death_descriptor = _death_descriptor(self._process)
            if death_descriptor is not None:
                opened.callback(os.close, death_descriptor)
            connection = self._connect(key, wire, death_descriptor)
            opened.pop_all()
            opened.callback(connection.close)
            try:
                connection.wait_until_ready(START_SECONDS)
            except (TimeoutError, ConnectionError) as error:
                raise self._start_error(str(error)) from error
            opened.pop_all()
        reached("ready")
        return connection

    def _connect(
        self, key: str, wire: socket.socket, death_descriptor: int | None
    ) -> WireConnection:
        return WireConnection(
            context=self._context,
            address=self._channel_address,
            key=key,
            wire=wire,
            death_descriptor=death_descriptor,
        )

    @property
    def _channel_address(self) -> str:
        return str(self._folder / "channel")

    @property
    def _connection_file(self) -> Path:
        return self._folder / "connection.json"

    def death(self, wait_seconds: float = _DEATH_SECONDS) -> KernelDeath | None:
        """How the process ended; waits a moment for its status."""
        if self._death is None and self._process is not None:
            if not self._process.has_ended(wait_seconds):
                return None
            # What it started goes with it; now, because a number that was given back to the
            # system may be another process's.
            self._kill_family()
            ORPHAN_KILLER.forget(self._mark)
            self._death = _death_of(self._process.collect())
        return self._death

    def interrupt(self) -> None:
        """SIGINT to the kernel and its children, which are its process group."""
        if self._process is not None and self._death is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the process and everything it started."""
        if self._death is None:
            self._kill_family()

    def _kill_family(self) -> None:
        if self._family is not None:
            kill_family(self._family)

    def stop(self) -> None:
        """Kill what is left and remove the folder."""
        self.kill()
        self.death()
        ORPHAN_KILLER.forget(self._mark)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_connection_file(self, key: str) -> None:
        connection = {
            "transport": "ipc",
            "ip": self._channel_address,
            "shell_port": 1,
            "iopub_port": 2,
            "stdin_port": 3,
            "control_port": 4,
            "hb_port": 5,
            "signature_scheme": "hmac-sha256",
            "key": key,
        }
        path = self._connection_file
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(connection, file)

    def _start_process(self, key: str) -> KernelProcess:
        settings = {
            "connection_file": str(self._connection_file),
            "socket_path": str(self._folder / "wire"),
            "key": key,
            **self._settings.for_runtime(),
        }
        if self._restriction == "guard":
            settings["restriction"] = "guard"
        elif self._restriction is not None:
            settings["restriction"] = asdict(self._restriction)
        environment = {**self._settings.environment, MARK: self._mark}
        try:
            if self._zygote is not None:
                with contextlib.suppress(ZygoteError):
                    return _ForkedProcess(
                        self._zygote, settings, environment, self._settings.cwd, self._log_path
                    )
            return _OrdinaryProcess(
                self._python, settings, environment, self._settings.cwd, self._log_path
            )
        except OSError as error:
            raise self._start_error() from error

    @property
    def _log_path(self) -> Path:
        return self._folder / "kernel.log"

    def _accept(self, listener: WireListener, process: KernelProcess) -> socket.socket:
        """Accept our kernel; any other, such as one whose start was given up, is turned away."""
        while True:
            self._wait_for_connection(listener)
            wire = listener.accept()
            if process.may_be_at(wire):
                return wire
            wire.close()

    def _wait_for_connection(self, listener: WireListener) -> None:
        """Wait until the kernel connects; notice when it ends instead."""
        poller = select.poll()
        poller.register(listener.fileno(), select.POLLIN)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if poller.poll(_LIVENESS_MILLISECONDS):
                return
            if self.death(wait_seconds=0.0) is not None:
                break
        raise self._start_error()

    def _start_error(self, said: str = "") -> KernelStartError:
        """Why the kernel did not start, with what to do about it and its last words."""
        error = explain_why_unusable(self._python, self._settings.environment)
        if error is not None:
            return error
        with contextlib.suppress(OSError):
            said = self._log_path.read_text(errors="replace") + said
        said = said.strip()[-_LAST_WORDS_CHARACTERS:]
        death = self.death()
        how = death.detail if death else f"it was not ready after {START_SECONDS:g} s"
        return KernelStartError(
            f"The kernel of session {self._settings.session_id!r} did not start: {how}."
            + (f" Its last words:\n{said}" if said else "")
        )


class _ForkedProcess:
    """A kernel forked from a zygote, which alone can collect it."""

    def __init__(
        self,
        zygote: Zygote,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
        cwd: Path,
        log_path: Path,
    ) -> None:
        self._zygote = zygote
        self.pid = zygote.fork(
            {
                "settings": settings,
                "environment": environment,
                "cwd": str(cwd),
                "log_path": str(log_path),
                "inherited": inherited_state(),
            }
        )
        try:
            self._descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._descriptor = -1

    def has_ended(self, wait_seconds: float) -> bool:
        if self._descriptor < 0:
            return True
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        return bool(poller.poll(wait_seconds * 1000))

    def collect(self) -> int | None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        seen = wait_status_of(self.pid)  # while it waits to be collected
        status = self._zygote.wait(self.pid)
        return seen if status is None else status

    def may_be_at(self, wire: socket.socket) -> bool:
        credentials = wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid: int = _CREDENTIALS.unpack(credentials)[0]
        return pid == self.pid


class _OrdinaryProcess:
    """A kernel started as any program is."""

    def __init__(
        self,
        python: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
        cwd: Path,
        log_path: Path,
    ) -> None:
        settings_path = log_path.with_name("settings.json")
        with open(os.open(settings_path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump(settings, file)
        with open(os.open(log_path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as log:
            self._process = subprocess.Popen(
                [python, str(RUNTIME_FOLDER / "cold_start.py"), str(settings_path)],
                env=dict(environment),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def has_ended(self, wait_seconds: float) -> bool:
        deadline = time.monotonic() + wait_seconds
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.pid, flags) is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def collect(self) -> int | None:
        code = self._process.wait()
        return -code if code < 0 else code << 8

    def may_be_at(self, wire: socket.socket) -> bool:
        return True  # an interpreter may be a program that starts the interpreter


def _death_descriptor(process: KernelProcess) -> int | None:
    """A descriptor that becomes readable when the process ends."""
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return None


def _make_private_folder() -> Path:
    try:
        return make_owned_folder(parent=SHORT_FOLDER)
    except OSError as error:
        temporary = tempfile.gettempdir()
        if len(os.fsencode(temporary)) <= _LONGEST_PARENT_BYTES:
            with contextlib.suppress(OSError):
                return make_owned_folder(parent=Path(temporary))
        raise KernelStartError(
            f"No folder for the kernel's sockets can be made in {SHORT_FOLDER}: {error}."
            " Make room there, change its permissions, or set TMPDIR to a folder with a path of"
            f" at most {_LONGEST_PARENT_BYTES} bytes."
        ) from error


def _death_of(status: int | None) -> KernelDeath:
    if status is None:
        return KernelDeath(cause="unknown", detail="ended; how is not known")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        detail = f"killed by {signal_name(number)}"
        return KernelDeath(cause="signal", signal=number, detail=detail)
    code = os.waitstatus_to_exitcode(status)
    return KernelDeath(cause="exited", exit_code=code, detail=f"exited with code {code}")
