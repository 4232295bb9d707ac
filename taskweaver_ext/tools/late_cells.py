"""What cells write after their end, until the next result tells the model of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from taskweaver_ext.ces.execution.events import LateOutput, OutputProduced
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.tools.shown_output import ShownOutput

OnLateOutput: TypeAlias = Callable[[str, LateOutput], None]
"""Told the session and what came, on a thread of its own."""

MAX_WAITING_CELLS = 10
"""Of so many cells late output waits for the next result; of more, the latest."""
MAX_CHARS = 4000
"""How much is told of each."""
_MAX_NAMES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCellOutput:
    """What threads or background processes of a cell wrote after its end."""

    execution_id: ExecutionId
    name: str
    """The cell's title, or the first line of its code."""
    text: str


class LateCells:
    """The late output of all sessions, each piece under the name of its cell.

    Threads:
        Any thread may call any method; `_lock` guards both tables.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[ExecutionId, str] = {}
        self._waiting: dict[str, dict[ExecutionId, ShownOutput]] = {}

    def remember(self, execution_id: ExecutionId, name: str) -> None:
        """Note what a cell is known by; the oldest are forgotten in the end."""
        with self._lock:
            self._names[execution_id] = name
            if len(self._names) > _MAX_NAMES:
                del self._names[next(iter(self._names))]

    def receive(self, session_id: str, late: LateOutput) -> None:
        """Keep what came for the next result."""
        event = OutputProduced(execution_id=late.execution_id, stream=late.stream, text=late.text)
        with self._lock:
            cells = self._waiting.setdefault(session_id, {})
            cells.setdefault(late.execution_id, ShownOutput(MAX_CHARS)).receive(event)
            if len(cells) > MAX_WAITING_CELLS:
                del cells[next(iter(cells))]

    def take(self, session_id: str) -> tuple[LateCellOutput, ...]:
        """Return what has come for a session, each piece once."""
        with self._lock:
            return tuple(
                LateCellOutput(
                    execution_id=execution_id,
                    name=self._names.get(execution_id, execution_id),
                    text=shown.text(),
                )
                for execution_id, shown in self._waiting.pop(session_id, {}).items()
            )
