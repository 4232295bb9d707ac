"""Ways to run code in another process and see its output, all behind one protocol."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import queue
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_async
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from scripts.benchmarks.rows import LIMIT, NBCLIENT, OURS, RAW
from taskweaver_ext import Environment

OnText: TypeAlias = Callable[[str], None]

_READY_SECONDS = 20
_SILENCE_SECONDS = 300.0
_READ_BYTES = 1 << 16


class PeerError(Exception):
    """The code failed, its kernel died, or nothing was heard for too long."""


class Peer(Protocol):
    """One process that runs code.

    `start` is called once, then `execute` any number of times, then `stop` once.
    """

    name: str

    def start(self) -> None:
        """Start it and wait until it answers."""

    def execute(self, code: str, on_text: OnText) -> None:
        """Run code to its end and pass on what it writes, on this thread; raises PeerError."""

    def interrupt(self) -> None:
        """Interrupt the running code, from any thread."""

    def stop(self) -> None:
        """End the process."""


MakePeer: TypeAlias = Callable[[], Peer]


class OurPeer:
    """A session of an `Environment`."""

    def __init__(self, environment: Environment, name: str = OURS) -> None:
        self.name = name
        self._environment = environment
        self._session_id = uuid.uuid4().hex

    def start(self) -> None:
        """Start the session."""
        self._environment.start_session(self._session_id)

    def execute(self, code: str, on_text: OnText | None) -> None:
        """Run code in the session."""
        result = self._environment.execute_code(
            self._session_id,
            code,
            on_output=None if on_text is None else lambda _stream, text: on_text(text),
        )
        if not result.is_success:
            raise PeerError(result.error)

    def interrupt(self, kill_after: float | None = None) -> None:
        """Interrupt the session."""
        self._environment.interrupt(self._session_id, kill_after)

    def stop(self) -> None:
        """Stop the session."""
        self._environment.stop_session(self._session_id)


class RawPeer:
    """A stock kernel, and jupyter_client's blocking client as its documentation uses it."""

    name = RAW

    def __init__(self, silence_seconds: float = _SILENCE_SECONDS) -> None:
        self._silence_seconds = silence_seconds
        self._manager = KernelManager()

    def start(self) -> None:
        """Start the kernel and wait for its first reply."""
        while True:
            self._manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._client = self._manager.blocking_client()
            self._client.start_channels()
            try:
                self._client.wait_for_ready(timeout=_READY_SECONDS)
                return
            except RuntimeError:  # of kernels that start at once, two may get the same port
                self.stop()
                self._manager = KernelManager()

    def execute(self, code: str, on_text: OnText) -> None:
        """Read the output channel until the kernel is idle, then the reply."""
        request = self._client.execute(code)
        try:
            while True:
                message = self._client.get_iopub_msg(timeout=self._silence_seconds)
                content = message["content"]
                if message["parent_header"].get("msg_id") != request:
                    continue
                if message["msg_type"] == "stream":
                    on_text(content["text"])
                elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                    break
            reply = self._reply_to(request)
        except queue.Empty:
            raise PeerError(f"nothing was heard for {self._silence_seconds:g} s") from None
        if reply["status"] != "ok":
            raise PeerError(str(reply.get("evalue")))

    def _reply_to(self, request: str) -> dict[str, Any]:
        while True:
            message = self._client.get_shell_msg(timeout=self._silence_seconds)
            if message["parent_header"].get("msg_id") == request:
                content: dict[str, Any] = message["content"]
                return content

    def interrupt(self) -> None:
        """Send the kernel a signal."""
        self._manager.interrupt_kernel()

    def stop(self) -> None:
        """Kill the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


class _ListeningNotebookClient(NotebookClient):
    """nbclient, which collects output in the notebook, telling us what it collects."""

    on_text: OnText

    def process_message(
        self, msg: dict[str, Any], cell: NotebookNode, cell_index: int
    ) -> NotebookNode | None:
        if msg["msg_type"] == "stream":
            self.on_text(msg["content"]["text"])
        return super().process_message(msg, cell, cell_index)


def _notebook_node(**fields: object) -> NotebookNode:
    return NotebookNode(**fields)  # type: ignore[no-untyped-call]  # typed in parts only


class NbclientPeer:
    """A stock kernel, and nbclient running one cell after another."""

    name = NBCLIENT

    def __init__(self) -> None:
        self._client = _ListeningNotebookClient(
            _notebook_node(cells=[], metadata=_notebook_node(), nbformat=4, nbformat_minor=5)
        )
        self._kernel = contextlib.ExitStack()

    def start(self) -> None:
        """Start the kernel and wait for its first reply."""
        self._client.startup_timeout = _READY_SECONDS
        self._kernel.enter_context(
            self._client.setup_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def execute(self, code: str, on_text: OnText) -> None:
        """Run the code as a cell."""
        self._client.on_text = on_text
        cell = _notebook_node(cell_type="code", source=code, metadata=_notebook_node(), outputs=[])
        self._client.nb.cells = [cell]
        try:
            self._client.execute_cell(cell, 0)
        except (CellExecutionError, DeadKernelError) as error:
            raise PeerError(str(error)) from error

    def interrupt(self) -> None:
        """Ask its kernel manager to, on an event loop of this thread."""
        assert self._client.km is not None
        asyncio.run(ensure_async(self._client.km.interrupt_kernel()))

    def stop(self) -> None:
        """Kill the kernel."""
        self._client.shutdown_kernel = "immediate"
        with contextlib.suppress(asyncio.CancelledError):
            self._kernel.close()


_INTERPRETER_LOOP = """
import sys
while size := sys.stdin.buffer.readline():
    exec(compile(sys.stdin.buffer.read(int(size)), "<bench>", "exec"), {})
    sys.stdout.write("\\0")
    sys.stdout.flush()
"""


class PipePeer:
    """A plain Python whose output comes through a pipe: the limit of what can be had."""

    name = LIMIT

    def __init__(self, *, is_unbuffered: bool = False) -> None:
        options = ["-u"] if is_unbuffered else []
        self._command = [sys.executable, *options, "-c", _INTERPRETER_LOOP]

    def start(self) -> None:
        """Start the interpreter, so that its start is no part of what is measured."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.execute("pass", lambda _text: None)

    def execute(self, code: str, on_text: OnText) -> None:
        """Send the code and read until the mark after its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        source = code.encode()
        self._process.stdin.write(b"%d\n%s" % (len(source), source))
        decoder = codecs.getincrementaldecoder("utf-8")()
        is_ended = False
        while not is_ended:
            data = os.read(self._process.stdout.fileno(), _READ_BYTES)
            if not data:
                raise PeerError("the interpreter has ended")
            is_ended = data.endswith(b"\0")
            if text := decoder.decode(data.rstrip(b"\0")):
                on_text(text)

    def interrupt(self) -> None:
        """Send it the signal of Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def started(*peers: Peer) -> Iterator[None]:
    """Start peers, one after another, and stop them in the end."""
    with contextlib.ExitStack() as stack:
        for peer in peers:
            peer.start()
            stack.callback(peer.stop)
        yield


def ignore(_text: str) -> None:
    """Look away."""


def kernel_pid(peer: Peer) -> int:
    """The process that runs a peer's code."""
    pieces: list[str] = []
    peer.execute("import os; print(os.getpid())", pieces.append)
    return int("".join(pieces))
