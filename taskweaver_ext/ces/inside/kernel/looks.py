"""Answer questions about this kernel while it runs code: what fits, what is this, what is there.

The main thread is busy then, so each question is answered by a thread of its own. None of them
runs code of the user, and what they would print is dropped.
"""

from __future__ import annotations

import contextvars
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from .completion import Completer
from .help_pages import look_up
from .inspection import describe
from .output_queue import PendingOutput, pending_of_execution
from .running_code import memory_bytes, stack_of
from .short_values import MAX_VALUE_CHARACTERS, short_value, size_of, type_name
from .source_text import SourceText
from .static_look import Known, kind_of

MAX_LOOKS = 4
"""So many at once: one may wait for a file system that does not answer."""
MAX_VARIABLES = 200

_MAX_NAME = 200
_NO_EXECUTION = -1
_TOO_MANY = "earlier questions have not been answered yet"


class _NowhereToGo(PendingOutput):
    """What a thread that looks writes: a warning of Python's, say. It is never sent."""

    def append(self, _said: object) -> None:
        """Drop it."""


class Looks:
    """The questions of a client, each on a thread.

    Threads:
        `receive` is called by the thread that hears the client. `_lock` guards `_count`.
    """

    def __init__(self, runtime: Any, send: Callable[[str], object]) -> None:
        """Answer for a runtime; `send` sends an answer, a JSON text, to the client."""
        self._runtime = runtime
        self._send = send
        self._lock = threading.Lock()
        self._count = 0

    def receive(self, question: dict[str, Any]) -> None:
        """Begin to answer."""
        with self._lock:
            is_refused = self._count >= MAX_LOOKS
            self._count += not is_refused
        if is_refused:
            self._answer(question, {"error": _TOO_MANY})
            return
        # In a context of its own: nothing that it says belongs to an execution.
        context = contextvars.Context()
        threading.Thread(
            target=lambda: context.run(self._look, question), name="taskweaver-look", daemon=True
        ).start()

    def _look(self, question: dict[str, Any]) -> None:
        pending_of_execution.set(_NowhereToGo(_NO_EXECUTION))
        looks: dict[str, Callable[..., dict[str, Any]]] = {
            "complete": self._complete,
            "inspect": self._inspect,
            "peek": self._peek,
        }
        try:
            answer = looks[question["look"]](**question.get("arguments", {}))
        except Exception as error:  # noqa: BLE001 - a question must not end the kernel
            answer = {"error": f"{type(error).__name__}: {error}"}
        finally:
            with self._lock:
                self._count -= 1
        self._answer(question, answer)

    def _answer(self, question: dict[str, Any], answer: dict[str, Any]) -> None:
        self._send(json.dumps({"number": question.get("number", 0), **answer}))

    def _complete(self, code: str, cursor: int, cwd: str) -> dict[str, Any]:
        runtime = self._runtime
        # A kernel that was started in advance is not in its session's folder before it runs code.
        folder = cwd if cwd and not runtime.queue.latest.ordinal else "."
        completer = Completer(runtime.shell.user_ns, runtime.names_of_ours(), self._magics, folder)
        return completer.complete(code, cursor)

    def _magics(self) -> list[str]:
        manager = self._runtime.shell.magics_manager
        magics = manager.lsmagic()
        return [
            *(f"%{name}" for name in list(magics.get("line", ()))),
            *(f"%%{name}" for name in list(magics.get("cell", ()))),
        ]

    def _inspect(self, code: str, cursor: int, detail: int) -> dict[str, Any]:
        name = expression_at(code, cursor)
        found = look_up(self._runtime.shell, name, code) if name else None
        if found is None:
            return {"name": name, "is_found": False}
        return {"name": name, "is_found": True, **describe(found, with_source=detail > 0)}

    def _peek(self, values: bool = True, seconds: float = 1.0) -> dict[str, Any]:
        until = time.monotonic() + seconds
        runtime = self._runtime
        ordinal, began_at = runtime.running
        running = None
        if ordinal:
            running = {
                "ordinal": ordinal,
                "seconds": max(0.0, time.monotonic() - began_at),
                "stack": stack_of(runtime.shell, runtime.awaiting),
            }
        return {
            "running": running,
            "memory_bytes": memory_bytes(),
            **self._variables(values=values, until=until),
        }

    def _variables(self, *, values: bool, until: float) -> dict[str, Any]:
        namespace = self._runtime.shell.user_ns
        known = self._runtime.names_of_ours()
        names = [
            name
            for name in list(namespace)
            if type(name) is str and name not in known and not name.startswith("_")
        ]
        told = []
        for name in names[-MAX_VARIABLES:]:
            value = namespace.get(name)
            is_in_time = values and time.monotonic() < until
            told.append(
                [
                    name[:_MAX_NAME],
                    type_name(value),
                    kind_of(Known(value)),
                    size_of(value) if is_in_time else "",
                    _value_of(value) if is_in_time else "",
                ]
            )
        return {"variables": told, "variable_count": len(names)}


def _value_of(value: Any) -> str:
    try:
        return short_value(value)[:MAX_VALUE_CHARACTERS]
    except Exception:  # noqa: BLE001 - it may be changed while it is looked at
        return ""


def expression_at(code: str, cursor: int) -> str:
    """The name, with what it is an attribute of, that stands at a place; or what is called there.

    What `name?`, `name??` and `?name` ask for is the name.
    """
    stripped = code.strip().strip("?").strip()
    if stripped != code.strip():
        code, cursor = stripped, len(stripped)
    if stripped.startswith("%"):
        return stripped.split()[0]
    end = cursor
    while end < len(code) and (code[end].isalnum() or code[end] == "_"):
        end += 1
    source = SourceText(code[:end])
    if source.open_string is not None or source.is_comment:
        return ""
    found = source.expression_before(len(source.tokens))
    if not found and source.open_brackets:
        found = source.expression_before(source.open_brackets[-1])
    return found
