"""One run of a program, from its caller's side: a record, events, calls and a result.

The thread that reads the program's output records it and queues it here, and
never waits. The caller's functions are called on the caller's own thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from taskweaver_ext.ces.execution.cancellation import OnCancel
from taskweaver_ext.ces.execution.delivery import Delivery, OutputTexts
from taskweaver_ext.ces.execution.events import (
    ExecutionEvent,
    ExecutionFinished,
    InputRequested,
    OutputProduced,
    StatusChanged,
)
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.masking import OutputMask
from taskweaver_ext.ces.execution.output_runs import STREAMS, OutputRuns
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import (
    ExecutionResult,
    ExecutionStatus,
    HostNotice,
    Notice,
    StreamName,
)
from taskweaver_ext.text.redaction import Redactor

CATCH_UP_SECONDS = 5.0
"""How long a slow callback is waited for after the program's end."""
CANCELLED_CATCH_UP_SECONDS = 0.05
"""A user who interrupts wants it to be over, not to watch the rest."""

_MAX_NOTICES = 100
_MORE_NOTICES = Notice(kind="host", message="More happened than can be told here.")

_log = logging.getLogger(__name__)


class RecordedRun:
    """What is known of a run while it lasts, and its result afterwards.

    Threads:
        `receive_output`, `receive_runs`, `say`, `add_notice`, `stop_with` and `end`
        belong to the thread that reads the output; `deliver` to the caller's. The
        delivery is all they share until it is finished; then only the caller touches
        the result.
    """

    def __init__(
        self,
        code: str,
        options: RunOptions,
        sink: OutputSink,
        redactor: Redactor | None = None,
    ) -> None:
        """Begin to record.

        Args:
            redactor: Masks secrets in all that is recorded and told.
        """
        self.id = options.execution_id
        self.token = options.token
        self.result = ExecutionResult(execution_id=self.id, code=code)
        self._sink = sink
        self._on_output = options.on_output
        self._on_event = options.on_event
        self._delivers_output = self._on_output is not None or self._on_event is not None
        self._stop: OnCancel | None = None
        self._delivery = Delivery(sink)
        self._redactor = redactor
        self._mask = OutputMask(redactor, self._record) if redactor else None
        self._started_at = time.monotonic()
        self._ended_at = self._started_at
        self._skipped_bytes = 0
        self._failed_callbacks: list[Callable[..., object]] = []

    @property
    def is_finished(self) -> bool:
        """Whether the result is complete, but for what the caller's thread adds."""
        return self._delivery.is_finished

    @property
    def has_too_much_output(self) -> bool:
        """Whether the program is to be stopped for what it wrote."""
        return self._sink.limit_reached

    def stop_with(self, stop: OnCancel) -> None:
        """Have a function called when the run is cancelled, or was, until it has ended."""
        self._stop = stop
        self.token.on_cancel(stop)

    def say(self, event: ExecutionEvent, characters: int = 0) -> None:
        """Queue an event for the caller, with how many characters it holds if those may be many."""
        if self._redactor is not None:
            event = self._before_and_masked(event, self._redactor)
        self._delivery.put(event, characters)

    def _before_and_masked(self, event: ExecutionEvent, redactor: Redactor) -> ExecutionEvent:
        """Let go of the output before an event, and mask what is not the code's message."""
        if self._mask is not None:
            self._mask.release()
        if isinstance(event, InputRequested):
            return replace(event, prompt=redactor.redact(event.prompt))
        if isinstance(event, StatusChanged):
            return replace(event, detail=redactor.redact(event.detail))
        return event

    def add_notice(self, notice: Notice) -> None:
        """Add something the caller should know, once; what code causes without end, not all."""
        notice = replace(notice, message=self._masked(notice.message))
        notices = self.result.notices
        if notice.kind == "host" and len(notices) >= _MAX_NOTICES:
            notice = _MORE_NOTICES
        if notice not in notices:
            notices.append(notice)

    def receive_notice(self, notice: HostNotice) -> None:
        """Tell the caller what happens to the place the code runs in."""
        if notice.status == "output_lost":
            self.add_notice(Notice(kind="output_lost", message=notice.message))
            return
        self.say(StatusChanged(execution_id=self.id, status=notice.status, detail=notice.message))
        kind: Literal["limit", "host"] = "limit" if notice.status == "limit" else "host"
        self.add_notice(Notice(kind=kind, message=notice.message))

    def receive_output(self, stream: StreamName, data: bytes) -> None:
        """Record output, then queue it for the caller."""
        if self._sink.limit_reached:
            return
        if self._mask is None:
            self._record(stream, data)
        elif self._mask.receive(stream, data):
            self._delivery.wake()

    def recorded_bytes(self, stream: StreamName) -> int:
        """How long the record of a stream is, now that no more text of it comes."""
        if self._mask is not None:
            self._mask.close()
        return self._sink.size(stream)

    def _record(self, stream: StreamName, data: bytes) -> None:
        offsets = self._sink.sizes
        self._sink.write(stream, data)
        if self._delivers_output:
            self._delivery.put_output(stream, data, offsets)

    def receive_runs(self, runs: OutputRuns) -> None:
        """Record output of both streams, then queue it for the caller in its order."""
        if self._sink.limit_reached:
            return
        if self._mask is not None:
            for stream, data in runs:
                self.receive_output(stream, data)
            return
        offsets = self._sink.sizes
        for stream, data in zip(STREAMS, runs.data, strict=True):
            if data:
                self._sink.write(stream, data)
        if self._delivers_output:
            self._delivery.put_runs(runs, offsets)

    def end(self, status: ExecutionStatus, error: str | None = None) -> None:
        """Complete the result; only the first call counts."""
        if self.is_finished:
            return
        if self._mask is not None:
            self._mask.close()
        self._ended_at = time.monotonic()
        self.result.status = status
        self.result.error = error and self._masked(error)
        if death := self.result.death:
            self.result.death = replace(death, detail=self._masked(death.detail))
        self.result.duration_seconds = self._ended_at - self._started_at
        if self._stop is not None:
            self.token.forget(self._stop)
            self._stop = None
        self._delivery.finish()

    def deliver(self) -> ExecutionResult:
        """Call out for everything that happens, until the end; then give the result.

        A callback that raises is logged once and called again.
        """
        mask = self._mask
        while not self._delivery.is_drained:
            delivered = self._delivery.receive(None if mask is None else mask.seconds_to_quiet())
            if mask is not None:
                mask.release_if_quiet()
            if isinstance(delivered, OutputTexts):
                self._call_with_texts(delivered)
            elif delivered is not None:
                self._call(self._on_event, self._as_told(delivered))
            if self._is_too_late:
                break
        self._note_what_was_skipped()
        self._delivery.close()
        record = self._sink.finish()
        self.result.stdout, self.result.stderr = record.stdout, record.stderr
        self.result.full_output_paths = record.full_output_paths
        self.result.notices += record.notices
        self._call(self._on_event, ExecutionFinished.of(self.result))
        return self.result

    def _masked(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.redact(text)

    def _as_told(self, event: ExecutionEvent) -> ExecutionEvent:
        """Return what the caller is told, on the caller's thread, when it is the event's turn."""
        return event

    def abandon(self) -> None:
        """Let go of the record without calling out: the caller's own thread was interrupted."""
        self._delivery.close()
        self._sink.close()

    @property
    def _catch_up_seconds(self) -> float:
        is_cancelled = self.result.status is ExecutionStatus.CANCELLED
        return CANCELLED_CATCH_UP_SECONDS if is_cancelled else CATCH_UP_SECONDS

    @property
    def _is_too_late(self) -> bool:
        """Whether the program has ended and a slow callback has had its time to catch up."""
        return self.is_finished and time.monotonic() > self._ended_at + self._catch_up_seconds

    def _note_what_was_skipped(self) -> None:
        skipped = self._delivery.waiting_bytes + self._skipped_bytes
        events = self._delivery.waiting_events
        if not skipped and not events:
            return
        parts = [f"{skipped:,} bytes"] if skipped else []
        if events:
            parts.append(f"{events:,} other events, such as displays,")
        self.add_notice(
            Notice(
                kind="display_skipped",
                message=f"on_output was too slow: {' and '.join(parts)} were recorded but not"
                f" shown within {self._catch_up_seconds:g} s of the end.",
            )
        )

    def _call_with_texts(self, texts: OutputTexts) -> None:
        on_output, on_event = self._on_output, self._on_event
        for stream, text, offset, size in texts:
            if on_output is not None:
                self._call(on_output, stream, text)
            if on_event is not None:
                event = OutputProduced(
                    execution_id=self.id, stream=stream, text=text, offset=offset, size=size
                )
                self._call(on_event, event)
            if self._is_too_late:
                self._skipped_bytes = texts.left_bytes
                return

    def _call(self, callback: Callable[..., object] | None, *args: object) -> None:
        if callback is None:
            return
        try:
            callback(*args)
        except Exception:  # noqa: BLE001 - whatever a caller's function raises, the run goes on
            if callback not in self._failed_callbacks:
                self._failed_callbacks.append(callback)
                _log.exception("a callback of execution %s failed; the execution goes on", self.id)
