"""Run as a script: import what a kernel needs once, then fork a warm kernel on demand.

    python zygote_main.py DESCRIPTOR [MODULE...]

The descriptor is one end of a socket pair. Requests and replies are JSON
objects, each behind its length. When the other end closes, every kernel is
killed and this process ends. It never starts a thread, because a fork copies
only one, nor a ZeroMQ context.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
import types
from typing import Any

from cold_start import load_runtime_package  # type: ignore[import-not-found]

_LENGTH = struct.Struct("!I")
_MARK = "TASKWEAVER_PROCESS_MARK"

_KERNEL = types.SimpleNamespace(kernel=None)
"""What modules that are imported here take for IPython: pandas asks whether it has a kernel."""

# What a kernel imports between its start and its first few executions. Nothing that reads
# its environment when it is imported: kernels have one of their own.
_NEEDED_SOON = """
    IPython.core.completerlib IPython.core.debugger IPython.core.logger IPython.core.oinspect
    IPython.core.magics.ast_mod IPython.core.magics.execution IPython.extensions.storemagic
    concurrent.futures.thread fractions pexpect pygments.formatters.terminal256 pygments.styles
    stack_data timeit tornado.platform.asyncio unicodedata
    """.split()


class Zygote:
    """The process that forks kernels and knows how they ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._kernels: dict[int, str] = {}
        """Those that live, with the mark that all they start carries in its environment."""

    def serve(self, problems: list[str]) -> None:
        """Answer requests until the other side is gone; first tell it of problems."""
        self._reply({"problems": problems, "threads": threading.active_count()})
        while request := self._read():
            if "wait" in request:
                self._reply({"status": self._wait(request["wait"])})
            else:
                self._reply({"pid": self._fork(request)})
        for kernel in self._kernels:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(kernel, signal.SIGKILL)
        _kill_marked([mark for mark in self._kernels.values() if mark])
        os._exit(0)  # at once: there is nothing to tidy up, and somebody waits

    def _read(self) -> Any:
        header = self._read_exactly(_LENGTH.size)
        return json.loads(self._read_exactly(_LENGTH.unpack(header)[0])) if header else None

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._requests.recv(size - len(data))
            if not piece:
                return b""
            data += piece
        return data

    def _reply(self, reply: dict[str, Any]) -> None:
        data = json.dumps(reply).encode()
        self._requests.sendall(_LENGTH.pack(len(data)) + data)

    def _wait(self, kernel: int) -> int | None:
        """How a kernel ended, which it has; None for one that another zygote forked."""
        self._kernels.pop(kernel, None)
        try:
            return os.waitpid(kernel, 0)[1]
        except ChildProcessError:
            return None

    def _fork(self, request: dict[str, Any]) -> int:
        kernel = os.fork()
        if kernel:
            self._kernels[kernel] = request["environment"].get(_MARK, "")
            return kernel
        self._requests.close()
        _become_kernel(request)
        # Out through `main` and the interpreter's own end: exit handlers run, files are flushed.
        sys.exit()


def _kill_marked(marks: list[str]) -> None:
    """Kill what kernels started in sessions of its own."""
    wanted = [f"{_MARK}={mark}".encode() for mark in marks]
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()] if wanted else []:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
            if any(mark in variables for mark in wanted):
                os.kill(pid, signal.SIGKILL)


def _become_kernel(request: dict[str, Any]) -> None:
    os.setsid()
    sys.modules["taskweaver_inside.sandbox.privileges"].show_memory()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    log = os.open(request["log_path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["cwd"])
    _inherit(request["inherited"])
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    main_thread: Any = threading.main_thread()
    main_thread._set_native_id()  # older versions of Python forget that it is another now
    gc.enable()
    sys.modules["taskweaver_inside.sandbox.restricted_kernel"].restrict_kernel(request["settings"])
    sys.modules["taskweaver_inside.kernel.launch"].launch(request["settings"])


def _inherit(state: dict[str, Any]) -> None:
    """Take on what a process started by our owner now would have of it, as far as we may."""
    os.umask(state["umask"])
    for name, limits in state["limits"].items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), tuple(limits))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, state["niceness"])


def main() -> None:
    """Import everything, then serve."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    _die_by_what_happens_on(requests)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in our terminal is not for kernels
    sys.path.pop(0)  # this folder, put there because it holds the script
    load_runtime_package()
    del sys.modules["cold_start"]
    for name in ("sandbox.restricted_kernel", "kernel.launch"):
        importlib.import_module(f"taskweaver_inside.{name}")
    sys.modules["taskweaver_inside.sandbox.seccomp"].prepare()
    sys.modules["taskweaver_inside.sandbox.privileges"].hide_memory()  # from kernels, too
    for name in _NEEDED_SOON:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    problems = _preload(sys.argv[2:])
    gc.collect()
    gc.freeze()
    fcntl.fcntl(requests, fcntl.F_SETFL, 0)
    Zygote(requests).serve(problems)


def _preload(modules: list[str]) -> list[str]:
    """Import modules that somebody will want; return why some could not be."""
    # As a kernel has it by the time that code imports something: modules look only then.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    builtins.get_ipython = lambda: _KERNEL  # type: ignore[attr-defined]
    problems = []
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the kernels still run
            problems.append(f"{name} could not be imported: {type(error).__name__}: {error}")
    del builtins.get_ipython  # type: ignore[attr-defined]
    return problems


def _die_by_what_happens_on(requests: socket.socket) -> None:
    """Let SIGIO end us: before we are ready only one thing can happen, that our owner is gone.

    Importing takes a while, and a preload may take for ever.
    """
    fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(requests, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([requests], [], [], 0)[0]:
        os._exit(0)  # it has happened already


if __name__ == "__main__":
    main()
