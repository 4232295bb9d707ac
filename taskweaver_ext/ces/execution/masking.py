"""The gate for secrets: what an execution says is masked here, before it is recorded or told.

What is masked once is masked for everybody: for the record, for callbacks, for events and for the
result. Pieces of output are masked as one text, however they are cut; files of the code and the
code itself stay as they are.

A piece that ends in what may be the beginning of a secret is not recorded whole at once. The rest
follows with the next piece, before anything else that the code says, and after `QUIET_SECONDS`
without output, so that a prompt is not kept from a person. Such a pause shows at most the first
half of a secret; a secret of which half is there waits for more, until the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from taskweaver_ext.ces.execution.results import ExecutionArtifact, StreamName
from taskweaver_ext.text.redaction import RedactedStream, Redactor

QUIET_SECONDS = 0.1
"""How long the end of a piece waits for what follows."""

RecordBytes: TypeAlias = Callable[[StreamName, bytes], None]

_BINARY_TYPES = ("image/", "audio/", "video/", "font/", "application/pdf", "application/octet-")
_TEXT_IMAGE = "image/svg"


class OutputMask:
    """Mask both streams of an execution on their way to its record.

    Threads:
        Any thread may call any method. `_lock` guards the streams, and is held while
        `record` is called, so that pieces are recorded in their order.
    """

    def __init__(self, redactor: Redactor, record: RecordBytes) -> None:
        self._record = record
        self._streams: dict[StreamName, RedactedStream] = {
            "stdout": redactor.stream(),
            "stderr": redactor.stream(),
        }
        self._lock = threading.Lock()
        self._release_at: float | None = None

    def receive(self, stream: StreamName, data: bytes) -> bool:
        """Record a piece as far as it is certain; return whether an end of it has to wait.

        What the other stream holds back comes first: order between the two is part of the text.
        """
        with self._lock:
            other: StreamName = "stderr" if stream == "stdout" else "stdout"
            if self._streams[other].is_holding:
                self._pass_on(other, self._streams[other].flush())
            text = data.decode("utf-8", "surrogateescape")
            masked = self._streams[stream].feed(text)
            if masked == text:
                self._record(stream, data)
            else:
                self._pass_on(stream, masked)
            waits = self._streams[stream].is_holding
            self._release_at = time.monotonic() + QUIET_SECONDS if waits else None
            return waits

    def seconds_to_quiet(self) -> float | None:
        """Return how long until what is held back is due; None when nothing is."""
        release_at = self._release_at
        return None if release_at is None else max(0.0, release_at - time.monotonic())

    def release_if_quiet(self) -> None:
        """Release what is held back if nothing has come for long enough."""
        if self._release_at is not None and time.monotonic() >= self._release_at:
            self.release()

    def release(self) -> None:
        """Record what is held back, but for what is half of a secret by now."""
        self._empty(RedactedStream.flush)

    def close(self) -> None:
        """Record all that is held back: what has not become a secret is none."""
        self._empty(RedactedStream.close)

    def _empty(self, empty: Callable[[RedactedStream], str]) -> None:
        with self._lock:
            self._release_at = None
            for name, stream in self._streams.items():
                if stream.is_holding:
                    self._pass_on(name, empty(stream))

    def _pass_on(self, stream: StreamName, text: str) -> None:
        if text:
            self._record(stream, text.encode("utf-8", "surrogateescape"))


def mask_message(redactor: Redactor, content: Mapping[str, Any], *, kept: str) -> dict[str, Any]:
    """Return what a kernel published with its texts masked; pictures and the like are no texts.

    Args:
        kept: What of a bundle is masked elsewhere.
    """
    bundle = content.get("data")
    if not isinstance(bundle, dict):
        return dict(redactor.redact_json(dict(content)))
    texts = {kind: value for kind, value in bundle.items() if kind != kept and not _is_binary(kind)}
    masked = iter(redactor.redact_json(texts).items())
    others = redactor.redact_json({key: value for key, value in content.items() if key != "data"})
    in_order = (next(masked) if kind in texts else (kind, bundle[kind]) for kind in bundle)
    return {**others, "data": dict(in_order)}


def mask_announcement(redactor: Redactor, announcement: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of a file with its texts masked, but for where and what it is."""
    files = {key: announcement[key] for key in ("path", "content") if key in announcement}
    texts = {key: value for key, value in announcement.items() if key not in files}
    return {**redactor.redact_json(texts), **files}


def mask_place(redactor: Redactor, artifact: ExecutionArtifact) -> ExecutionArtifact:
    """Return an artifact whose place is masked, which then says where it is no more."""
    return replace(artifact, file_name=redactor.redact(artifact.file_name))


def _is_binary(mime_type: object) -> bool:
    kind = str(mime_type).lower()
    return kind.startswith(_BINARY_TYPES) and not kind.startswith(_TEXT_IMAGE)
