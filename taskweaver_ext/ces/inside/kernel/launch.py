"""Start an IPython kernel with our runtime in this process.

The settings are a JSON object: `connection_file`, `key`, `socket_path` (an
address that `wire.open_socket` understands), `env_id`, `session_id`,
`memory_limit_bytes`; for kernels in containers also `environment` (variables
that must not be seen from outside) and `connects_channels`; for sandboxed ones
`channels` (sockets that are open already).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zmq

if "debugpy" not in sys.modules:
    # ipykernel imports it for its debugger: 120 modules that are not used here.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    import ipykernel.debugger  # noqa: F401

    del sys.modules["debugpy"]

from ipykernel.displayhook import ZMQDisplayHook
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.error import StdinNotImplementedError
from IPython.core.profiledir import ProfileDir
from jupyter_client.session import Session
from traitlets import Type, observe
from traitlets.config import Config

from .ipython_shell import Shell
from .message_cost import sendable
from .runtime import MessageSocket, Runtime
from .wire import Wire

_SIGNAL_CHECK_MILLISECONDS = 100
_END_OF_INPUT = "\x04"


class QuietSession(Session):
    """Jupyter's, but for replies to executions, which have gone out on the wire."""

    def send(
        self, stream: Any, msg_or_type: Any, content: Any = None, *args: Any, **more: Any
    ) -> Any:
        """Send other messages as Jupyter does."""
        if msg_or_type == "execute_reply":
            return {"content": content}
        return super().send(stream, msg_or_type, content, *args, **more)


def packing_any_text(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Pack messages as `pack` does, also those with half a character (a lone surrogate)."""

    def pack_any(message: Any) -> bytes:
        try:
            return pack(message)
        except (UnicodeError, ValueError):
            return pack(sendable(message))

    return pack_any


class NoSubshells:
    """Stands where newer versions of ipykernel have a thread that hands requests on."""

    def __init__(self) -> None:
        self.parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


class Kernel(IPythonKernel):
    """IPython's kernel, with executions handed to the runtime."""

    shell_class = Type(Shell)
    runtime: Runtime

    @property
    def _supports_kernel_subshells(self) -> bool:
        """Whether requests came by the thread that hands them on, as behind a gateway.

        Replies must go back that way: two threads may not use one socket.
        """
        return bool(getattr(self, "shell_channel_thread", None))

    async def do_execute(self, *args: Any, **named: Any) -> dict[str, Any]:
        """Run one request as the runtime says."""
        request = self.get_parent("shell").get("metadata", {}).get("taskweaver", {})
        plain = super().do_execute

        async def run() -> dict[str, Any]:
            reply: dict[str, Any] = await plain(*args, **named)
            return reply

        return await self.runtime.execute(request, run)

    @contextlib.contextmanager
    def _cancel_on_sigint(self, future: asyncio.Task[Any]) -> Iterator[None]:
        """Let the runtime know what a cell that awaits is waiting for."""
        self.runtime.awaiting = future
        try:
            yield
        finally:
            self.runtime.awaiting = None

    async def interrupt_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Interrupt the execution that is meant; a request that comes too late does nothing."""
        meant = parent.get("metadata", {}).get("taskweaver", {}).get("ordinal")
        with self.runtime.hold_executions():  # one that begins just now is not meant
            if meant is None or self.runtime.is_running(meant):
                await super().interrupt_request(stream, ident, parent)

    def _publish_execute_input(self, *args: object, **named: object) -> None:
        """The client knows what it sent."""

    def _publish_status(self, *args: object, **named: object) -> None:
        """The client knows from the wire what has begun and ended."""

    def pre_handler_hook(self) -> None:
        """Leave SIGINT alone: the runtime's handler knows when code is running."""

    def post_handler_hook(self) -> None:
        """See `pre_handler_hook`."""

    async def poll_stopped_queue(self) -> None:
        """There is no debugger."""

    def raw_input(self, prompt: object = "") -> Any:
        """Ask the client, or fail at once when it cannot answer."""
        __tracebackhide__ = True
        self._require_input("input()")
        return super().raw_input(prompt)

    def getpass(self, *args: Any, **named: Any) -> Any:
        """Ask the client, or fail at once when it cannot answer."""
        __tracebackhide__ = True
        self._require_input("getpass()")
        return super().getpass(*args, **named)

    def _input_request(
        self, prompt: str, ident: object, parent: object, password: bool = False
    ) -> str:
        """Ask on the wire, where the question keeps its place among the output."""
        session: Any = self.session
        while self.stdin_socket.poll(0):  # an answer that came too late for its question
            session.recv(self.stdin_socket)
        question = json.dumps({"prompt": prompt, "password": password})
        self.runtime.send_message("input_request", question.encode())
        while not self.stdin_socket.poll(_SIGNAL_CHECK_MILLISECONDS):
            continue  # let an interrupt through
        _, reply = session.recv(self.stdin_socket)
        answer: str = reply["content"]["value"]
        if answer == _END_OF_INPUT:
            raise EOFError
        return answer

    def _require_input(self, function: str) -> None:
        __tracebackhide__ = True
        if self.runtime.is_forked_child():
            raise EOFError(f"{function} was called in a forked child, which nobody can answer")
        if not self._allow_stdin:
            raise StdinNotImplementedError(
                f"{function} was called, but nobody is there to answer."
                " Put the value into the code, or run it where on_input is given."
            )


class _NoProfile(ProfileDir):
    """A profile folder that is never written to."""

    def _mkdir(self, *args: object) -> bool:
        return False

    @observe("startup_dir")
    def check_startup_dir(self, change: object = None) -> None:
        """Older versions of IPython write a README here."""


class KernelApp(IPKernelApp):
    """ipykernel's application, told everything by its caller: no arguments, no config files."""

    kernel_class = Type(Kernel, klass="ipykernel.kernelbase.Kernel")  # type: ignore[assignment]
    runtime: Runtime
    connects_channels = False
    """True where the client binds the channels, because we may not write to their folder."""
    channels: Mapping[int, int] = {}
    """Sockets that listen already, by the numbers of their channels."""

    def init_sockets(self) -> None:
        """As ipykernel does, but connecting comes last: it would connect its debugger as well."""
        self._unconnected: list[tuple[Any, int]] = []
        super().init_sockets()
        for channel, port in self._unconnected:
            channel.connect(f"{self.transport}://{self.ip}-{port}")

    def _bind_socket(self, s: Any, port: int) -> int:
        if port in self.channels:
            s.setsockopt(zmq.USE_FD, self.channels[port])
        if not self.connects_channels:
            return int(super()._bind_socket(s, port))
        self._unconnected.append((s, port))
        return port

    def parse_command_line(self, argv: object = None) -> None:
        """Do nothing: a kernel has no command line."""

    def load_config_file(self, *args: object, **named: object) -> None:
        """A user's IPython configuration is not part of what code may rely on."""

    def init_profile_dir(self) -> None:
        """Nothing of a kernel is kept in the user's home."""
        self.profile_dir = _NoProfile(location=os.path.dirname(self.connection_file))

    @observe("ipython_dir")
    def _ipython_dir_changed(self, change: object) -> None:
        """See `init_profile_dir`."""

    def init_iopub(self, context: object) -> None:
        """What would be published goes out on the runtime's wire."""
        self.configure_tornado_logger()
        self.iopub_port = 0
        self.iopub_socket = MessageSocket(self.runtime)

    def init_kernel(self) -> None:
        """As ipykernel does, but requests come to the main thread, which is faster."""
        if self.has_trait("shell_channel_thread"):
            self.shell_channel_thread.io_loop.close()
            self.shell_channel_thread = NoSubshells()
        super().init_kernel()

    def init_heartbeat(self) -> None:
        """The client watches the process itself."""

    def write_connection_file(self, **named: object) -> None:
        """The client wrote it."""

    def log_connection_info(self) -> None:
        """Log nothing: only our client connects."""

    def init_io(self) -> None:
        """The runtime's streams are in place already."""
        self.displayhook = sys.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)

    def init_signal(self) -> None:
        """The runtime's SIGINT handler is in place already."""


def launch(settings: dict[str, Any]) -> None:
    """Become a kernel; returns when it has been shut down."""
    os.environ.update(settings.get("environment", {}))
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # interrupts go to the group: to the kernel and its children
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # our parent may block signals
    sys.argv = ["kernel"]  # not how we were started, which is not for the code to see
    limit_memory(settings.get("memory_limit_bytes"))
    log = os.fdopen(os.dup(2), "w", buffering=1)
    runtime = Runtime(lambda signals: Wire(settings["socket_path"], signals))
    runtime.install()
    warnings.filterwarnings("ignore", message="To exit: use 'exit', 'quit'")
    app = KernelApp.instance(
        config=_config(), log_level=logging.ERROR, connection_file=settings["connection_file"]
    )
    app.session = QuietSession(parent=app)
    app.session.pack = packing_any_text(app.session.pack)
    app.runtime = Kernel.runtime = runtime
    app.connects_channels = settings.get("connects_channels", False)
    app.channels = settings.get("channels", {})
    app.log.handlers = [logging.StreamHandler(log)]
    app.log.setLevel(logging.ERROR)
    app.initialize([])
    runtime.attach(app.kernel, env_id=settings["env_id"], session_id=settings["session_id"])
    if app.channels:
        _drop(log.fileno())
    runtime.say_hello(settings["key"])
    app.start()


def _drop(log: int) -> None:
    """Let go of the log before there is code that could write to it without end."""
    kept = os.fstat(log)
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        for descriptor in (1, 2, log):
            if os.path.samestat(os.fstat(descriptor), kept):
                os.dup2(nothing.fileno(), descriptor, inheritable=descriptor < 3)


def _config() -> Config:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Context"
    config.IPythonKernel._execute_sleep = 0
    return config


def limit_memory(limit_bytes: int | None) -> None:
    """Bound what the process may allocate, so that too much is a MemoryError."""
    if limit_bytes is None:
        return
    import resource

    # Not RLIMIT_AS: reserved address space (arenas, mapped libraries) is not memory.
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
