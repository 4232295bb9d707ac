"""The seam between `Environment` and the places where a kernel can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from taskweaver_ext.ces import inside
from taskweaver_ext.ces.execution.output_runs import OutputRuns
from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath, StreamName, Usage
from taskweaver_ext.ces.programs.site import ProgramSite

RUNTIME_FOLDER = Path(next(iter(inside.__path__)))
"""The source that every host brings into its kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """What one kernel is started with, wherever it runs."""

    env_id: str
    session_id: str
    cwd: Path
    environment: Mapping[str, str]
    memory_limit_bytes: int | None = None

    def for_runtime(self) -> dict[str, Any]:
        """What our runtime inside the kernel is told."""
        return {
            "env_id": self.env_id,
            "session_id": self.session_id,
            "memory_limit_bytes": self.memory_limit_bytes,
        }


@dataclass(frozen=True, slots=True)
class OutputReceived:
    """Bytes of whole UTF-8 characters that an execution wrote."""

    ordinal: int
    stream: StreamName
    data: bytes


@dataclass(frozen=True, slots=True)
class RunsReceived:
    """What an execution wrote to both streams, in its order."""

    ordinal: int
    runs: OutputRuns


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """Something an execution published: a display, a result, an error."""

    ordinal: int
    message_type: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PieceReceived:
    """A piece of a display's large part; a message that names the part's number follows."""

    ordinal: int
    number: int
    form: str
    data: bytes


@dataclass(frozen=True, slots=True)
class InputWanted:
    """The running execution waits for an answer on the stdin channel."""

    prompt: str
    password: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionReply:
    """How code ended, by its kernel's account."""

    is_ok: bool
    exit_code: int | None = None
    """What it gave to `sys.exit`, if that is how it ended."""
    usage: Usage = field(default_factory=Usage)
    error_name: str = ""
    error_text: str = ""
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutionEnded:
    """The reply to an execution: nothing but late output follows."""

    ordinal: int
    reply: ExecutionReply


@dataclass(frozen=True, slots=True)
class KernelGone:
    """The kernel has died or cannot be reached any more; its host knows how."""


Received: TypeAlias = (
    OutputReceived
    | RunsReceived
    | MessageReceived
    | PieceReceived
    | InputWanted
    | ExecutionEnded
    | KernelGone
    | HostNotice
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteRequest:
    """What a kernel is asked to run."""

    ordinal: int
    """Counts the requests of one kernel, from 1; what comes back carries it."""
    code: str
    allow_stdin: bool
    metadata: dict[str, Any]
    """Travels with the request to the kernel's runtime: ids, session variables, a command."""


class KernelConnection(Protocol):
    """The connection to one kernel. All methods but `wake` belong to the reader's thread."""

    def execute(self, request: ExecuteRequest) -> None:
        """Send a request; `receive` brings what becomes of it."""

    def answer(self, text: str) -> None:
        """Answer the question that `InputWanted` brought."""

    def ask_if_alive(self) -> None:
        """Ask a kernel whether it still works; `receive` brings an "alive" message."""

    def ask(self, question: dict[str, Any]) -> None:
        """Ask what is answered while code runs; `receive` brings a "looked" message."""

    @property
    def is_reachable(self) -> bool:
        """Whether a silent kernel could be heard now; any thread may ask."""

    @property
    def tells_beginnings(self) -> bool:
        """Whether code is heard to begin before it can keep its kernel from saying so."""

    def request_shutdown(self) -> None:
        """Ask an idle kernel to end by itself."""

    def receive(self, timeout: float | None) -> Iterable[Received]:
        """Wait until something arrives, `wake` is called, or the time is up."""

    def wake(self) -> None:
        """Make `receive` return, from any thread."""

    def close(self) -> None:
        """Let go of everything; called once, by the reader, as its last act."""


class KernelHost(Protocol):
    """Start, reach and stop one kernel.

    `Environment` calls `start` once, then `interrupt` and `kill` any number
    of times, then `stop` once, even when `start` raised. All may be called
    from any thread.
    """

    @property
    def pid(self) -> int | None:
        """The kernel's process, where it is one of this machine."""

    @property
    def folder(self) -> Path | None:
        """A private folder on this machine that `stop` removes, where there is one."""

    @property
    def programs(self) -> ProgramSite | None:
        """Where programs run beside the kernel, where that is not this machine."""

    @property
    def is_over(self) -> bool:
        """Whether the kernel is known to have ended, perhaps before its reader noticed."""

    def start(self) -> KernelConnection:
        """Start the kernel and wait until it is ready; raises `KernelStartError`."""

    def death(self, wait_seconds: float = 1.0) -> KernelDeath | None:
        """How the kernel died; None while it lives. Waits a moment for the cause."""

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running code and reach its children."""

    def kill(self) -> None:
        """End the kernel at once, with everything it started."""

    def stop(self) -> None:
        """End the kernel and leave nothing: no process, container, folder or socket."""


@dataclass(frozen=True, slots=True)
class StartedKernel:
    """A kernel that is ready, and the connection to it."""

    host: KernelHost
    connection: KernelConnection
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Goes with every request: tells a spare kernel which session it belongs to now."""


def start_kernel(host: KernelHost, metadata: Mapping[str, Any] | None = None) -> StartedKernel:
    """Start a kernel, or leave nothing of it."""
    try:
        return StartedKernel(host, host.start(), metadata or {})
    except BaseException:
        host.stop()
        raise
