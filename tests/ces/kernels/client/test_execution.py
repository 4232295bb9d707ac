"""What code announces without end fills neither the memory nor the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.ces.execution.artifacts import ArtifactStore
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.output_sink import OutputSink
from taskweaver_ext.ces.execution.results import ExecutionId, Notice
from taskweaver_ext.ces.inside.kernel.plugin_api import ARTIFACT_MIME, LOG_MIME
from taskweaver_ext.ces.kernels.client.execution import Execution


@pytest.fixture
def execution(tmp_path: Path) -> Iterator[Execution]:
    sink = OutputSink(tmp_path / "output", "e1")
    artifacts = ArtifactStore(tmp_path / "artifacts", tmp_path)
    execution = Execution(
        "", RunOptions(execution_id=ExecutionId("e1")), sink=sink, artifacts=artifacts, metadata={}
    )
    yield execution
    execution.abandon()


def publish(execution: Execution, mime_type: str, content: dict[str, Any]) -> None:
    execution.receive_message("display_data", {"data": {mime_type: content}})


def test_only_some_of_what_was_refused_is_told(execution: Execution) -> None:
    for number in range(1000):
        publish(execution, ARTIFACT_MIME, {"path": f"/etc/{number}{'x' * 10_000}"})
    execution.add_notice(Notice(kind="limit", message="what we have to say ourselves"))

    notices = execution.result.notices
    assert [notice.message[:13] for notice in notices[99:]] == [
        "An artifact w",
        "More happened",
        "what we have ",
    ]
    assert max(len(notice.message) for notice in notices) < 1000


def test_artifacts_beyond_what_a_result_holds_are_only_shown(
    execution: Execution, tmp_path: Path
) -> None:
    (tmp_path / "made").touch()
    for _ in range(10_001):
        publish(execution, ARTIFACT_MIME, {"path": "made", "name": "n" * 5_000})

    artifacts = execution.result.artifact
    assert len(artifacts) == 10_000
    assert len(artifacts[0].name) == 1000
    assert any("10,000 artifacts" in notice.message for notice in execution.result.notices)


def test_log_records_are_bounded_by_their_length_too(execution: Execution) -> None:
    for _ in range(20):
        publish(execution, LOG_MIME, {"message": "m" * (2 << 20)})

    assert len(execution.result.log) == 16
    assert any("first 16 log records" in notice.message for notice in execution.result.notices)
