"""The recorded cases of result mapping and display bundles, and what calls may ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from taskweaver_ext.ces.execution.events import ExecutionEvent, OutputProduced
from taskweaver_ext.ces.inside.kernel.plugin_api import STATUS_MIME
from taskweaver_ext.tools.display_text import MarkdownOutput, StatusOutput, read_display
from taskweaver_ext.tools.python_call import CellResult, clamp_timeout, text_of
from taskweaver_ext.tools.python_tool import PythonTool
from tests.support.data import DATA

BUNDLES = json.loads((DATA / "16_display_bundles.json").read_text())["cases"]
MAPPING = json.loads((DATA / "17_result_mapping.json").read_text())["cases"]

OUR_STATUS = {"application/x-omp-status": STATUS_MIME}
"""Status reports have a type of ours."""

MAXIMUM = {3600: 600}
"""Deviation: a call may take ten minutes, not an hour."""

IN_ANOTHER_MODULE = {
    "idle_timeout_pause_then_fire": "The reader stops the clock while a question is open."
}

CODE = {
    "ok": "print('hello')",
    "stdin": "input()",
    "abort": "print('cancelled output'); import time; time.sleep(60)",
}


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonTool]:
    with PythonTool(cwd=tmp_path_factory.mktemp("cwd")) as tool:
        yield tool


@pytest.mark.parametrize("case", BUNDLES, ids=lambda case: next(iter(case["bundle"])))
def test_a_recorded_bundle_reads_as_expected(case: dict[str, Any]) -> None:
    bundle = {OUR_STATUS.get(mime, mime): value for mime, value in case["bundle"].items()}

    display = read_display(bundle)

    found = {
        "markdown": MarkdownOutput(bundle.get("text/markdown", "")),
        "status": StatusOutput(bundle.get(STATUS_MIME, {})),
    }
    assert display.text == case["expect"]["text"]
    assert display.outputs == tuple(found[o["type"]] for o in case["expect"]["outputs"])


@pytest.mark.parametrize(
    "case", [case for case in MAPPING if case["id"] in CODE], ids=lambda case: case["id"]
)
def test_a_recorded_end_of_code_comes_out_as_expected(
    case: dict[str, Any], tool: PythonTool
) -> None:
    def abort(_number: int, event: ExecutionEvent) -> None:
        if isinstance(event, OutputProduced):
            tool.interrupt()

    on_event = abort if case["id"] == "abort" else None
    (cell,) = tool.run([CODE[case["id"]]], on_event=on_event).cells
    tool.end_session("default")

    expected = dict(case["expect"])
    assert expected.pop("output_contains", "") in cell.output
    assert {name: getattr(cell, name) for name in expected} == expected


@pytest.mark.parametrize(
    "case", [c for c in MAPPING if "cells" in c["input"]], ids=lambda case: case["id"]
)
def test_a_recorded_list_of_cells_reads_as_expected(case: dict[str, Any]) -> None:
    cells = [
        CellResult(
            number=number,
            title=cell.get("title", ""),
            output=cell["output"],
            exit_code=cell.get("exit_code", 0),
            outcome=f"Command exited with code {cell['exit_code']}" if "exit_code" in cell else "",
        )
        for number, cell in enumerate(case["input"]["cells"], start=1)
    ]

    assert text_of(cells, len(cells)) == case["expect"]["text"]


@pytest.mark.parametrize(
    "case", [c for c in MAPPING if c["id"] == "clamp_eval_timeout"], ids=lambda c: str(c["input"])
)
def test_a_recorded_timeout_is_clamped(case: dict[str, Any]) -> None:
    clamped = clamp_timeout(case["input"]["requested"], case["input"]["global_max"] or 0)

    assert clamped == MAXIMUM.get(case["expect"], case["expect"])


@pytest.mark.parametrize(
    ("requested", "at_most", "seconds"),
    [(0, 0, None), (0, 10, 10), (0.2, 0, 1), (599, 0, 599), (5, 10, 5), (20, 10, 10)],
)
def test_no_limit_is_asked_for_with_zero(
    requested: float, at_most: float, seconds: float | None
) -> None:
    assert clamp_timeout(requested, at_most) == seconds


def test_every_recorded_case_is_tested() -> None:
    tested = {case["id"] for case in MAPPING if "cells" in case["input"]}

    assert tested | CODE.keys() | {"clamp_eval_timeout"} | IN_ANOTHER_MODULE.keys() == {
        case["id"] for case in MAPPING
    }
