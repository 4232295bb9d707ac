"""Output that comes after its execution has ended: recorded, then told to the session's handler.

A thread or a background process may write long after the cell that started it.
Such text never reaches the next execution; it is appended to files of its own
and given to the handler on a thread of ours, in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

from taskweaver_ext.ces.execution.events import LateOutput
from taskweaver_ext.ces.execution.masking import OutputMask
from taskweaver_ext.ces.execution.results import ExecutionId, StreamName
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.text.redaction import Redactor

OnLateOutput: TypeAlias = Callable[[LateOutput], None]

_MAX_WAITING = 256
"""Pieces that may wait for a slow handler; beyond, they are in the files only."""

_MAX_MASKS = 64
"""Executions of whose late output an end can be held back at the same time."""

_CLOSE_SECONDS = 5.0

_LookAgain: TypeAlias = Literal["look again"]
_LOOK_AGAIN: Final = "look again"
"""Has the handler's thread see that something is held back."""

_log = logging.getLogger(__name__)


class LateOutputs:
    """Record and pass on the late output of one session.

    Threads:
        The reader calls `receive`. The handler is called on a thread that is
        started with the first piece. The queue and the masks are all they share;
        `_lock` guards the masks and the files.
    """

    def __init__(
        self,
        folder: Path,
        handler: OnLateOutput | None,
        max_bytes: int,
        redactor: Redactor | None = None,
    ) -> None:
        self._folder = folder
        self._handler = handler
        self._bytes_left = max_bytes
        self._redactor = redactor
        self._masks: dict[ExecutionId, OutputMask] = {}
        self._lock = threading.Lock()
        self._waiting: queue.Queue[LateOutput | _LookAgain | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._is_abandoned = False

    def receive(self, execution_id: ExecutionId, stream: StreamName, data: bytes) -> None:
        """Record a piece and queue it for the handler."""
        with self._lock:
            if self._redactor is None:
                self._pass_on(execution_id, stream, data)
                return
            mask = self._masks.pop(execution_id, None) or OutputMask(
                self._redactor, partial(self._pass_on, execution_id)
            )
            self._masks[execution_id] = mask  # behind all others
            if len(self._masks) > _MAX_MASKS:
                self._masks.pop(next(iter(self._masks))).close()
            if mask.receive(stream, data) and self._handler is not None:
                self._ensure_thread()
                with contextlib.suppress(queue.Full):  # then it looks soon enough
                    self._waiting.put_nowait(_LOOK_AGAIN)

    def close(self) -> None:
        """Let the handler finish what is queued and end its thread; inside its call, at once."""
        with self._lock:
            while self._masks:
                self._masks.popitem()[1].close()
        if self._thread is None:
            return
        if self._thread is threading.current_thread():
            self._is_abandoned = True
            return
        with contextlib.suppress(queue.Full):  # its handler does not return
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)

    def _pass_on(self, execution_id: ExecutionId, stream: StreamName, data: bytes) -> None:
        self._record(execution_id, stream, data)
        if self._handler is None:
            return
        self._ensure_thread()
        event = LateOutput(
            execution_id=execution_id, stream=stream, text=data.decode("utf-8", "replace")
        )
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            _log.warning("the handler of late output is too slow; see %s", self._folder)

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._call_handler, name="taskweaver-late-output", daemon=True
            )
            self._thread.start()

    def _record(self, execution_id: ExecutionId, stream: StreamName, data: bytes) -> None:
        if self._bytes_left < len(data):
            return
        self._bytes_left -= len(data)
        path = self._folder / f"{execution_id}.late.{stream}"
        try:
            make_private_folder(self._folder)
            with open(open_private(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(data)
        except OSError as error:
            _log.warning("late output of execution %s is not recorded: %s", execution_id, error)

    def _call_handler(self) -> None:
        assert self._handler is not None
        while not self._is_abandoned and (event := self._next()) is not None:
            try:
                self._handler(event)
            except Exception:  # noqa: BLE001 - a handler's failure is not ours
                _log.exception("the handler of late output failed; it is called again")

    def _next(self) -> LateOutput | None:
        """Wait for the next piece; what a mask holds back becomes one after a while of quiet."""
        while True:
            with self._lock:
                waits = [mask.seconds_to_quiet() for mask in self._masks.values()]
            seconds = min((wait for wait in waits if wait is not None), default=None)
            try:
                following = self._waiting.get(timeout=seconds)
            except queue.Empty:
                with self._lock:
                    for mask in self._masks.values():
                        mask.release_if_quiet()
                continue
            if following != _LOOK_AGAIN:
                return following
