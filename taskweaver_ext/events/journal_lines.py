"""What a session's journal looks like on the disk, line by line.

`journal.jsonl` begins with a header; every process that goes on with the session adds a line with
its epoch; every other line is an event. Output of executions is not written twice: its line says
where in the record it is (`ces/output/<execution_id>.<stream>`), unless the record has it not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from taskweaver_ext.ces.execution.event_json import UnknownKindError
from taskweaver_ext.ces.execution.executor import NAME
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.events.event_json import event_to_json, session_event_from_json
from taskweaver_ext.events.types import PostEventType, TaskWeaverEvent
from taskweaver_ext.machine.private_files import open_to_read

JOURNAL = "journal.jsonl"
FORMAT = 1
LONGEST_HEADER = 1 << 16
RECORDS = Path("ces", "output")
"""Where in a session's folder the records of its executions are."""
EPOCH_START = b'{"epoch":'
OUTPUT_START = b'{"event":"post_execution_output",'

_SEQ = re.compile(rb'\{"event":"[a-z0-9_]{1,40}","seq":([1-9][0-9]{0,14}),')
_MAX_TEXT_BYTES = 1 << 24
"""More than an event of output ever has; what is garbled must not fill our memory."""
_STREAMS = ("stdout", "stderr")


def line_of_event(event: TaskWeaverEvent, records: Path) -> bytes:
    """Return the line of an event; text that its execution's record has is left to that."""
    values = event_to_json(event)
    is_output = event.t is PostEventType.post_execution_output
    if is_output and _is_recorded(values["extra"], records):
        values.pop("msg", None)
    return line_of(values)


def line_of(values: Mapping[str, Any]) -> bytes:
    """Return an object as one line of plain ASCII."""
    return json.dumps(values, default=str, separators=(",", ":")).encode("ascii") + b"\n"


def parsed_object(line: bytes) -> dict[str, Any] | None:
    """Return the object that a line holds; None if it holds none."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def seq_of(line: bytes) -> int | None:
    """Return the number of the event in a line, without reading the rest; None: it has none."""
    found = _SEQ.match(line)
    return int(found[1]) if found else None


class RecordTexts:
    """Reads texts of output from the records of a session; close it.

    Belongs to one thread.
    """

    def __init__(self, records: Path) -> None:
        self._records = records
        self._path: Path | None = None
        self._descriptor: int | None = None
        self.missing = 0
        """How many texts were not to be found."""

    def read(self, extra: Mapping[str, Any]) -> str:
        """Return the text that an event of output refers to, or what is left of it."""
        path, offset, size = _place(extra, self._records), extra.get("offset"), extra.get("size")
        if path is None or not _is_count(offset) or not _is_count(size):
            self.missing += 1
            return ""
        data = self._read(path, offset, min(size, _MAX_TEXT_BYTES))
        self.missing += len(data) < size
        return data.decode("utf-8", "replace")

    def _read(self, path: Path, offset: int, size: int) -> bytes:
        try:
            if path != self._path:
                self.close()
                self._descriptor = open_to_read(path)
                self._path = path
            assert self._descriptor is not None
            return os.pread(self._descriptor, size, offset)
        except (OSError, OverflowError):
            return b""

    def close(self) -> None:
        """Let go of the record that was read last."""
        descriptor, self._descriptor, self._path = self._descriptor, None, None
        if descriptor is not None:
            os.close(descriptor)


def event_of_line(line: bytes, texts: RecordTexts) -> TaskWeaverEvent | None:
    """Return the event that a line holds, its output filled in; None if it holds none.

    Raises:
        UnknownKindError: It holds one that a newer version has written.
    """
    values = parsed_object(line)
    if values is None:
        return None
    extra = values.get("extra")
    if line.startswith(OUTPUT_START) and isinstance(extra, dict) and "msg" not in values:
        values["msg"] = texts.read(extra)
    try:
        event = session_event_from_json(values)
    except UnknownKindError:
        raise
    except ProtocolError:
        return None
    return event if event.seq > 0 else None


def _is_recorded(extra: Mapping[str, Any], records: Path) -> bool:
    path, end = _place(extra, records), extra["offset"] + extra.get("size", 0)
    try:
        return path is not None and "size" in extra and path.stat().st_size >= end
    except OSError:
        return False


def _place(extra: Mapping[str, Any], records: Path) -> Path | None:
    """Return the file of a record, which is a name of ours and no way to another folder."""
    execution_id, stream = extra.get("execution_id"), extra.get("stream")
    if not isinstance(execution_id, str) or not NAME.fullmatch(execution_id):
        return None
    return records / f"{execution_id}.{stream}" if stream in _STREAMS else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
