"""Events as JSON objects, one shape per class, for `--json`.

Each object has `event` and `execution_id`. Besides:

    output           stream, text
    late_output      stream, text            written after the code's end
    display          bundle, metadata, display_id, is_result
    display_update   bundle, metadata, display_id
    clear_output     wait
    log              level, tag, message
    artifact         name, type, mime_type, original_name, file_name, preview
    input_requested  prompt, password
    input_settled    outcome
    status           status, detail
    status_report    report
    finished         status, error, exit_code, duration_seconds, variables_survived, notices

`finished` is the last one. Fields may be added; none is renamed or taken away.
"""

from __future__ import annotations

import json
from typing import Any, assert_never

from taskweaver_ext.ces.execution.events import (
    ArtifactProduced,
    DisplayProduced,
    DisplayUpdated,
    ExecutionEvent,
    ExecutionFinished,
    InputRequested,
    InputSettled,
    LateOutput,
    LogRecorded,
    OutputCleared,
    OutputProduced,
    StatusChanged,
    StatusReported,
)
from taskweaver_ext.ces.execution.results import ExecutionResult, Notice


def line_of(event: ExecutionEvent) -> str:
    """An event as one line of JSON, plain ASCII: nothing in it can drive a terminal."""
    name, values = _named_values(event)
    return _line({"event": name, "execution_id": event.execution_id, **values})


def finished_line(result: ExecutionResult, notices: list[Notice]) -> str:
    """The last line: how an execution ended, with what only its result knows."""
    return _line(
        {
            "event": "finished",
            "execution_id": result.execution_id,
            "status": result.status.value,
            "error": result.error or "",
            "exit_code": result.exit_code,
            "duration_seconds": round(result.duration_seconds, 6),
            "variables_survived": result.variables_survived,
            "notices": [{"kind": n.kind, "message": n.message} for n in notices],
        }
    )


def _line(values: dict[str, Any]) -> str:
    return json.dumps(values, default=str) + "\n"


def _named_values(event: ExecutionEvent) -> tuple[str, dict[str, Any]]:
    match event:
        case OutputProduced():
            return "output", {"stream": event.stream, "text": event.text}
        case LateOutput():
            return "late_output", {"stream": event.stream, "text": event.text}
        case DisplayProduced():
            values = {"display_id": event.display_id, "is_result": event.is_result}
            return "display", {"bundle": event.bundle, "metadata": event.metadata, **values}
        case DisplayUpdated():
            values = {"display_id": event.display_id}
            return "display_update", {"bundle": event.bundle, "metadata": event.metadata, **values}
        case OutputCleared():
            return "clear_output", {"wait": event.wait}
        case LogRecorded():
            values = {"level": event.level, "tag": event.tag, "message": event.message}
            return "log", values
        case ArtifactProduced():
            return "artifact", _artifact_values(event)
        case InputRequested():
            return "input_requested", {"prompt": event.prompt, "password": event.password}
        case InputSettled():
            return "input_settled", {"outcome": event.outcome}
        case StatusChanged():
            return "status", {"status": event.status, "detail": event.detail}
        case StatusReported():
            return "status_report", {"report": event.report}
        case ExecutionFinished():
            return "finished", {"status": event.status.value, "error": event.error}
        case _:
            assert_never(event)


def _artifact_values(event: ArtifactProduced) -> dict[str, Any]:
    artifact = event.artifact
    return {
        "name": artifact.name,
        "type": artifact.type,
        "mime_type": artifact.mime_type,
        "original_name": artifact.original_name,
        "file_name": artifact.file_name,
        "preview": artifact.preview,
    }
