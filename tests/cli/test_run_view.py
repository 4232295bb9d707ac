"""What `run` shows is whole, whatever the execution skipped for a slow reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.execution.events import ExecutionEvent, OutputProduced
from taskweaver_ext.ces.execution.results import ExecutionId, ExecutionResult, Notice, StreamName
from taskweaver_ext.cli import run_view
from taskweaver_ext.cli.run_view import Completion

ID = ExecutionId("e1")
SKIPPED = Notice(kind="display_skipped", message="on_output was too slow")
CUT = Notice(kind="truncated", message="some bytes are left out")
LOST = Notice(kind="record_failed", message="the disk is full")


class Recorder:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: dict[StreamName, str] = {"stdout": "", "stderr": ""}
        self.notices: list[Notice] = []

    def show(self, event: ExecutionEvent) -> None:
        assert isinstance(event, OutputProduced)
        self.texts[event.stream] += event.text

    def finish(self, result: ExecutionResult, notices: list[Notice]) -> None:
        self.notices = notices


def output(stream: StreamName, text: str) -> OutputProduced:
    return OutputProduced(execution_id=ID, stream=stream, text=text)


def test_what_was_skipped_is_shown_from_memory() -> None:
    recorder = Recorder()
    view = Completion(recorder)
    view.show(output("stdout", "äb"))
    result = ExecutionResult(execution_id=ID, code="", stdout=["äbcd"], stderr=["e"])
    result.notices = [SKIPPED]

    view.finish(result)

    assert recorder.texts == {"stdout": "äbcd", "stderr": "e"}
    assert recorder.notices == []


def test_what_was_skipped_is_shown_from_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_view, "_READ_CHARACTERS", 7)
    whole = "".join(f"line {number} ü\r\n" for number in range(20))
    record = tmp_path / "e1.stdout"
    record.write_text(whole, encoding="utf-8", newline="")
    recorder = Recorder()
    view = Completion(recorder)
    view.show(output("stdout", whole[:50]))
    result = ExecutionResult(execution_id=ID, code="", stdout=["head", "tail"])
    result.full_output_paths = {"stdout": record}
    result.notices = [SKIPPED, CUT]

    view.finish(result)

    assert recorder.texts["stdout"] == whole
    assert recorder.notices == []


def test_nothing_is_shown_twice_when_nothing_was_skipped() -> None:
    recorder = Recorder()
    view = Completion(recorder)
    view.show(output("stdout", "all"))

    view.finish(ExecutionResult(execution_id=ID, code="", stdout=["all"]))

    assert recorder.texts["stdout"] == "all"


def test_a_record_that_failed_is_reported_instead() -> None:
    recorder = Recorder()
    view = Completion(recorder)
    result = ExecutionResult(execution_id=ID, code="", stdout=["head", "tail"])
    result.notices = [SKIPPED, LOST]

    view.finish(result)

    assert recorder.texts["stdout"] == ""
    assert recorder.notices == [LOST]
