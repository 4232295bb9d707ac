"""What tests of executions share: an execution heard, memory watched, conditions waited for."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

import psutil

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.ces.kernels.modes import EnvMode

OpenEnvironment: TypeAlias = Callable[..., Environment]
"""Takes a folder, and settings by name."""

LIMIT_SECONDS = 120.0
"""The longest any test waits for anything."""

DIE_ON_A_THREAD = """
import os, signal, threading
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
"""
"""Code whose kernel dies soon after, whatever it does then."""


@dataclass
class Heard:
    """An execution's result and everything its callbacks were told."""

    result: ExecutionResult
    pieces: list[tuple[str, str]] = field(default_factory=list)
    events: list[ExecutionEvent] = field(default_factory=list)

    def text(self, stream: str = "stdout") -> str:
        return "".join(text for name, text in self.pieces if name == stream)


def run(
    environment: Environment,
    code: str,
    *,
    session: str = "s1",
    timeout: float = LIMIT_SECONDS,
    on_output: Callable[[str, str], object] | None = None,
) -> Heard:
    """Run code on a session and keep what it says."""
    pieces: list[tuple[str, str]] = []
    events: list[ExecutionEvent] = []

    def hear(stream: str, text: str) -> None:
        pieces.append((stream, text))
        if on_output is not None:
            on_output(stream, text)

    result = environment.execute_code(
        session, code, on_output=hear, on_event=events.append, timeout=timeout
    )
    return Heard(result, pieces, events)


T = TypeVar("T")


def with_enough_time(run: Callable[[float], T], is_enough: Callable[[T], object]) -> T:
    """Run something that has a limit of time, and again with a longer one if it was too short.

    How long code needs until it has begun, only the machine knows: mostly the first is enough.
    """
    for timeout in (0.3, 1.0, 3.0, 10.0):
        if is_enough(result := run(timeout)):
            return result
    return run(LIMIT_SECONDS / 4)


def kernel_pid(environment: Environment, session: str = "s1") -> int:
    """The process id of a session's kernel."""
    return int(environment.execute_code(session, "import os; os.getpid()").output)


def times(environment: Environment, count: int) -> int:
    """How often something is tried: in full on local kernels, a fifth of that elsewhere."""
    return count if environment.env_mode is EnvMode.Local else count // 5


def digest_of(pieces: Iterable[str]) -> str:
    """A digest of a text that is too long to compare readably."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece.encode())
    return digest.hexdigest()


def digest_of_stdout(result: ExecutionResult) -> str:
    """The digest of the whole recorded standard output."""
    path = result.full_output_paths.get("stdout")
    if path is None:
        return digest_of(result.stdout)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def whole_stdout(result: ExecutionResult) -> str:
    """All of the standard output, also what is only on the disk."""
    path = result.full_output_paths.get("stdout")
    return "".join(result.stdout) if path is None else path.read_text()


def wait_until(condition: Callable[[], object], seconds: float = LIMIT_SECONDS) -> None:
    """Wait for a condition; fail when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits to be collected."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class MemoryWatch:
    """How much a process grew, at its peak."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}")
        (self._path / "clear_refs").write_text("5")  # resets the peak
        self._before = psutil.Process(pid).memory_info().rss

    def growth(self) -> int:
        status = (self._path / "status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024 - self._before
