"""One execution, from the client's side: what comes in becomes a record, events and a result.

The reader calls everything here but `deliver`, which runs on the thread of
whoever asked for the execution and is the only place that calls out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from taskweaver_ext.ces.artifacts import ArtifactStore
from taskweaver_ext.ces.delivery import Delivery, OutputText
from taskweaver_ext.ces.events import (
    ArtifactProduced,
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    ExecutionFinished,
    InputRequested,
    LogRecorded,
    OutputCleared,
    OutputProduced,
    StatusReported,
)
from taskweaver_ext.ces.kernel_runtime.plugin_api import ARTIFACT_MIME, LOG_MIME, STATUS_MIME
from taskweaver_ext.ces.output_sink import OutputSink
from taskweaver_ext.ces.results import (
    Display,
    ExecutionId,
    ExecutionResult,
    ExecutionStatus,
    KernelDeath,
    Notice,
    StreamName,
    Usage,
)
from taskweaver_ext.text.terminal import strip_terminal

OnOutput: TypeAlias = Callable[[StreamName, str], None]
OnEvent: TypeAlias = Callable[[ExecutionEvent], None]
OnInput: TypeAlias = Callable[[str, bool], str]

CATCH_UP_SECONDS = 5.0
_MAX_DISPLAY_CHARACTERS = 32 << 20
_MAX_LOG_RECORDS = 10_000

END_OF_INPUT = "\x04"
"""An answer that makes `input()` raise EOFError in the kernel."""

_log = logging.getLogger(__name__)


class Execution:
    """What is known of an execution while it runs, and its result afterwards.

    Threads:
        The reader's thread calls the methods; `deliver` runs on the caller's.
        `_delivery` is all they share until it is finished; then only the
        caller's thread touches the result.
    """

    def __init__(
        self,
        execution_id: ExecutionId,
        code: str,
        *,
        sink: OutputSink,
        artifacts: ArtifactStore,
        metadata: Mapping[str, Any],
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        on_input: OnInput | None = None,
        timeout: float | None = None,
    ) -> None:
        self.id = execution_id
        self.code = code
        self.metadata = {"execution_id": execution_id, **metadata}
        self.timeout = timeout
        self.allow_stdin = on_input is not None
        self.result = ExecutionResult(execution_id=execution_id, code=code)
        self._sink = sink
        self._artifacts = artifacts
        self._on_output = on_output
        self._on_event = on_event
        self._on_input = on_input
        self._delivers_output = on_output is not None or on_event is not None
        self._delivery = Delivery(sink)
        self._started_at = time.monotonic()
        self._ended_at = self._started_at
        self._display_characters = 0
        self._traceback = ""
        self._failed_callbacks: list[Callable[..., None]] = []

    @property
    def is_finished(self) -> bool:
        """Whether the result is complete, but for what the caller's thread adds."""
        return self._delivery.is_finished

    @property
    def has_too_much_output(self) -> bool:
        """Whether the code is to be stopped for what it wrote."""
        return self._sink.limit_reached

    def say(self, event: ExecutionEvent) -> None:
        """Queue an event for the caller."""
        self._delivery.put(event)

    def add_notice(self, notice: Notice) -> None:
        """Add something the caller should know."""
        self.result.notices.append(notice)

    def take_output(self, stream: StreamName, data: bytes) -> None:
        """Record output, then queue it for the caller."""
        if self._sink.limit_reached:
            return
        offset = self._sink.write(stream, data)
        if self._delivers_output:
            self._delivery.put_output(stream, data, offset)

    def take_message(self, message_type: str, content: dict[str, Any]) -> None:
        """Take what the code published."""
        if message_type in ("display_data", "execute_result"):
            self._take_display(content, is_result=message_type == "execute_result")
        elif message_type == "update_display_data":
            self._update_display(content)
        elif message_type == "clear_output":
            self.say(OutputCleared(execution_id=self.id, wait=bool(content.get("wait"))))
        elif message_type == "error":
            self._traceback = strip_terminal("\n".join(content.get("traceback", ())))
        elif message_type == "stream" and content.get("name") in ("stdout", "stderr"):
            self.take_output(content["name"], content["text"].encode("utf-8", "backslashreplace"))

    def _take_display(self, content: dict[str, Any], *, is_result: bool) -> None:
        bundle = content.get("data", {})
        if LOG_MIME in bundle:
            self._take_log(bundle[LOG_MIME])
        elif ARTIFACT_MIME in bundle:
            self._take_artifact(bundle[ARTIFACT_MIME])
        elif STATUS_MIME in bundle:
            self.say(StatusReported(execution_id=self.id, report=bundle[STATUS_MIME]))
        else:
            self._keep_display(content, bundle, is_result=is_result)

    def _keep_display(
        self, content: dict[str, Any], bundle: dict[str, Any], *, is_result: bool
    ) -> None:
        display = Display(
            bundle=bundle,
            metadata=content.get("metadata", {}),
            display_id=content.get("transient", {}).get("display_id"),
            is_result=is_result,
        )
        if is_result:
            self.result.output = str(bundle.get("text/plain", ""))
        number = len(self.result.artifact) + 1
        for artifact in self._artifacts.save_images(self.id, number, bundle):
            self.result.artifact.append(artifact)
            self.say(ArtifactProduced(execution_id=self.id, artifact=artifact))
        self._display_characters += sum(len(v) for v in bundle.values() if isinstance(v, str))
        if self._display_characters <= _MAX_DISPLAY_CHARACTERS:
            self.result.displays.append(display)
        else:
            self._note_once(
                "More was displayed than a result holds; the rest was shown but is not in"
                " result.displays (images are saved as artifacts)."
            )
        self.say(
            DisplayProduced(
                execution_id=self.id,
                bundle=bundle,
                metadata=display.metadata,
                display_id=display.display_id,
                is_result=is_result,
            )
        )

    def _update_display(self, content: dict[str, Any]) -> None:
        display_id = str(content.get("transient", {}).get("display_id", ""))
        bundle, metadata = content.get("data", {}), content.get("metadata", {})
        for display in self.result.displays:
            if display.display_id == display_id:
                display.bundle, display.metadata = bundle, metadata
        self.say(
            DisplayUpdated(
                execution_id=self.id, display_id=display_id, bundle=bundle, metadata=metadata
            )
        )

    def _take_log(self, record: dict[str, Any]) -> None:
        level, tag, message = (str(record.get(key, "")) for key in ("level", "tag", "message"))
        if len(self.result.log) < _MAX_LOG_RECORDS:
            self.result.log.append((level, tag, message))
        else:
            self._note_once(
                f"Only the first {_MAX_LOG_RECORDS:,} log records are in result.log;"
                " all were shown."
            )
        self.say(LogRecorded(execution_id=self.id, level=level, tag=tag, message=message))

    def _take_artifact(self, announcement: dict[str, Any]) -> None:
        artifact = self._artifacts.accept(announcement)
        if artifact is None:
            path = announcement.get("path", announcement.get("name"))
            self.add_notice(
                Notice(
                    kind="host",
                    message=f"An artifact was announced at {path!r}, which is not a file in the"
                    " session's working directory; it is left out.",
                )
            )
            return
        self.result.artifact.append(artifact)
        self.say(ArtifactProduced(execution_id=self.id, artifact=artifact))

    def _note_once(self, message: str) -> None:
        notice = Notice(kind="truncated", message=message)
        if notice not in self.result.notices:
            self.add_notice(notice)

    def end_with_reply(self, reply: dict[str, Any]) -> None:
        """The code ran to its end, or raised."""
        result = self.result
        result.exit_code = reply.get("exit_code")
        usage = reply.get("usage", {})
        result.usage = Usage(
            peak_memory_bytes=usage.get("peak_memory_bytes"), cpu_seconds=usage.get("cpu_seconds")
        )
        if reply.get("status") == "ok" or result.exit_code == 0:
            self.end(ExecutionStatus.SUCCESS, None)
        elif result.exit_code is not None:
            self.end(ExecutionStatus.ERROR, f"SystemExit: {reply.get('evalue', '')}")
        else:
            traceback = self._traceback or strip_terminal("\n".join(reply.get("traceback", ())))
            self.end(ExecutionStatus.ERROR, traceback or str(reply.get("evalue", "unknown error")))

    def end_with_death(self, death: KernelDeath, status: ExecutionStatus, error: str) -> None:
        """The kernel is gone, and the variables with it."""
        self.result.death = death
        self.result.variables_survived = False
        self.end(status, error)

    def end(self, status: ExecutionStatus, error: str | None) -> None:
        """Complete the result; only the first call counts."""
        if self.is_finished:
            return
        self._ended_at = time.monotonic()
        self.result.status = status
        self.result.error = error
        self.result.duration_seconds = self._ended_at - self._started_at
        self.say(ExecutionFinished(execution_id=self.id, status=status, error=error or ""))
        self._delivery.finish()

    def deliver(self, answer: Callable[[str], None]) -> ExecutionResult:
        """Call out for everything that happens, until the end; then give the result.

        A callback that raises is logged once and called again; one that is
        too slow is waited for until `CATCH_UP_SECONDS` after the code's end.
        """
        while not self._delivery.is_drained:
            delivered = self._delivery.take(None)
            if isinstance(delivered, OutputText):
                self._call_with_text(delivered)
            elif delivered is not None:
                if isinstance(delivered, InputRequested):
                    self._ask(delivered, answer)
                self._call(self._on_event, delivered)
            if self.is_finished and time.monotonic() > self._ended_at + CATCH_UP_SECONDS:
                self._skip_the_rest()
                break
        record = self._sink.finish()
        self.result.stdout, self.result.stderr = record.stdout, record.stderr
        self.result.full_output_paths = record.full_output_paths
        self.result.notices += record.notices
        return self.result

    def wait_until_finished(self, seconds: float) -> bool:
        """Wait without calling out; used when the caller's own thread was interrupted."""
        deadline = time.monotonic() + seconds
        while not self._delivery.is_drained and time.monotonic() < deadline:
            self._delivery.take(max(0.0, deadline - time.monotonic()))
        return self.is_finished

    def _skip_the_rest(self) -> None:
        if skipped := self._delivery.waiting_bytes:
            self.add_notice(
                Notice(
                    kind="display_skipped",
                    message=f"on_output was too slow: {skipped:,} bytes were recorded but not"
                    f" shown within {CATCH_UP_SECONDS:g} s of the code's end.",
                )
            )

    def _call_with_text(self, output: OutputText) -> None:
        if self._on_output is not None:
            self._call(self._on_output, output.stream, output.text)
        if self._on_event is not None:
            event = OutputProduced(execution_id=self.id, stream=output.stream, text=output.text)
            self._call(self._on_event, event)

    def _call(self, callback: Callable[..., None] | None, *args: object) -> None:
        if callback is None:
            return
        try:
            callback(*args)
        except Exception:  # noqa: BLE001 - whatever a caller's function raises, the code goes on
            if callback not in self._failed_callbacks:
                self._failed_callbacks.append(callback)
                _log.exception("a callback of execution %s failed; the execution goes on", self.id)

    def _ask(self, question: InputRequested, answer: Callable[[str], None]) -> None:
        """Ask on a thread of its own: the question may become void while somebody thinks."""
        on_input = self._on_input
        if on_input is None:
            return

        def ask() -> None:
            try:
                text = on_input(question.prompt, question.password)
            except Exception:  # noqa: BLE001 - the code sees the end of its input
                _log.exception("on_input of execution %s failed; the code gets EOFError", self.id)
                text = END_OF_INPUT
            answer(text)

        threading.Thread(target=ask, name="taskweaver-input", daemon=True).start()
