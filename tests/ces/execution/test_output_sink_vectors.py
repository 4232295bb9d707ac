"""The recorded cases of an output sink, as far as they are ours to keep."""

from __future__ import annotations

import json
import os
import queue
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.ces.execution.output_sink import MEMORY_BYTES, OutputRecord, OutputSink
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.ces.programs.process_output import OutputPipe, ReadEnd
from taskweaver_ext.events.output_batcher import OutputBatcher
from tests.support.data import DATA
from tests.support.executions import LIMIT_SECONDS

DATA = DATA / "15_output_sink.json"
CASES = {case["id"]: case for case in json.loads(DATA.read_text())["cases"]}

DEVIATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "notice": (
        "Notices are fields of the result, never mixed into its text.",
        {"output": "hello\nworld", "truncated": False, "total_bytes": 11},
    ),
    "artifact_has_everything": (
        "Of what is too long we keep the head and the tail, theirs the tail alone.",
        {"output": "abef", "truncated": True, "artifact_text": "abcdef"},
    ),
    "cr_progress_frames": (
        "The record is what the program wrote; text/terminal.py folds it for the screen.",
        {"output": "start\rone\rtwo\r\n"},
    ),
    "artifact_cap": (
        "A record is whole. At its limit the program is stopped; nothing is cut out of the middle.",
        {"artifact_text": "0123456789ABCDEF" * 4, "limit_reached": True},
    ),
}
IN_ANOTHER_MODULE = {"throttle_boundary": "OutputBatcher keeps the interval between pieces."}
NOT_COUNTED = {"total_lines", "output_lines", "output_bytes", "artifact_id"}
"""Ours counts bytes; frontends count the lines they show, and files are known by their paths."""


def play(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Feed a case to a sink, through a pipe as in real life, and tell what came of it."""
    options = case["options"]
    sink = OutputSink(
        folder,
        "case",
        memory_bytes=options.get("spill_threshold", MEMORY_BYTES),
        max_bytes=options.get("artifact_max_bytes", 1 << 30),
    )
    receiver, sender = os.pipe()
    sizes: list[int] = []

    def take(stream: StreamName, data: bytes) -> None:
        sink.write(stream, data)
        sizes.append(len(data))

    pipe = OutputPipe(ReadEnd(receiver), "stdout", take)
    for operation, *arguments in case["ops"]:
        if operation != "dump":
            is_hex = operation == "push_bytes"
            os.write(sender, bytes.fromhex(arguments[0]) if is_hex else arguments[0].encode())
            pipe.read()
    os.close(sender)
    pipe.drain()
    return outcome(sink.finish(), sink, sum(sizes))


def outcome(record: OutputRecord, sink: OutputSink, total_bytes: int) -> dict[str, Any]:
    path = record.full_output_paths.get("stdout")
    return {
        "output": "".join(record.stdout),
        "truncated": any(notice.kind == "truncated" for notice in record.notices),
        "total_bytes": total_bytes,
        "artifact_text": path.read_text() if path else "",
        "limit_reached": sink.limit_reached,
    }


@pytest.mark.parametrize("case_id", sorted(CASES.keys() - IN_ANOTHER_MODULE.keys()))
def test_a_recorded_case_comes_out_as_expected(case_id: str, tmp_path: Path) -> None:
    _reason, expected = DEVIATIONS.get(case_id, ("", CASES[case_id]["expect"]))
    wanted = {key: value for key, value in expected.items() if key not in NOT_COUNTED}

    found = play(CASES[case_id], tmp_path)

    assert {key: found[key] for key in wanted} == wanted


def test_pieces_within_an_interval_come_one_by_one_at_its_boundary() -> None:
    case = CASES["throttle_boundary"]
    chunks: queue.Queue[str] = queue.Queue()
    interval = case["options"]["chunk_throttle_ms"] / 1000
    batcher = OutputBatcher(lambda _stream, text: chunks.put(text), interval=interval)

    for operation, value in case["ops"]:
        if operation == "push":
            batcher.add("stdout", value)
    found = [chunks.get(timeout=LIMIT_SECONDS) for _ in case["expect"]["chunks"]]
    batcher.close()

    assert found == case["expect"]["chunks"]


def test_every_deviation_is_of_a_case_that_exists() -> None:
    assert DEVIATIONS.keys() | IN_ANOTHER_MODULE.keys() <= CASES.keys()
