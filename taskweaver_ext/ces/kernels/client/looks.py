"""Questions to a kernel that are answered past the code that runs, by a thread of its own there."""

from __future__ import annotations

import threading
import time
from typing import Any, TypeAlias

from taskweaver_ext.ces.execution.looks import (
    Completion,
    Completions,
    Inspection,
    KernelPeek,
    LookStatus,
    RunningCode,
    StackLine,
    Variable,
)
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.ces.kernels.client.checked_fields import CheckedFields
from taskweaver_ext.errors import ProtocolError

MAX_UNANSWERED = 8
"""A kernel that is silent is not asked more often: it would have to answer them all in the end."""

_FORGOTTEN_SECONDS = 60.0
_MAX_VALUE_CHARACTERS = 160
_SENDER = "A kernel"

Question: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]


class LookFailedError(Exception):
    """A kernel has not answered; says how that is called, and why."""

    def __init__(self, status: LookStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class PendingLook:
    """A question that is to be sent, or was, and its answer."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.asked_at = time.monotonic()
        self._is_over = threading.Event()
        self._answer: Answer | None = None

    def end(self, answer: Answer | None) -> None:
        """The kernel has answered, or will not any more."""
        self._answer = answer
        self._is_over.set()

    def wait(self, seconds: float) -> Answer:
        """Return the answer; raises LookFailedError when there is none in time, or will be none."""
        if not self._is_over.wait(seconds):
            raise LookFailedError("timeout", _SILENT)
        if self._answer is None:
            raise LookFailedError("no_kernel", _ENDED)
        if isinstance(error := self._answer.get("error"), str):
            raise LookFailedError("failed", f"The kernel could not say: {error}.")
        return self._answer


class UnansweredLooks:
    """The questions that a kernel has not answered yet.

    Threads:
        Callers `begin`, the reader `receive`s and `stop`s. `_lock` guards all fields.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[int, PendingLook] = {}
        self._number = 0
        self._is_over = False

    def begin(self, look: str, arguments: dict[str, Any]) -> PendingLook:
        """Return a question to send; raises LookFailedError when too many are unanswered."""
        with self._lock:
            if self._is_over:
                raise LookFailedError("no_kernel", _ENDED)
            oldest = time.monotonic() - _FORGOTTEN_SECONDS
            kept = {number: one for number, one in self._pending.items() if one.asked_at > oldest}
            if len(kept) >= MAX_UNANSWERED:
                raise LookFailedError("timeout", _SILENT)
            self._number += 1
            pending = PendingLook({"number": self._number, "look": look, "arguments": arguments})
            self._pending = {**kept, self._number: pending}
            return pending

    def receive(self, answer: Answer) -> None:
        """Hand an answer to the caller who waits for it; code may have forged it."""
        number = answer.get("number")
        with self._lock:
            pending = self._pending.pop(number, None) if isinstance(number, int) else None
        if pending is not None:
            pending.end(answer)

    def stop(self) -> None:
        """There will be no answers any more."""
        with self._lock:
            self._is_over = True
            left, self._pending = self._pending, {}
        for pending in left.values():
            pending.end(None)


_ENDED = "The kernel has ended; the next execution starts another."
_SILENT = (
    "The kernel did not answer in time: the code that runs keeps other threads from running, as"
    " long calls of compiled libraries do."
)


def read_completions(answer: Answer, code: str) -> Completions:
    """Return what an answer to "complete" says; raises ProtocolError when it makes no sense."""
    fields = CheckedFields(answer, _SENDER)
    start, end = fields.count("start"), fields.count("end")
    if not start <= end <= len(code):
        raise ProtocolError("A kernel completed code that it was not asked about.")
    return Completions(
        matches=tuple(Completion(*texts) for texts in _rows(answer, "matches", "ttt")),
        start=start,
        end=end,
        is_cut=fields.value("is_cut") is True,
    )


def read_inspection(answer: Answer) -> Inspection:
    """Return what an answer to "inspect" says; raises ProtocolError when it makes no sense."""
    fields = CheckedFields(answer, _SENDER)
    return Inspection(
        name=fields.text("name", ""),
        is_found=fields.value("is_found") is True,
        kind=fields.text("kind", ""),
        type_name=fields.text("type", ""),
        module=fields.text("module", ""),
        signature=fields.text("signature", ""),
        documentation=fields.text("documentation", ""),
        file=fields.text("file", ""),
        line=fields.whole_number("line"),
        value=_shortened(fields.text("value", "")),
        size=fields.text("size", ""),
        source=fields.text("source", ""),
    )


def read_peek(answer: Answer, state: str) -> KernelPeek:
    """Return what an answer to "peek" says; raises ProtocolError when it makes no sense."""
    fields = CheckedFields(answer, _SENDER)
    running = None
    if fields.value("running") is not None:
        what = fields.fields("running")
        id_of_execution = what.value("execution_id")
        running = RunningCode(
            execution_id=(
                ExecutionId(id_of_execution) if isinstance(id_of_execution, str) else None
            ),
            seconds=what.amount("seconds") or 0.0,
            stack=tuple(
                StackLine(*row) for row in _rows(fields.mapping("running"), "stack", "tnitt")
            ),
        )
    return KernelPeek(
        state=state,
        variables=tuple(
            Variable(name, type_name, kind, size, _shortened(value))
            for name, type_name, kind, size, value in _rows(answer, "variables", "ttttt")
        ),
        variable_count=fields.whole_number("variable_count") or 0,
        running=running,
        memory_bytes=fields.whole_number("memory_bytes"),
    )


def _shortened(value: str) -> str:
    """A value after it was masked: cut before, a secret in it might not have been known."""
    if len(value) <= _MAX_VALUE_CHARACTERS:
        return value
    return f"{value[: _MAX_VALUE_CHARACTERS - 1]}…"


_TYPES = {"t": (str,), "i": (int,), "n": (int, type(None))}


def _rows(part: dict[str, Any], name: str, types: str) -> list[list[Any]]:
    """A list of rows whose columns are texts (t), numbers (i), or numbers or nothing (n)."""
    rows = part.get(name, [])
    if not isinstance(rows, list) or not all(_is_row(row, types) for row in rows):
        raise ProtocolError(f"{_SENDER} sent a message in which {name!r} is no table.")
    return rows


def _is_row(row: object, types: str) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(types)
        and all(type(value) in _TYPES[one] for value, one in zip(row, types, strict=True))
    )
