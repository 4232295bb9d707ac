"""The process that forks warm kernels, from the client's side.

One zygote serves one interpreter with one start-time environment. It is
started in the background as soon as it may be needed, lives as long as its
owner, and is started again when it died.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.inside.spawner.process_tree import MARK, ProcessFamily
from taskweaver_ext.ces.inside.spawner.started_process import new_mark
from taskweaver_ext.ces.kernels.client.host import RUNTIME_FOLDER
from taskweaver_ext.ces.programs.orphan_killer import ORPHAN_KILLER
from taskweaver_ext.machine.forks import closed_in_forks

_READY_SECONDS = 60.0
_FORK_SECONDS = 5.0
_WAIT_SECONDS = 0.5
"""How long `wait` may take to say how a kernel ended."""
_END_SECONDS = 2.0
_LENGTH = struct.Struct("!I")
_START_TIME_PREFIXES = (
    *("PYTHON", "LANG", "LC_", "LD_", "DYLD_", "MALLOC_", "GLIBC_"),
    *("OMP_", "OPENBLAS_", "MKL_", "KMP_", "BLIS_", "VECLIB_", "NUMEXPR_", "NUMBA_", "MPL"),
    *("HOME", "XDG_", "TMP", "TEMP"),
)
"""What interpreters, libraries and preloaded modules read once."""
_INHERITED_LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")

_log = logging.getLogger(__name__)


def start_time_environment(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The part of an environment that acts when an interpreter starts, not later."""
    return frozenset(
        (name, value)
        for name, value in environment.items()
        if name.startswith(_START_TIME_PREFIXES)
    )


def inherited_state() -> dict[str, Any]:
    """What a process that we start now would have of us, and a zygote only of us at its start."""
    status = Path("/proc/thread-self/status").read_text()
    umask = re.search(r"^Umask:\s*([0-7]+)", status, re.MULTILINE)
    names = [f"RLIMIT_{name}" for name in _INHERITED_LIMITS]
    return {
        "umask": int(umask[1], 8) if umask else 0o022,
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in names},
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }


class ZygoteError(Exception):
    """The zygote cannot serve; a kernel can still be started the ordinary way."""


class Zygote:
    """Fork kernels on demand.

    Threads:
        `_lock` guards the process and the conversation with it, one request
        and its reply at a time.
    """

    def __init__(
        self, python: str, environment: Mapping[str, str], preloads: Sequence[str] = ()
    ) -> None:
        self._command = [python, str(RUNTIME_FOLDER / "zygote_main.py")]
        self._environment = dict(environment)
        self._preloads = list(preloads)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = ""
        self._socket: socket.socket | None = None
        self._is_ready = False
        self._refusal = ""
        """Why it may not fork, if it may not: kernels are then started the ordinary way."""

    def start(self) -> None:
        """Start the process without waiting for it; it imports while we do other things."""
        with self._lock, contextlib.suppress(OSError):  # `fork` tries again, and says why
            self._ensure_started()

    def fork(self, request: Mapping[str, Any]) -> int:
        """Fork a kernel and return its process id; a zygote that died is started again, once."""
        with self._lock:
            if self._refusal:
                raise ZygoteError(self._refusal)
            try:
                return int(self._ask(request, _FORK_SECONDS)["pid"])
            except OSError as error:
                _log.warning("the zygote does not answer (%s); starting another", error)
            try:
                return int(self._ask(request, _FORK_SECONDS)["pid"])
            except OSError as error:
                raise ZygoteError(str(error)) from error

    def wait(self, kernel: int) -> int | None:
        """The wait status of a kernel that has ended; None when it is not known, or not soon."""
        if not self._lock.acquire(timeout=_WAIT_SECONDS):
            return None
        try:
            if not self._is_ready:  # so it is not this one that has forked it
                return None
            status: int | None = self._ask({"wait": kernel}, _WAIT_SECONDS)["status"]
            return status
        except OSError:
            return None
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process; it kills the kernels that are left."""
        with self._lock:
            if self._socket is not None and self._process is not None and self._is_ready:
                self._socket.close()
                _wait_for_end(self._process.pid, _END_SECONDS)
            self._give_up()

    def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self._ensure_started()
        assert self._socket is not None
        data = json.dumps(request).encode()
        try:
            if not self._is_ready:
                self._socket.settimeout(_READY_SECONDS)
                self._look_at(self._read())
                self._is_ready = True
            self._socket.settimeout(seconds)
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
            return self._read()
        except BaseException:
            self._give_up()  # an answer that came later would pass for the next one's
            raise

    def _look_at(self, report: Mapping[str, Any]) -> None:
        """What a zygote that is ready has to say; raises ZygoteError when it may not fork."""
        for problem in report["problems"]:
            _log.warning("a module that was to be preloaded is not: %s", problem)
        if report["threads"] > 1:
            self._refusal = "a preloaded module started a thread, which a fork does not copy"
            _log.warning("kernels are started cold: %s", self._refusal)
            raise ZygoteError(self._refusal)

    def _read(self) -> dict[str, Any]:
        size = _LENGTH.unpack(self._read_exactly(_LENGTH.size))[0]
        reply: dict[str, Any] = json.loads(self._read_exactly(size))
        return reply

    def _read_exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("it has ended")
            data += piece
        return data

    def _ensure_started(self) -> None:
        if self._process is not None or self._refusal:
            return
        ours, theirs = socket.socketpair()
        mark = new_mark()  # also what it forks is known by it
        ORPHAN_KILLER.watch(ProcessFamily(0, mark))
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*self._command, str(theirs.fileno()), *self._preloads],
                    env={**self._environment, MARK: mark},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                ORPHAN_KILLER.forget(mark)
                raise
        self._mark = mark
        ORPHAN_KILLER.watch(ProcessFamily(self._process.pid, mark))
        self._socket = closed_in_forks(ours)

    def _give_up(self) -> None:
        """Kill the process before its pipe is closed: its kernels live on, for they are in use."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            ORPHAN_KILLER.forget(self._mark)
            self._process.wait()
            self._process = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._is_ready = False


def _wait_for_end(pid: int, seconds: float) -> None:
    """Wait for a process to end, without asking again and again."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(seconds * 1000)
    finally:
        os.close(descriptor)


class Zygotes:
    """The zygotes of one environment, by interpreter and start-time environment."""

    def __init__(self, preloads: Sequence[str] = ()) -> None:
        self._preloads = list(preloads)
        self._zygotes: dict[tuple[str, frozenset[tuple[str, str]]], Zygote] = {}
        self._lock = threading.Lock()

    def get(self, python: str, environment: Mapping[str, str]) -> Zygote:
        """The zygote for kernels of this kind; it starts now if it is new."""
        key = (python, start_time_environment(environment))
        with self._lock:
            if key not in self._zygotes:
                self._zygotes[key] = Zygote(python, environment, self._preloads)
            zygote = self._zygotes[key]
        zygote.start()
        return zygote

    def close(self) -> None:
        """End them all."""
        with self._lock:
            zygotes, self._zygotes = list(self._zygotes.values()), {}
        for zygote in zygotes:
            zygote.close()


def can_fork() -> bool:
    """Whether this system can serve warm kernels."""
    return hasattr(os, "fork") and hasattr(os, "pidfd_open")
