"""What runs code, and what a caller wants of one execution besides its code."""

from __future__ import annotations

import math
import numbers
import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.events import ExecutionEvent
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, StreamName
from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import SessionError

OnOutput: TypeAlias = Callable[[StreamName, str], object]
OnEvent: TypeAlias = Callable[[ExecutionEvent], object]
OnInput: TypeAlias = Callable[[str, bool], str]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
"""What may name a session or an execution, because it is used as a file name."""


def new_execution_id(wanted: str | None = None) -> ExecutionId:
    """The id that a caller wants for an execution, or one of our own; raises SessionError."""
    execution_id = ExecutionId(wanted or f"exec-{uuid.uuid4().hex[:12]}")
    if not NAME.fullmatch(execution_id):
        raise SessionError(f"{execution_id!r} cannot name an execution: it is used as a file name.")
    return execution_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a caller wants of one execution; every layer hands it down as it is."""

    execution_id: ExecutionId = field(default_factory=new_execution_id)
    on_output: OnOutput | None = None
    on_event: OnEvent | None = None
    on_input: OnInput | None = None
    """Answers questions of the code; only a kernel asks."""
    timeout: float | None = None
    stdin: str | bytes | None = None
    cwd: str | Path | None = None
    """Where a fresh process runs; others have a directory of their own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of a fresh process, besides those of its executor."""
    record_on_disk: bool = False
    """Whether the record is in files from its first byte, not only when memory is too small; and
    whether events name the files of large displays instead of holding them."""
    token: CancellationToken = field(default_factory=CancellationToken)
    """Stops this execution, and no other."""

    @property
    def stdin_bytes(self) -> bytes | None:
        """What a program reads."""
        stdin = self.stdin
        return stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin


class Executor(Closeable):
    """Runs code of one language, and says while it runs what it does."""

    def execute(
        self,
        code: str,
        *,
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Run code to its end and call back, on this thread, for what it does.

        Args:
            timeout: Seconds after which it is stopped with all it started.
            stdin: What it reads; by default it finds the end at once.

        Raises:
            SessionError: The executor has been closed, or the id is no name for a file.
        """
        return self.run(
            code,
            RunOptions(
                execution_id=new_execution_id(execution_id),
                on_output=on_output,
                on_event=on_event,
                timeout=timeout,
                stdin=stdin,
            ),
        )

    @abstractmethod
    def run(self, code: str, options: RunOptions) -> ExecutionResult:
        """The same, as the layers above ask for it."""

    @abstractmethod
    def interrupt(self, *, kill: bool = False) -> bool:
        """Stop what runs, or is about to; from any thread. With `kill`, at any price.

        Returns:
            Whether there was anything; if not, nothing that comes later is stopped for it.
        """


def check_seconds(name: str, seconds: object) -> None:
    """Refuse what is no number where the caller sees it, and not where the kernel is read."""
    if seconds is not None and (not isinstance(seconds, numbers.Real) or math.isnan(seconds)):
        raise TypeError(f"{name} is a number of seconds or None, not {seconds!r}.")
