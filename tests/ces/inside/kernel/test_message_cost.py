"""What is too large for a client is cut by its kernel, and says so."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from taskweaver_ext.ces.inside.kernel.message_cost import MAX_COST, fitting, message_cost

LONG = "x" * (2 << 20)


def cut(content: dict[str, Any]) -> dict[str, Any]:
    message = fitting(json.dumps(content).encode())
    assert message_cost(message) <= MAX_COST
    fitted: dict[str, Any] = json.loads(message)
    return fitted


@pytest.mark.parametrize(
    "message",
    [
        b"[" + b"[]," * 300_000 + b"0]",
        b"[" + b'"",' * 300_000 + b"0]",
        b"[" + b'{"a":{}},' * 100_000 + b"0]",
        b"[" + b"1.5," * 300_000 + b"0]",
        json.dumps(["x" * 4_000_000]).encode(),
        json.dumps(["x" * 4_000_000 + "😀"]).encode(),
        json.dumps(["x" * 4_000_000 + "😀"], ensure_ascii=False).encode(),
        json.dumps(["x" * 4_000_000 + "€"], ensure_ascii=False).encode(),
    ],
    ids=lambda message: str(message[:12]),
)
def test_reading_costs_no_more_than_was_counted(message: bytes) -> None:
    tracemalloc.start()

    json.loads(bytes(bytearray(message)).decode())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak <= message_cost(message)


def test_quotes_and_commas_within_a_text_cost_nothing_more() -> None:
    text = json.dumps({"a": '\\",[{"' * 1_000_000}).encode()

    assert message_cost(text) <= MAX_COST


def test_what_fits_is_left_alone() -> None:
    message = json.dumps({"data": {"text/html": "<p>" * 1_000_000}}).encode()

    assert fitting(message) is message


def test_long_texts_are_cut_and_what_was_too_long_is_counted() -> None:
    content = {"data": {"text/html": LONG * 8}, "transient": {"display_id": "d"}}

    fitted = cut(content)

    assert fitted["data"]["text/html"].endswith("more characters are left out]")
    assert fitted["left_out"] == [{"kind": "a message", "size": len(json.dumps(content))}]


def test_a_list_that_loses_its_end_says_so() -> None:
    fitted = cut({"status": "error", "traceback": [*map(str, range(1002)), LONG * 8]})

    assert fitted["traceback"][-2:] == ["999", "[... 3 more are left out]"]


def test_what_is_too_large_in_many_parts_is_only_named() -> None:
    fitted = cut({"data": {f"text/{n}": LONG for n in range(30)}, "transient": {"display_id": "d"}})

    assert "is left out: it is too large" in fitted["data"]["text/plain"]
    assert fitted["transient"] == {"display_id": "d"}


def test_an_end_with_too_long_a_traceback_is_still_an_end() -> None:
    fitted = cut({"status": "error", "evalue": LONG, "traceback": [LONG] * 20, "exit_code": 3})

    assert (fitted["status"], fitted["exit_code"], len(fitted["evalue"])) == ("error", 3, 1000)
