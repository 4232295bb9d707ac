"""Every event has one documented shape as JSON."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest

from taskweaver_ext.ces.execution import event_json
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
from taskweaver_ext.ces.execution.results import (
    ExecutionArtifact,
    ExecutionId,
    ExecutionResult,
    ExecutionStatus,
    Notice,
)

ID = ExecutionId("e1")
ARTIFACT = ExecutionArtifact(name="n", type="image", file_name="/f", mime_type="image/png")

EXAMPLES: dict[str, ExecutionEvent] = {
    "output": OutputProduced(execution_id=ID, stream="stdout", text="ü\x1b[2J"),
    "late_output": LateOutput(execution_id=ID, stream="stderr", text="late"),
    "display": DisplayProduced(execution_id=ID, bundle={"text/plain": "x"}, is_result=True),
    "display_update": DisplayUpdated(execution_id=ID, display_id="d", bundle={}),
    "clear_output": OutputCleared(execution_id=ID, wait=True),
    "log": LogRecorded(execution_id=ID, level="info", tag="t", message="m"),
    "artifact": ArtifactProduced(execution_id=ID, artifact=ARTIFACT),
    "input_requested": InputRequested(execution_id=ID, prompt="? ", password=True),
    "input_settled": InputSettled(execution_id=ID, outcome="cancelled"),
    "status": StatusChanged(execution_id=ID, status="running"),
    "status_report": StatusReported(execution_id=ID, report={"percent": 3}),
}

DOCUMENTED = {
    name: set(fields.split(", "))
    for name, fields in re.findall(
        r"^    (\w+) +((?:\w+)(?:, \w+)*)", event_json.__doc__ or "", re.MULTILINE
    )
}


def parse(line: str) -> dict[str, Any]:
    """Read one line, which must be one, of plain ASCII."""
    assert line.isascii()
    assert line.index("\n") == len(line) - 1
    assert "\x1b" not in line
    values: dict[str, Any] = json.loads(line)
    return values


def test_there_is_an_example_of_every_event() -> None:
    assert {type(event) for event in EXAMPLES.values()} | {ExecutionFinished} == {
        *get_args(ExecutionEvent)
    }
    assert {*EXAMPLES, "finished"} == {*DOCUMENTED}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_event_has_the_documented_fields_with_its_values(name: str) -> None:
    event = EXAMPLES[name]

    values = parse(event_json.line_of(event))

    assert values.pop("event") == name
    assert values.pop("execution_id") == "e1"
    assert {*values} == DOCUMENTED[name]
    assert event_json.execution_event_from_json(
        {"event": name, "execution_id": "e1", **values}
    ) == (event)
    source = event.artifact if isinstance(event, ArtifactProduced) else event
    assert values == {field: getattr(source, field) for field in values}


def test_the_last_line_says_what_the_result_knows() -> None:
    result = ExecutionResult(
        execution_id=ID,
        code="",
        status=ExecutionStatus.TIMEOUT,
        error="too long",
        duration_seconds=1.5,
        variables_survived=False,
        notices=[Notice(kind="host", message="something else")],
    )

    values = parse(event_json.line_of(ExecutionFinished.of(result)))

    assert {*values} == DOCUMENTED["finished"] | {"event", "execution_id"}
    assert values == {
        "event": "finished",
        "execution_id": "e1",
        "status": "timeout",
        "error": "too long",
        "exit_code": None,
        "duration_seconds": 1.5,
        "variables_survived": False,
        "notices": [{"kind": "host", "message": "something else"}],
        "usage": {"peak_memory_bytes": None, "cpu_seconds": None},
    }
