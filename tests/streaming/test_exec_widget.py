"""The execution panel hears what is written and run, in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.contract import ExecutionFailure
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.events.extras import CodeExecExtra
from taskweaver_ext.streaming.decision import CHANNEL_DECISION, DecisionPaths
from taskweaver_ext.streaming.exec_widget import PYTHON_TOOL_ID, ExecWidget
from tests.support.data import DATA
from tests.support.growth import growth

VECTORS = json.loads((DATA / "05_exec_widget_events.json").read_text())
XPATHS = json.loads((DATA / "06_xpath_json_streaming.json").read_text())

EARLY_STATUSES = {"decision_then_code": [3, 4]}
"""The recorded widget says `exec` before any code and then `gen` again. Ours says each status once:
`exec` when the code runs."""

DECISION = {
    "notes": "Show it",
    "tool_call": {
        "tool_id": PYTHON_TOOL_ID,
        "params": {
            "prog_name": "demo.py",
            "contract": [{"filepath": "out/report.pdf", "description": "PDF report"}],
        },
    },
}


class Panel:
    """A widget with everything it said, and a clock that goes on when told."""

    def __init__(
        self,
        *,
        tool_id: str | None = PYTHON_TOOL_ID,
        paths: DecisionPaths = CHANNEL_DECISION,
        requires_contract: bool = True,
        agent: str = "",
    ) -> None:
        self.events: list[tuple[str, CodeExecExtra]] = []
        self.now = 100.0
        self.widget = ExecWidget(
            ExecutionId("exec_demo"),
            lambda text, extra: self.events.append((text, extra)),
            lambda: self.now,
            tool_id=tool_id,
            paths=paths,
            requires_contract=requires_contract,
            agent=agent,
        )

    @property
    def story(self) -> list[tuple[str, str]]:
        """What was said, short: sub-type and status, or text."""
        return [
            (
                extra["sub_type"].removeprefix("code_exec."),
                extra["payload"]["status"] if extra["sub_type"] == "code_exec.status" else text,
            )
            for text, extra in self.events
        ]

    @property
    def statuses(self) -> list[str]:
        return [text for part, text in self.story if part == "status"]

    @property
    def code(self) -> str:
        return "".join(text for part, text in self.story if part == "code")

    @property
    def last_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = self.events[-1][1]["payload"]
        return payload


def decision(contract: object, padding: str = "") -> str:
    """Write a decision for our tool; without a contract when that is None."""
    params = {"padding": padding} if contract is None else {"contract": contract, "p": padding}
    return json.dumps({"tool_call": {"tool_id": PYTHON_TOOL_ID, "params": params}})


def as_recorded(payload: dict[str, Any]) -> dict[str, Any]:
    """Turn our contract into the recorded one.

    Ours names the whole path, as two files may share their last part, and the visibility.
    """
    rows = [
        {key: value for key, value in row.items() if key != "visibility"}
        | {"filename": row["filename"].rpartition("/")[2]}
        for row in payload["contract"]
    ]
    return {**payload, "contract": rows}


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_recorded_cases_emit_the_recorded_events(case: dict[str, Any]) -> None:
    panel = Panel(agent="react.exec.test", requires_contract=False)
    skipped = EARLY_STATUSES.get(case["id"], [])
    expected = [event for n, event in enumerate(case["expect_events"]) if n not in skipped]

    for step in case["feed"]:
        feed = panel.widget.feed_code if step["op"] == "feed_code" else panel.widget.feed_decision
        feed(step["args"][0])
    panel.widget.generation_finished()

    assert len(panel.events) == len(expected)
    for (text, extra), event in zip(panel.events, expected, strict=True):
        payload: Any = extra.get("payload", text)
        if extra["sub_type"] == "code_exec.contract":
            payload = as_recorded(payload)
        assert payload == event["payload"]
        assert extra["marker"] == "subsystem"
        assert extra["execution_id"] == "exec_demo"
        assert extra["completed"] == event.get("completed", False)
        # The recorded last piece of code leaves out its language.
        assert extra.get("language") == event.get("language", extra.get("language"))
        for key in ("sub_type", "artifact_name", "index", "format", "title"):
            assert extra[key] == event[key]
    assert panel.code == case["code"]
    assert bool(panel.widget.contract) == case["has_contract"]


@pytest.mark.parametrize("case", XPATHS["cases"], ids=lambda case: case["id"])
def test_recorded_code_inside_json_is_streamed(case: dict[str, Any]) -> None:
    options = case["options"]
    paths = DecisionPaths(tool_id=options.get("tool_id_xpath", ""), contract="", code=case["xpath"])
    panel = Panel(tool_id=options.get("tool_id_value"), paths=paths)
    expected = "".join(piece for piece in case["expect"] if isinstance(piece, str))
    if case["id"] == "tool_id_after_code":
        # The recorded widget shows nothing of code that comes before its tool. Ours waits
        # until the tool is known: the code is going to be run, so people must see it.
        expected = "late"

    for chunk in case["chunks"]:
        panel.widget.feed_decision(chunk)
    failure = panel.widget.generation_finished()

    assert failure is None
    assert panel.code == expected
    assert panel.statuses == ["gen"]
    assert panel.events[-1][1]["completed"]


def test_an_execution_is_told_from_its_decision_to_its_end() -> None:
    panel = Panel()

    panel.widget.feed_decision(json.dumps(DECISION))
    panel.now += 1.5
    panel.widget.feed_code("x = 1\n")
    panel.widget.feed_code("print(x)\n")
    panel.now += 0.25
    failure = panel.widget.generation_finished()
    panel.now += 9
    panel.widget.execution_started()
    panel.now += 4.123
    panel.widget.execution_finished()

    assert failure is None
    assert [part for part, _ in panel.story] == [
        *("status", "objective", "program.name", "contract", "code", "code", "code"),
        *("status", "status"),
    ]
    assert panel.statuses == ["gen", "exec", "done"]
    assert panel.last_payload == {"status": "done", "timings": {"codegen": 1750, "exec": 4123}}
    assert json.loads(panel.events[-1][0]) == panel.last_payload
    assert [extra["index"] for _, extra in panel.events if extra["sub_type"].endswith("code")] == [
        *(0, 1, 2)
    ]
    assert {extra["execution_id"] for _, extra in panel.events} == {"exec_demo"}
    assert panel.widget.contract[0].path == "out/report.pdf"


def test_name_and_objective_are_shown_before_the_decision_is_complete() -> None:
    panel = Panel()

    panel.widget.feed_decision('{"notes": "Show it", "tool_call": {"tool_id": "exec_tools.exec')
    silent = list(panel.story)
    panel.widget.feed_decision('ute_code_python", "params": {"prog_name": "demo.py", "contract": [')

    assert silent == []
    assert panel.story == [("status", "gen"), ("objective", "Show it"), ("program.name", "demo.py")]


def test_code_that_comes_before_its_decision_waits_for_it() -> None:
    panel = Panel()

    panel.widget.feed_code("x = 1\n")
    silent = list(panel.story)
    panel.widget.feed_decision(json.dumps(DECISION))
    panel.widget.generation_finished()

    assert silent == []
    assert panel.code == "x = 1\n"
    assert panel.story[0] == ("status", "gen")


@pytest.mark.parametrize(
    "text",
    ['{"tool_call": {"tool_id": "react.read", "params": {}}}', '{"action": "answer"}', "{oops", ""],
)
def test_without_our_tool_the_widget_stays_silent(text: str) -> None:
    panel = Panel()

    panel.widget.feed_code("x = 1")
    panel.widget.feed_decision(text)
    failure = panel.widget.generation_finished()
    panel.widget.execution_started()
    panel.widget.execution_finished()
    panel.widget.stream_broken("late")

    assert failure is None
    assert panel.events == []
    assert panel.widget.status is None


def test_a_name_that_is_given_twice_is_shown_once() -> None:
    panel = Panel()

    panel.widget.feed_decision(json.dumps(DECISION)[:-3] + ', "prog_name": "other.py"}}}')

    assert [text for part, text in panel.story if part == "program.name"] == ["demo.py"]


@pytest.mark.parametrize("code", [(), ("",), (" \n", "\n"), ("```python\n", "```")])
def test_no_code_is_an_error(code: tuple[str, ...]) -> None:
    panel = Panel()
    panel.widget.feed_decision(json.dumps(DECISION))

    for piece in code:
        panel.widget.feed_code(piece)
    failure = panel.widget.generation_finished()
    panel.widget.execution_started()

    assert failure is not None
    assert failure.code == "missing_code"
    assert panel.statuses == ["gen", "error"]
    assert panel.last_payload["error"] == {
        "code": "missing_code",
        "message": "The reply contains no code.",
        "where": "code_generation",
        "managed": True,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (decision(contract=None), "missing_artifacts"),
        (decision(contract="[{"), "invalid_artifacts_json"),
        (decision(contract=[{"filepath": "../x", "description": "d"}]), "invalid_filename"),
        (decision(contract=[{"filepath": "x"}]), "invalid_artifact_spec"),
        (decision([])[:-3], "invalid_decision"),
        (decision([])[:-3] + "oops}}", "invalid_decision"),
        (decision([], padding="x" * 1_000_000), "decision_too_large"),
    ],
)
def test_a_contract_or_decision_that_is_wrong_is_an_error_after_the_code(
    text: str, code: str
) -> None:
    panel = Panel()

    for start in range(0, len(text), 100_000):
        panel.widget.feed_decision(text[start : start + 100_000])
    panel.widget.feed_code("x = 1")
    failure = panel.widget.generation_finished()

    assert failure is not None
    assert failure.code == code
    assert panel.code == "x = 1"
    assert panel.statuses == ["gen", "error"]


def test_a_contract_need_not_be_required_and_may_promise_nothing() -> None:
    for panel, text in (
        (Panel(requires_contract=False), decision(contract=None)),
        (Panel(), decision(contract=[])),
    ):
        panel.widget.feed_decision(text)
        panel.widget.feed_code("x = 1")

        assert panel.widget.generation_finished() is None
        assert "contract" not in [part for part, _ in panel.story]


def test_a_stream_that_breaks_off_is_an_error_and_keeps_what_came() -> None:
    panel = Panel()
    panel.widget.feed_decision(json.dumps(DECISION))
    panel.widget.feed_code("```python\nx =")
    panel.now += 2

    panel.widget.stream_broken("The connection was lost.")
    panel.widget.feed_code(" 1")
    failure = panel.widget.generation_finished()

    assert failure is not None
    assert failure.code == "stream_broken"
    assert panel.statuses == ["gen", "error"]
    assert panel.code == "x ="
    assert not any(extra["completed"] for _, extra in panel.events)
    assert panel.last_payload["timings"] == {"codegen": 2000, "exec": None}


def test_a_failed_execution_carries_its_error() -> None:
    panel = Panel()
    panel.widget.feed_decision(json.dumps(DECISION))
    panel.widget.feed_code("1/0")

    panel.widget.execution_started()
    panel.now += 1
    panel.widget.execution_finished(ExecutionFailure(code="execution_failed", message="1/0"))

    assert panel.statuses == ["gen", "exec", "error"]
    assert panel.last_payload["timings"]["exec"] == 1000
    assert panel.last_payload["error"]["where"] == "exec_execution"


def test_code_that_is_refused_goes_from_gen_to_error() -> None:
    panel = Panel()
    panel.widget.feed_decision(json.dumps(DECISION))
    panel.widget.feed_code("import os")

    panel.widget.execution_finished(ExecutionFailure(code="refused", message="no"))

    assert panel.statuses == ["gen", "error"]
    assert panel.last_payload["timings"]["exec"] is None


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_fences_around_decision_and_code_are_not_shown(size: int) -> None:
    panel = Panel()
    fenced = f"Here:\n```json\n{json.dumps(DECISION)}\n```\n"

    for start in range(0, len(fenced), size):
        panel.widget.feed_decision(fenced[start : start + size])
    for chunk in ("``", "`python\nx = 1\n", "``", "`"):
        panel.widget.feed_code(chunk)
    failure = panel.widget.generation_finished()

    assert failure is None
    assert panel.code == "x = 1"


def test_a_json_reply_drives_the_same_panel() -> None:
    paths = DecisionPaths(
        tool_id="response.reply_type",
        program_name="",
        objective="response.thought",
        contract="",
        code="response.reply_content",
    )
    reply = {"response": {"thought": "I add", "reply_type": "python", "reply_content": "1 + 1\n"}}
    panel = Panel(tool_id="python", paths=paths)

    for character in json.dumps(reply):
        panel.widget.feed_decision(character)
    panel.widget.execution_started()
    panel.widget.execution_finished()

    assert panel.statuses == ["gen", "exec", "done"]
    assert panel.story[1] == ("objective", "I add")
    assert panel.code == "1 + 1\n"


def test_code_without_any_decision_can_be_followed() -> None:
    panel = Panel(tool_id=None, requires_contract=False)

    panel.widget.feed_code("x = 1")
    panel.widget.execution_started()
    panel.widget.execution_finished()

    assert panel.story == [
        *(("status", "gen"), ("code", "x = 1"), ("code", "")),
        *(("status", "exec"), ("status", "done")),
    ]


def test_code_that_waits_too_long_for_its_decision_is_refused() -> None:
    panel = Panel()

    for _ in range(12):
        panel.widget.feed_code("x" * 100_000)
    panel.widget.feed_decision(json.dumps(DECISION))
    failure = panel.widget.generation_finished()

    assert failure is not None
    assert failure.code == "decision_too_late"
    assert len(panel.code) == 1_000_000


def test_much_code_of_another_tool_is_no_failure_of_ours() -> None:
    panel = Panel()

    for _ in range(12):
        panel.widget.feed_code("x" * 100_000)
    panel.widget.feed_decision('{"tool_call": {"tool_id": "react.write"}}')

    assert panel.widget.generation_finished() is None
    assert panel.events == []


calls = st.sampled_from(
    [
        ("feed_decision", (json.dumps(DECISION),)),
        ("feed_decision", (json.dumps(DECISION)[:90],)),
        ("feed_decision", (json.dumps(DECISION)[90:],)),
        ("feed_code", ("x = 1\n",)),
        ("decision_finished", ()),
        ("generation_finished", ()),
        ("execution_started", ()),
        ("execution_finished", ()),
        ("execution_finished", (ExecutionFailure(code="c", message="m"),)),
        ("stream_broken", ("gone",)),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(calls, max_size=12))
def test_whatever_is_called_each_status_comes_once_and_in_order(
    steps: list[tuple[str, tuple[Any, ...]]],
) -> None:
    panel = Panel()

    for name, arguments in steps:
        getattr(panel.widget, name)(*arguments)

    ways = ["gen", "exec", "done"], ["gen", "exec", "error"], ["gen", "error"]
    assert any(way[: len(panel.statuses)] == panel.statuses for way in ways)
    ends = [
        n
        for n, (part, text) in enumerate(panel.story)
        if (part, text) in (("status", "done"), ("status", "error"))
    ]
    assert ends in ([], [len(panel.story) - 1])
    assert sum(extra["completed"] for _, extra in panel.events) <= 1


@pytest.mark.parametrize("is_code_in_decision", [False, True])
def test_twice_the_code_takes_twice_the_time(is_code_in_decision: bool) -> None:
    def start() -> Callable[[str], None]:
        panel = Panel(paths=DecisionPaths(code="code"))
        panel.widget.feed_decision('{"tool_call": {"tool_id": "' + PYTHON_TOOL_ID + '"}, "code": "')
        return panel.widget.feed_decision if is_code_in_decision else panel.widget.feed_code

    ratio = growth(start, ["x \\n"] * 4_000, ["x \\n"] * 8_000)

    assert ratio <= 2.5
