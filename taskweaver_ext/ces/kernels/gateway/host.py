"""A kernel behind a Jupyter gateway: Kernel Gateway, Jupyter Server or Enterprise Gateway.

The gateway starts a kernel of its own; our runtime is sent in as the first
request, so that output, logs, input and displays are the same as elsewhere.
Nothing is assumed about a disk that both sides see.
"""

from __future__ import annotations

import atexit
import logging
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from taskweaver_ext.ces.execution.results import KernelDeath, signal_name
from taskweaver_ext.ces.inside.kernel.pid_namespace import pid_namespace
from taskweaver_ext.ces.kernels.client.host import (
    RUNTIME_FOLDER,
    KernelConnection,
    KernelGone,
    KernelSettings,
    MessageReceived,
    StartedKernel,
    start_kernel,
)
from taskweaver_ext.ces.kernels.client.tracing import reached
from taskweaver_ext.ces.kernels.gateway.api import GatewayApi, GatewaySettings
from taskweaver_ext.ces.kernels.gateway.bounded_http import AnswerError
from taskweaver_ext.ces.kernels.gateway.channel import ChannelRefusedError, GatewayChannel
from taskweaver_ext.ces.kernels.gateway.connection import GatewayConnection
from taskweaver_ext.ces.kernels.gateway.messages import GatewayMessages
from taskweaver_ext.errors import KernelNotReadyError, KernelStartError, ProtocolError
from taskweaver_ext.machine.forks import not_in_forks

_NAME_IN_KERNELS = "taskweaver_inside"
_HELLO_SECONDS = 0.5
_END_SECONDS = 15.0
_ATTEMPTS = 2

_log = logging.getLogger(__name__)


def start_behind_gateway(settings: KernelSettings, gateway: GatewaySettings) -> StartedKernel:
    """Start a kernel; one that fails is replaced once.

    A gateway chooses ports that another process may take before the kernel
    does, and it may be too busy for a moment.
    """
    deadline = time.monotonic() + gateway.start_seconds
    try:
        return start_kernel(GatewayKernelHost(settings, gateway, deadline))
    except KernelNotReadyError as error:
        _log.warning("%s Starting another.", error)
        return start_kernel(GatewayKernelHost(settings, gateway, deadline))


class GatewayKernelHost:
    """A `KernelHost` for a kernel behind a gateway."""

    def __init__(
        self, settings: KernelSettings, gateway: GatewaySettings, start_deadline: float
    ) -> None:
        self._start_deadline = start_deadline
        self._settings = settings
        self._gateway = gateway
        self._api = GatewayApi(gateway)
        self._lock = threading.Lock()
        self._kernel_id = ""
        self._connection: GatewayConnection | None = None
        self._ending: threading.Thread | None = None
        self._end_at_exit = not_in_forks(self._end)
        self._was_killed = False
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The kernel's process, where it is one of this machine."""
        return self._pid

    @property
    def folder(self) -> None:
        """No disk is shared."""

    @property
    def programs(self) -> None:
        """A gateway has kernels only."""

    @property
    def is_over(self) -> bool:
        """Whether the connection to the kernel counts it as dead."""
        return self._connection is not None and bool(self._connection.loss)

    def start(self) -> KernelConnection:
        """Start a kernel, connect to it and send our runtime."""
        self._api.check(self._start_deadline - time.monotonic())
        reached("the gateway has answered")
        self._kernel_id = self._api.start_kernel(self._start_deadline - time.monotonic())
        atexit.register(self._end_at_exit)  # nothing there notices when this program ends
        reached("the gateway has started a kernel")
        connection = GatewayConnection(
            self._open_channel,
            request_end=self._end_in_background,
            is_known=lambda: self._api.knows_kernel(self._kernel_id),
            reconnect_seconds=self._gateway.reconnect_seconds,
        )
        self._connection = connection
        try:
            self._make_it_ours(connection)
        except ProtocolError as error:
            connection.close()
            raise KernelStartError(
                f"The kernel behind {self._api.url} cannot be used: {error} Check what answers at"
                " that address (TASKWEAVER_GATEWAY_URL)."
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def death(self, wait_seconds: float = 1.0) -> KernelDeath | None:
        """Why the kernel counts as dead; only the kernel itself can have said how it would end."""
        if self._connection is None or not self.is_over:
            return None
        ending, detail = self._connection.ending, self._connection.loss
        if "exit_code" in ending:
            code = ending["exit_code"]
            detail = f"exited with code {code}: {detail}"
            return KernelDeath(cause="exited", exit_code=code, detail=detail)
        number = ending.get("signal")
        if number is not None and number in signal.valid_signals():
            detail = f"killed by {signal_name(number)}: {detail}"
            return KernelDeath(cause="signal", signal=number, detail=detail)
        return KernelDeath(cause="unknown", detail=detail)

    def interrupt(self) -> None:
        """Have the kernel interrupt itself and its children.

        By a message of ours and not by the gateway, which would take its time, and could not
        tell whether what it interrupts is still what was meant.
        """
        if self._connection is not None:
            self._connection.interrupt()

    def kill(self) -> None:
        """End the kernel by a message to itself, then by the gateway."""
        self._was_killed = True
        if self._connection is not None:
            self._connection.end_kernel()
        self._end_in_background()

    def stop(self) -> None:
        """End the kernel and wait until the gateway says that it has ended."""
        atexit.unregister(self._end_at_exit)
        if self._kernel_id:
            self._end_in_background()
        with self._lock:
            ending = self._ending
        if ending is not None:
            ending.join(_END_SECONDS)
        self._api.close()

    def _end_in_background(self) -> None:
        """Have the kernel deleted, once, without waiting for it."""
        with self._lock:
            if self._ending is not None:
                return
            self._ending = threading.Thread(
                target=self._end, name="taskweaver-gateway-end", daemon=True
            )
        self._ending.start()

    def _end(self) -> None:
        try:
            self._api.delete_kernel(self._kernel_id, _END_SECONDS)
        except (httpx.HTTPError, AnswerError) as error:
            has_ended_too = isinstance(error, httpx.ConnectError)
            is_expected = has_ended_too and self._api.address.is_on_this_machine
            _log.log(
                logging.DEBUG if is_expected else logging.WARNING,
                "kernel %s may still run: the gateway at %s did not end it (%s)",
                self._kernel_id,
                self._api.url,
                error,
            )
        if self._connection is not None:
            self._connection.mark_gone("killed" if self._was_killed else "shut down")

    def _open_channel(self, messages: GatewayMessages, seconds: float) -> GatewayChannel:
        return GatewayChannel(self._api, self._kernel_id, messages, seconds)

    def _make_it_ours(self, connection: GatewayConnection) -> None:
        seconds = self._gateway.start_seconds / _ATTEMPTS
        deadline = time.monotonic() + seconds
        try:
            connection.open(seconds)
        except ChannelRefusedError as error:
            if error.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                raise KernelStartError(self._api.refusal(error.status)) from error
            raise KernelNotReadyError(
                f"The kernel behind {self._api.url} was gone before it was ready ({error})."
                " Look at the gateway's log: does its kernelspec"
                f" {self._gateway.kernel_name!r} start?"
            ) from error
        except ConnectionError as error:
            raise KernelNotReadyError(
                f"The gateway at {self._api.url} started a kernel, but there is no line to it:"
                f" {error}. Look at the gateway's log; if a proxy is in between, it must let"
                " websockets through."
            ) from error
        reached("the connection to it is open")
        # Variables may be secrets: they are data beside the code, never in it.
        metadata = {"taskweaver": self._bootstrap_settings()}
        connection.run(_bootstrap_code(), metadata=metadata)
        while not self._has_said_hello(connection):
            if time.monotonic() > deadline:
                raise KernelNotReadyError(
                    f"The kernel behind {self._api.url} was not ready after {seconds:g} s."
                    " Look at the gateway's log."
                )
        reached("our runtime has taken over")

    def _has_said_hello(self, connection: GatewayConnection) -> bool:
        has_said_hello = False
        for received in connection.receive(_HELLO_SECONDS):
            if isinstance(received, MessageReceived) and received.message_type == "hello":
                has_said_hello = True
                self._pid = _pid_on_this_machine(received.content)
            if isinstance(received, KernelGone):
                raise KernelNotReadyError(
                    f"The kernel behind {self._api.url} was gone before it was ready:"
                    f" {connection.loss}. Look at the gateway's log: does its kernelspec"
                    f" {self._gateway.kernel_name!r} start?"
                )
        reply = connection.run_reply
        if reply is not None and reply.status == "error":
            raise KernelStartError(
                f"The kernel {self._gateway.kernel_name!r} of the gateway at"
                f" {self._api.url} cannot be used ({reply.error}). It must be a Python kernel with"
                " ipykernel 6.29 or newer."
            )
        return has_said_hello

    def _bootstrap_settings(self) -> dict[str, Any]:
        return {
            "key": "",
            "cwd": str(self._settings.cwd),
            "environment": dict(self._settings.environment),
            **self._settings.for_runtime(),
        }


def _pid_on_this_machine(hello: dict[str, Any]) -> int | None:
    """The kernel's process, if its word is that this machine has it."""
    pid, namespace = hello.get("pid"), hello.get("pid_namespace")
    is_here = namespace != "" and namespace == pid_namespace()
    return pid if is_here and isinstance(pid, int) else None


def _bootstrap_code() -> str:
    paths = [RUNTIME_FOLDER / "__init__.py", *(RUNTIME_FOLDER / "kernel").glob("*.py")]
    sources = {_name_in_kernels(path): path.read_text(encoding="utf-8") for path in paths}
    bootstrap = (RUNTIME_FOLDER / "bootstrap.py").read_text(encoding="utf-8")
    code = f"{bootstrap}install_what_was_sent({sources!r})"
    return f"exec({code!r}, {{'__name__': 'taskweaver_bootstrap'}})"


def _name_in_kernels(path: Path) -> str:
    parts = path.relative_to(RUNTIME_FOLDER).with_suffix("").parts
    return ".".join((_NAME_IN_KERNELS, *parts)).removesuffix(".__init__")
