"""A kernel on this machine that has given up all but its own folder."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace

import zmq

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.kernels.client.host import ExecutionReply, KernelConnection, KernelSettings
from taskweaver_ext.ces.kernels.client.notifying_connection import NotifyingConnection
from taskweaver_ext.ces.kernels.local.host import KernelProcess, LocalKernelHost
from taskweaver_ext.ces.kernels.local.zygote import Zygote
from taskweaver_ext.ces.kernels.sandbox.program_site import SandboxedSite
from taskweaver_ext.ces.kernels.sandbox.running_sandbox import RunningSandbox
from taskweaver_ext.ces.sandbox.sandbox import variables_for
from taskweaver_ext.errors import KernelStartError

_HEED_SECONDS = 2.0
"""How long code that was told to stop may take before it is killed."""


class SandboxedKernelHost(LocalKernelHost):
    """A `KernelHost` whose kernel and programs run in one sandbox.

    Threads:
        As its base. `_handle_too_much` is called on threads of the sandbox; `_lock` guards
        what it touches.
    """

    def __init__(
        self,
        settings: KernelSettings,
        python: str,
        context: zmq.Context[zmq.Socket[bytes]],
        zygote: Zygote | None,
        sandbox: RunningSandbox,
        *,
        remarks: tuple[str, ...] = (),
    ) -> None:
        """A host whose kernel is not started yet; it uses the sandbox until `stop`.

        Args:
            remarks: What the first code that runs is told.
        """
        environment = {**settings.environment, **variables_for(sandbox.rules)}
        settings = replace(settings, environment=environment, memory_limit_bytes=None)
        super().__init__(settings, python, context, zygote)
        self._restriction = sandbox.rules_for_kernel(self._connection_file)
        self._sandbox = sandbox
        self._remarks = remarks
        self._site = SandboxedSite(sandbox, settings.cwd, environment)
        self._lock = threading.Lock()
        self._connection: NotifyingConnection | None = None
        self._joining: threading.Thread | None = None
        self._join_failure: OSError | None = None
        self._told_at: float | None = None
        self._kill_reason = ""
        self._met = sandbox.count_met()
        self._met_at_start = dict(self._met)
        self._is_stopped = False

    @property
    def programs(self) -> SandboxedSite:
        """In the same sandbox."""
        return self._site

    def start(self) -> KernelConnection:
        """Start the kernel, limited before it runs code."""
        try:
            connection = super().start()
        finally:
            if self._joining is not None:
                self._joining.join()
        if self._join_failure is not None and not self.is_over:
            connection.close()
            raise KernelStartError(
                f"The kernel could not be limited: {self._join_failure}. Try again."
            ) from self._join_failure
        return connection

    def _start_process(self, key: str) -> KernelProcess:
        process = super()._start_process(key)
        # It takes as long as half of the kernel's start, and waits most of that time.
        self._joining = threading.Thread(
            target=self._join, args=(process.pid,), name="taskweaver-sandbox-join", daemon=True
        )
        self._joining.start()
        return process

    def _join(self, pid: int) -> None:
        try:
            self._sandbox.join(pid)
        except OSError as error:
            self._join_failure = error
        else:
            self._sandbox.listen(self._handle_too_much)

    def death(self, wait_seconds: float = 1.0) -> KernelDeath | None:
        """How the process ended, and whether that was because of a limit."""
        death = super().death(wait_seconds)
        if death is None or death.signal is None:
            return death
        with self._lock:
            reason = self._kill_reason
        if reason:
            return replace(death, detail=f"killed, because {reason}")
        if self._sandbox.count_met()["memory"] > self._met_at_start["memory"]:
            detail = "killed, because the sandbox was out of memory"
            return replace(death, cause="out_of_memory", detail=detail)
        return death

    def stop(self) -> None:
        """End the kernel; the sandbox ends with the last that uses it."""
        super().stop()
        self._sandbox.forget(self._handle_too_much)
        with self._lock:
            is_stopped, self._is_stopped = self._is_stopped, True
        if not is_stopped:
            self._sandbox.leave()

    def _connect(
        self, key: str, wire: socket.socket, death_descriptor: int | None
    ) -> NotifyingConnection:
        self._connection = connection = NotifyingConnection(
            context=self._context,
            address=self._channel_address,
            key=key,
            wire=wire,
            death_descriptor=death_descriptor,
            limits_met=self._limits_met,
        )
        for remark in self._remarks:
            connection.notify(HostNotice("limit", remark))
        return connection

    def _limits_met(self, _reply: ExecutionReply | None) -> list[str]:
        return self._sandbox.describe_met(self._met)

    def _handle_too_much(self, message: str) -> None:
        """Have the code stopped; what goes on regardless is killed."""
        now = time.monotonic()
        with self._lock:
            told_at = self._told_at
            if told_at is None or now - told_at > 10 * _HEED_SECONDS:
                self._told_at = now
            elif now - told_at < _HEED_SECONDS:
                return  # it may not have heard of it yet
            else:
                self._kill_reason = message
            is_killed, connection = bool(self._kill_reason), self._connection
        if is_killed:
            self.kill()
        elif connection is not None and connection.is_running:
            connection.notify(HostNotice("limit", f"The code was stopped: {message}."))
            self.interrupt()
