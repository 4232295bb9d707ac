"""Events of executions as JSON objects and back, one shape per class.

Each object has `event` and `execution_id`. Besides:

    output           stream, text
    late_output      stream, text            written after the code's end
    display          bundle, metadata, display_id, is_result, files
    display_update   bundle, metadata, display_id, files
    clear_output     wait
    log              level, tag, message
    artifact         name, type, mime_type, original_name, file_name, preview
                     (and file_content, file_content_encoding where there is no file)
    input_requested  prompt, password, number
    input_settled    outcome
    status           status, detail
    status_report    report
    finished         status, error, exit_code, duration_seconds, variables_survived, notices, usage

`finished` is the last one. Fields may be added; none is renamed or taken away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

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
from taskweaver_ext.ces.execution.results import ExecutionArtifact, ExecutionStatus, Notice, Usage
from taskweaver_ext.errors import ProtocolError
from taskweaver_ext.text.json_lines import json_line
from taskweaver_ext.text.json_shapes import has_shape

_CLASSES: Mapping[str, type[ExecutionEvent]] = {
    "output": OutputProduced,
    "late_output": LateOutput,
    "display": DisplayProduced,
    "display_update": DisplayUpdated,
    "clear_output": OutputCleared,
    "log": LogRecorded,
    "artifact": ArtifactProduced,
    "input_requested": InputRequested,
    "input_settled": InputSettled,
    "status": StatusChanged,
    "status_report": StatusReported,
    "finished": ExecutionFinished,
}
_NAMES = {kind: name for name, kind in _CLASSES.items()}
_HINTS = {
    kind: {
        field.name: get_type_hints(kind)[field.name]
        for field in dataclasses.fields(kind)
        if field.compare  # what does not count is known only where the record is
    }
    for kind in (*_NAMES, ExecutionArtifact, Notice, Usage)
}


class UnknownKindError(ProtocolError):
    """It is of a kind that this version does not know, as a newer one may write."""


def line_of(event: ExecutionEvent) -> str:
    """An event as one line of JSON, plain ASCII: nothing in it can drive a terminal."""
    return json_line(execution_event_to_json(event))


def execution_event_to_json(event: ExecutionEvent) -> dict[str, Any]:
    """Return an event as an object that JSON can hold."""
    values: dict[str, Any] = {
        "event": _NAMES[type(event)],
        "execution_id": event.execution_id,
    }
    for name in _HINTS[type(event)]:
        values[name] = getattr(event, name)
    if isinstance(event, ArtifactProduced):
        del values["artifact"]
        values.update(dataclasses.asdict(event.artifact))
        for name in ("file_content", "file_content_encoding"):
            if values[name] == getattr(ExecutionArtifact(name="", type=""), name):
                del values[name]
    elif isinstance(event, ExecutionFinished):
        values["status"] = event.status.value
        values["notices"] = [dataclasses.asdict(notice) for notice in event.notices]
        values["usage"] = dataclasses.asdict(event.usage)
    return values


def execution_event_from_json(values: Mapping[str, Any]) -> ExecutionEvent:
    """Rebuild an event from what `execution_event_to_json` returned; other fields are ignored.

    Raises:
        UnknownKindError: There is no event of that name.
        ProtocolError: It is no such object.
    """
    name = values.get("event")
    if not isinstance(name, str):
        raise ProtocolError(f"An event has no name like {name!r:.100}.")
    if (kind := _CLASSES.get(name)) is None:
        raise UnknownKindError(f"{name!r:.100} is no event of an execution.")
    fields = dict(values)
    if kind is ArtifactProduced:
        fields["artifact"] = _rebuilt(ExecutionArtifact, values)
    elif kind is ExecutionFinished:
        if fields.get("status") not in {status.value for status in ExecutionStatus}:
            raise ProtocolError(f"{fields.get('status')!r} is no status of an execution.")
        fields["status"] = ExecutionStatus(fields["status"])
        notices = fields.get("notices", [])
        if not has_shape(notices, list[dict[str, Any]]):
            raise ProtocolError("The notices of an execution are a list of objects.")
        fields["notices"] = tuple(_rebuilt(Notice, notice) for notice in notices)
        fields["usage"] = _rebuilt(Usage, fields.get("usage", {}))
    event: ExecutionEvent = _rebuilt(kind, fields)
    return event


def _rebuilt(kind: type, values: object) -> Any:  # noqa: ANN401 - an instance of `kind`
    """Make an instance of the fields that are its own, after a look at each."""
    if not isinstance(values, Mapping):
        raise ProtocolError(f"{kind.__name__} is made of an object, not of {values!r:.100}.")
    hints = _HINTS[kind]
    own = {name: values[name] for name in hints if name in values}
    for name, value in own.items():
        if not has_shape(value, hints[name]):
            raise ProtocolError(f"{kind.__name__}.{name} cannot be {value!r:.100}.")
    try:
        return kind(**own)
    except TypeError as error:  # a field without a default is missing
        raise ProtocolError(f"{kind.__name__} lacks something: {error}.") from error
