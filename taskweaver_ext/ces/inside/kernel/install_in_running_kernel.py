"""Install our runtime in a kernel that a gateway started.

The settings are in the metadata of the request that brought us here: `key`,
`env_id`, `session_id`, `memory_limit_bytes`, `environment` (variables to set)
and `cwd` (entered if this machine has it; else the kernel gets a temporary
folder, which is removed at its end).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import warnings
from typing import Any

from ipykernel._version import __version__, version_info
from ipykernel.ipkernel import IPythonKernel
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.getipython import get_ipython

from .iopub_sender import IopubSender
from .ipython_shell import Exit, Shell
from .launch import Kernel, limit_memory, packing_any_text
from .pid_namespace import pid_namespace
from .runtime import NOT_FOR_THE_WIRE, MessageSocket, Runtime, message_type_of

_OLDEST_IPYKERNEL = (6, 29)


class PublishingSocket(MessageSocket):
    """Stands where the kernel had its iopub socket; what the gateway needs still goes there."""

    def __init__(self, runtime: Runtime, iopub_socket: Any) -> None:
        super().__init__(runtime)
        self._iopub_socket = iopub_socket

    def send_multipart(self, frames: list[Any], *args: object, **options: object) -> None:
        """Take a message as `jupyter_client.session.Session.send` serialises it."""
        if message_type_of(frames) in NOT_FOR_THE_WIRE:
            self._iopub_socket.send_multipart(frames, *args, **options)
        else:
            super().send_multipart(frames)


class GatewayKernel(Kernel):
    """Our kernel, in a process that a gateway started and looks after."""

    def _publish_status(self, *args: Any, **named: Any) -> None:
        """As ipykernel does: an idle kernel may be put away, a busy one not."""
        IPythonKernel._publish_status(self, *args, **named)


def install_in_running_kernel() -> None:
    """Make the running kernel one of ours; it says hello as soon as it is."""
    if version_info[:2] < _OLDEST_IPYKERNEL:
        raise ImportError(f"ipykernel 6.29 or newer is needed; this is {__version__}")
    shell: Any = get_ipython()
    kernel = shell.kernel
    if not isinstance(kernel, IPythonKernel) or not isinstance(shell, ZMQInteractiveShell):
        raise TypeError(f"this is not an IPython kernel but a {type(kernel).__name__}")
    settings = kernel.get_parent("shell")["metadata"]["taskweaver"]
    os.environ.update(settings["environment"])
    limit_memory(settings["memory_limit_bytes"])
    _enter(settings["cwd"])
    runtime = Runtime(lambda signals: IopubSender(kernel, signals))
    runtime.install()
    warnings.filterwarnings("ignore", message="To exit: use 'exit', 'quit'")
    _change_classes(kernel, shell, runtime)
    socket = PublishingSocket(runtime, kernel.iopub_socket)
    kernel.iopub_socket = socket
    shell.displayhook.pub_socket = shell.display_pub.pub_socket = socket  # type: ignore[attr-defined]
    runtime.attach(kernel, env_id=settings["env_id"], session_id=settings["session_id"])
    runtime.context.carries_contents = True
    runtime.say_hello(settings["key"], pid_namespace=pid_namespace())


def _enter(cwd: str) -> None:
    if not os.path.isdir(cwd):
        cwd = tempfile.mkdtemp(prefix="taskweaver-")
        atexit.register(shutil.rmtree, cwd, ignore_errors=True)
    os.chdir(cwd)
    if "" not in sys.path:
        sys.path.insert(0, "")


def _change_classes(kernel: Any, shell: Any, runtime: Runtime) -> None:
    """Let the objects that exist behave as those that `launch` makes."""
    Kernel.runtime = runtime
    kernel.__class__ = GatewayKernel
    kernel._execute_sleep = 0
    kernel.control_handlers["interrupt_request"] = kernel.interrupt_request
    kernel.session.pack = packing_any_text(kernel.session.pack)
    shell.__class__ = Shell
    shell.print_pages()
    shell.history_manager.enabled = False
    shell.user_ns["exit"] = shell.user_ns["quit"] = Exit(shell)
