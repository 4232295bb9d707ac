"""One execution, from the client's side: what comes in becomes a record, events and a result.

The reader calls everything here but `deliver`, which runs on the caller's
thread and is the only place that calls out.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taskweaver_ext.ces.execution.artifacts import INCOMPLETE, ArtifactStore
from taskweaver_ext.ces.execution.events import (
    ArtifactProduced,
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    InputRequested,
    LogRecorded,
    OutputCleared,
    StatusReported,
)
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.masking import mask_announcement, mask_message, mask_place
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.recorded_run import RecordedRun
from taskweaver_ext.ces.execution.results import (
    Display,
    ExecutionArtifact,
    ExecutionResult,
    ExecutionStatus,
    KernelDeath,
    MimeBundle,
    Notice,
)
from taskweaver_ext.ces.inside.kernel.plugin_api import ARTIFACT_MIME, LOG_MIME, STATUS_MIME
from taskweaver_ext.ces.kernels.client.checked_fields import CheckedFields
from taskweaver_ext.ces.kernels.client.display_parts import DisplayParts, LargePart
from taskweaver_ext.ces.kernels.client.host import ExecutionReply, InputWanted, PieceReceived
from taskweaver_ext.ces.kernels.client.kept_displays import (
    VALUE_CHARACTERS,
    KeptDisplays,
    characters_in,
)
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.redaction import Redactor
from taskweaver_ext.text.terminal import strip_terminal
from taskweaver_ext.text.truncation import shorten_middle

_MAX_TEXT_CHARACTERS = 1 << 20
_MAX_LOG_RECORDS = 10_000
_MAX_LOG_CHARACTERS = 32 << 20
_MAX_ARTIFACTS = 10_000
_MAX_PATH_CHARACTERS = 500
_MAX_NAME_CHARACTERS = 1000
_SENDER = "A kernel"

END_OF_INPUT = "\x04"
"""An answer that makes `input()` raise EOFError in the kernel."""

_log = logging.getLogger(__name__)


class Execution(RecordedRun):
    """What is known of an execution while it runs, and its result afterwards.

    Threads:
        As `RecordedRun`: the reader's thread calls the methods, `deliver`
        runs on the caller's.
    """

    def __init__(
        self,
        code: str,
        options: RunOptions,
        *,
        sink: OutputSink,
        artifacts: ArtifactStore,
        metadata: Mapping[str, Any],
        redactor: Redactor | None = None,
    ) -> None:
        super().__init__(code, options, sink, redactor)
        self.code = code
        self.metadata = {"execution_id": self.id, **metadata}
        self.timeout = options.timeout
        self.allow_stdin = options.on_input is not None
        self.answer: Callable[[int, str], None] = lambda _question, _text: None
        """Where the answer to a question of the code goes; set by the session."""
        self._artifacts = artifacts
        self._on_input = options.on_input
        self._parts = DisplayParts(sink.folder, self.id, redactor)
        self._names_files = options.record_on_disk
        self._told_files: set[str] = set()
        self._displays = KeptDisplays(
            self.result.displays, self._note_cut, holds_large=not self._names_files
        )
        self._log_characters = 0
        self._artifact_count = 0
        self._traceback = ""

    def receive_message(self, message_type: str, content: dict[str, Any]) -> None:
        """Take what the code published.

        Raises:
            ProtocolError: It is not as kernels make messages, whatever the code.
            AttributeError, KeyError, OSError, TypeError, ValueError: It cannot be used.
        """
        if self.has_too_much_output:
            return
        if self._redactor is not None and message_type not in ("stream", "error"):
            content = mask_message(self._redactor, content, kept=ARTIFACT_MIME)
        fields = CheckedFields(content, _SENDER)
        if message_type in ("display_data", "execute_result"):
            self._receive_display(fields, is_result=message_type == "execute_result")
        elif message_type == "update_display_data":
            self._update_display(fields)
        elif message_type == "clear_output":
            self._tell(OutputCleared(execution_id=self.id, wait=fields.value("wait") is True))
        elif message_type == "error":
            traceback = "\n".join(fields.texts("traceback"))
            self._traceback = self._masked(strip_terminal(traceback))
        elif message_type == "stream":
            is_error = fields.text("name") == "stderr"
            data = fields.text("text").encode("utf-8", "backslashreplace")
            self.receive_output("stderr" if is_error else "stdout", data)

    def _tell(self, event: ExecutionEvent, characters: int = 0) -> None:
        """Queue what the code published; it counts towards what the code may write."""
        self._sink.count_elsewhere(characters + VALUE_CHARACTERS)
        self.say(event, characters)

    def _receive_display(self, fields: CheckedFields, *, is_result: bool) -> None:
        bundle = fields.mapping("data")
        if LOG_MIME in bundle:
            self._receive_log(_object(bundle[LOG_MIME]))
        elif ARTIFACT_MIME in bundle:
            self._receive_artifact(_object(bundle[ARTIFACT_MIME]))
        elif STATUS_MIME in bundle:
            report = _object(bundle[STATUS_MIME])
            event = StatusReported(execution_id=self.id, report=report)
            self._tell(event, characters_in(report))
        else:
            self._receive_shown(fields, is_result=is_result)

    def _receive_shown(self, fields: CheckedFields, *, is_result: bool) -> None:
        bundle, parts = fields.mapping("data"), self._claim_parts(fields)
        display = Display(
            bundle=bundle,
            metadata=fields.mapping("metadata"),
            display_id=_display_id(fields),
            is_result=is_result,
        )
        if is_result:
            self._keep_value(bundle, parts)
        self._save_images(bundle, parts)
        self._displays.add(display, parts)
        self._tell(
            DisplayProduced(
                execution_id=self.id,
                bundle=bundle,
                metadata=display.metadata,
                display_id=display.display_id,
                is_result=is_result,
                files=_files_of(parts),
            ),
            characters_in([bundle, display.metadata]),
        )

    def _claim_parts(self, fields: CheckedFields) -> dict[str, LargePart]:
        parts, complaints = self._parts.claim(fields)
        for complaint in complaints:
            self._note_cut(complaint)
        return parts

    def _keep_value(self, bundle: MimeBundle, parts: Mapping[str, LargePart]) -> None:
        if part := parts.get("text/plain"):
            self.result.output = part.shortened(_MAX_TEXT_CHARACTERS)
            self._note_shortened()
        else:
            self.result.output = self._bounded(str(bundle.get("text/plain", "")))

    def _save_images(self, bundle: MimeBundle, parts: Mapping[str, LargePart]) -> None:
        if self._artifact_count >= _MAX_ARTIFACTS:
            return
        files = {kind: part.path for kind, part in parts.items() if part.is_decoded(kind)}
        number = self._artifact_count + 1
        for artifact in self._artifacts.save_images(self.id, number, bundle, files):
            self._add_artifact(artifact)

    def _update_display(self, fields: CheckedFields) -> None:
        display_id = _display_id(fields) or ""
        bundle, metadata = fields.mapping("data"), fields.mapping("metadata")
        parts = self._claim_parts(fields)
        self._displays.update(display_id, bundle, metadata, parts)
        self._tell(
            DisplayUpdated(
                execution_id=self.id,
                display_id=display_id,
                bundle=bundle,
                metadata=metadata,
                files=_files_of(parts),
            ),
            characters_in([bundle, metadata]),
        )

    def receive_piece(self, piece: PieceReceived) -> None:
        """Keep a piece of a display; raises ProtocolError if it does not belong to the others."""
        if not self.has_too_much_output:
            self._sink.count_elsewhere(len(piece.data))
            self._parts.receive(piece)

    def _receive_log(self, record: dict[str, Any]) -> None:
        level, tag = (str(record.get(key, ""))[:_MAX_NAME_CHARACTERS] for key in ("level", "tag"))
        message = str(record.get("message", ""))
        count, self._log_characters = len(self.result.log), self._log_characters + len(message)
        if count < _MAX_LOG_RECORDS and self._log_characters <= _MAX_LOG_CHARACTERS:
            self.result.log.append((level, tag, message))
        else:
            self._note_cut(
                f"Only the first {count:,} log records are in result.log; all were shown."
            )
        event = LogRecorded(execution_id=self.id, level=level, tag=tag, message=message)
        self._tell(event, len(message))

    def _receive_artifact(self, announcement: dict[str, Any]) -> None:
        if self._redactor is not None:
            announcement = mask_announcement(self._redactor, announcement)
        if "content" in announcement and self._artifact_count >= _MAX_ARTIFACTS:
            self._note_cut(f"Only {_MAX_ARTIFACTS:,} files of an execution are kept.")
            return
        self._sink.count_elsewhere(len(str(announcement.get("content", ""))))
        artifact = self._artifacts.accept(announcement)
        if artifact == INCOMPLETE:
            return
        if artifact is None:
            path = str(announcement.get("path", announcement.get("name")))[:_MAX_PATH_CHARACTERS]
            self.add_notice(
                Notice(
                    kind="host",
                    message=f"An artifact was announced at {path!r}, which is not a file in the"
                    " session's working directory; it is left out.",
                )
            )
            return
        self._add_artifact(artifact)

    def _add_artifact(self, artifact: ExecutionArtifact) -> None:
        if self._redactor is not None:
            artifact = mask_place(self._redactor, artifact)
        self._artifact_count += 1
        if self._artifact_count <= _MAX_ARTIFACTS:
            self.result.artifact.append(artifact)
        else:
            self._note_cut(
                f"Only the first {_MAX_ARTIFACTS:,} artifacts are in result.artifact;"
                " all were shown."
            )
        self._tell(ArtifactProduced(execution_id=self.id, artifact=artifact))

    def _bounded(self, text: str) -> str:
        """A text of the result; one that is too long loses its middle, which is noted."""
        if len(text) > _MAX_TEXT_CHARACTERS:
            self._note_shortened()
        return shorten_middle(text, _MAX_TEXT_CHARACTERS)

    def _note_shortened(self) -> None:
        self._note_cut("A value or an error was too long for the result and was shortened.")

    def _note_cut(self, message: str) -> None:
        self.add_notice(Notice(kind="truncated", message=message))

    def end_before_it_began(self) -> None:
        """It was cancelled before the kernel had its code."""
        self.end(ExecutionStatus.CANCELLED, "The code was interrupted before it began.")

    def end_with_reply(self, reply: ExecutionReply) -> None:
        """The code ran to its end, or raised."""
        result = self.result
        result.exit_code, result.usage = reply.exit_code, reply.usage
        if reply.is_ok or result.exit_code == 0:
            if self._traceback:  # of something that failed beside the code, such as a callback
                self.receive_output("stderr", f"{self._traceback}\n".encode())
            self.end(ExecutionStatus.SUCCESS, None)
        elif result.exit_code is not None:
            self.end(ExecutionStatus.ERROR, f"SystemExit: {reply.error_text}")
        else:
            traceback = self._bounded(self._traceback) or self._bounded(
                strip_terminal("\n".join(reply.traceback))
            )
            named = f"{reply.error_name or 'unknown error'}: {reply.error_text}"
            self.end(ExecutionStatus.ERROR, traceback or named.removesuffix(": "))

    def end_with_death(self, death: KernelDeath, status: ExecutionStatus, error: str) -> None:
        """The kernel is gone, and the variables with it."""
        self.result.death = death
        self.result.variables_survived = False
        self.end(status, error)

    def wait_until_finished(self, seconds: float) -> bool:
        """Wait without calling out; used when the caller's own thread was interrupted."""
        deadline = time.monotonic() + seconds
        while not self._delivery.is_drained and time.monotonic() < deadline:
            self._delivery.receive(max(0.0, deadline - time.monotonic()))
        return self.is_finished

    def ask(self, number: int, question: InputWanted) -> None:
        """Queue a question of the code."""
        event = InputRequested(
            execution_id=self.id,
            number=number,
            prompt=question.prompt,
            password=question.password,
        )
        self.say(event, len(question.prompt))

    def _as_told(self, event: ExecutionEvent) -> ExecutionEvent:
        if isinstance(event, InputRequested):
            self._ask(event)
        if isinstance(event, DisplayProduced | DisplayUpdated) and not self._names_files:
            return self._with_large_parts(event) if self._on_event is not None else event
        return event

    def _with_large_parts(
        self, event: DisplayProduced | DisplayUpdated
    ) -> DisplayProduced | DisplayUpdated:
        """Read what is in files into the bundle; what takes too much memory stays a file."""
        bundle, files = dict(event.bundle), dict(event.files)
        for kind, path in event.files.items():
            with contextlib.suppress(OSError, ProtocolError, ValueError):
                bundle[kind] = self._parts.part(path).read()
                del files[kind]
        self._told_files.update(files.values())
        return replace(event, bundle=bundle, files=files)

    def deliver(self) -> ExecutionResult:
        """Call out for everything that happens; files that nothing names are removed at the end."""
        result = super().deliver()
        named = {path for display in result.displays for path in display.files.values()}
        self._parts.close(None if self._names_files else named | self._told_files)
        return result

    def abandon(self) -> None:
        """Let go of the record and of the files of displays."""
        super().abandon()
        self._parts.close()

    def _ask(self, question: InputRequested) -> None:
        """Ask on a thread of its own: the question may become void before its answer."""
        on_input = self._on_input
        if on_input is None:
            return

        def ask() -> None:
            text: object = END_OF_INPUT
            try:
                text = on_input(question.prompt, question.password)
                if not isinstance(text, str):
                    raise TypeError(f"on_input gave {text!r}, not a text")
            except BaseException:  # noqa: BLE001 - the code sees the end of its input
                _log.exception("on_input of execution %s failed; the code gets EOFError", self.id)
                text = END_OF_INPUT
            self.answer(question.number, str(text))

        threading.Thread(target=ask, name="taskweaver-input", daemon=True).start()


def _files_of(parts: Mapping[str, LargePart]) -> dict[str, str]:
    return {kind: str(part.path) for kind, part in parts.items()}


def _object(value: object) -> dict[str, Any]:
    """What only our own code publishes, but any code can."""
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


def _display_id(fields: CheckedFields) -> str | None:
    display_id = fields.fields("transient").value("display_id")
    return None if display_id is None else str(display_id)[:_MAX_NAME_CHARACTERS]
