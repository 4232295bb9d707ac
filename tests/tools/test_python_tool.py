"""An agent's cells run in order on a kernel that stays, and their results read well."""

from __future__ import annotations

import json
import math
import queue
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution import recorded_run
from taskweaver_ext.ces.execution.events import (
    ExecutionEvent,
    ExecutionFinished,
    LateOutput,
    OutputProduced,
)
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.ces.kernels.client.host import KernelConnection
from taskweaver_ext.ces.kernels.local.host import LocalKernelHost
from taskweaver_ext.ces.sessions.turns import Place, Turns
from taskweaver_ext.tools.display_text import (
    ImageOutput,
    JsonOutput,
    MarkdownOutput,
    StatusOutput,
)
from taskweaver_ext.tools.python_call import Cell, PythonCallResult
from taskweaver_ext.tools.python_tool import PythonTool
from tests.support.executions import LIMIT_SECONDS, has_ended, wait_until, with_enough_time

KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
PID = "import os; print(os.getpid())"


@pytest.fixture(scope="module")
def shared_tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonTool]:
    with PythonTool(cwd=tmp_path_factory.mktemp("cwd")) as tool:
        yield tool


@pytest.fixture
def tool(shared_tool: PythonTool) -> Iterator[PythonTool]:
    """A tool without sessions."""
    yield shared_tool
    shared_tool.end_session("default")


def _cell(title: str, code: str) -> dict[str, str]:
    return {"title": title, "code": code}


def test_cells_run_in_order_on_one_kernel_that_stays(tool: PythonTool) -> None:
    first = tool.call({"cells": [_cell("make", "x = 2"), _cell("use", "print(x * 21)")]})
    second = tool.call({"cells": [{"code": "x"}]})

    assert first.text == "[1/2] make\n(no output)\n\n[2/2] use\n42"
    assert second.text == "2"
    assert not first.is_error


def test_a_failing_cell_is_named_and_the_rest_is_not_run(tool: PythonTool) -> None:
    cells = [
        _cell("load", "x = 1"),
        _cell("divide", "y = 2; x / 0"),
        _cell("never", "z = 3"),
    ]

    result = tool.call({"cells": cells})
    after = tool.run(["print(x, y, 'z' in dir())"])

    assert result.is_error
    assert [cell.is_success for cell in result.cells] == [True, False]
    assert "ZeroDivisionError: division by zero" in result.cells[1].output
    assert result.text.endswith(
        "Cell 2 of 3 (divide) failed: Command exited with code 1."
        " What the cells before it did is kept. 1 later cell was not run."
    )
    assert after.text == "1 2 False"


def test_reset_starts_afresh_before_the_first_cell_only(tool: PythonTool) -> None:
    tool.run(["x = 1"])

    result = tool.run(["print('x' in dir()); y = 1", "print('y' in dir())"], reset=True)

    assert [cell.output for cell in result.cells] == ["False\n", "True\n"]


def test_kernels_are_kept_by_session_and_folder(tool: PythonTool, tmp_path: Path) -> None:
    where = "import os; print(os.getcwd(), os.getpid())"
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()

    words = [
        tool.run([where], cwd=folder, session_id=session).text.split()
        for folder, session in [(here, "a"), (there, "a"), (here, "b"), (here, "a")]
    ]
    for session in ("a", "b"):
        tool.end_session(session)

    assert [folder for folder, _ in words] == [str(here), str(there), str(here), str(here)]
    assert len({pid for _, pid in words}) == 3
    assert words[0] == words[3]


def test_any_text_may_name_a_session(tool: PythonTool) -> None:
    names = ("user:1", "user/1", "..", "", "-", "é", "x" * 300)

    for name in names:
        tool.run([f"name = {name!r}"], session_id=name)
        result = tool.run(["print(name)"], session_id=name)
        tool.end_session(name)

        assert result.text == (name or "(no output)")


def test_what_may_be_left_out_may_be_null(tool: PythonTool) -> None:
    cell = {"code": "print('hi')", "title": None}

    result = tool.call({"cells": [cell], "timeout": None, "cwd": None, "reset": None})

    assert result.text == "hi"


def test_a_folder_that_does_not_exist_is_refused_before_anything_runs(tool: PythonTool) -> None:
    result = tool.run(["1"], cwd="nowhere")

    assert result.is_error
    assert result.cells == ()
    assert "nowhere" in result.text
    assert "does not exist" in result.text


def test_with_a_lifetime_of_a_call_nothing_stays(tmp_path: Path) -> None:
    with PythonTool(cwd=tmp_path, kernel_lifetime="call") as tool:
        first = tool.run(["x = 1", PID])
        is_gone = has_ended(int(first.cells[1].output))
        second = tool.run(["print('x' in dir())"])

    assert is_gone
    assert second.text == "False"
    assert second.cells[0].notices == ()


def test_idle_kernels_are_put_away_and_the_next_call_says_so(tmp_path: Path) -> None:
    with PythonTool(cwd=tmp_path, idle_seconds=0.2) as tool:
        pid = int(tool.run([PID]).text)
        wait_until(lambda: has_ended(pid))

        result = tool.run(["print(1)"])

    assert "nothing to do for 0.2 s" in result.text
    assert "variables of earlier executions are lost" in result.text
    assert result.text.endswith("\n\n1")


def test_a_fifth_session_takes_the_place_of_the_oldest(tmp_path: Path) -> None:
    with PythonTool(cwd=tmp_path) as tool:
        pids = [int(tool.run([PID], session_id=f"s{n}").text) for n in range(5)]

        assert [has_ended(pid) for pid in pids] == [True, False, False, False, False]


def test_one_death_is_survived_and_a_second_is_a_hard_error_that_names_both(
    tool: PythonTool,
) -> None:
    first, second, third = tool.run([KILL]), tool.run([KILL]), tool.run(["1"])
    fresh = tool.run(["print('again')"], reset=True)

    assert first.cells[0].status is second.cells[0].status is ExecutionStatus.DIED
    assert "fresh one" in second.text
    assert third.is_error
    assert third.cells == ()
    assert "died 2 times in a row (killed by SIGKILL; killed by SIGKILL)" in third.text
    assert "reset=true" in third.text
    assert fresh.text == "again"


def test_code_that_runs_between_two_deaths_forgives_the_first(tool: PythonTool) -> None:
    results = [tool.run([code]) for code in (KILL, "1", KILL, "1")]

    assert not results[-1].is_error


def test_the_time_is_for_all_cells_together(tool: PythonTool) -> None:
    def run_for(seconds: float) -> PythonCallResult:
        limit = math.ceil(seconds)  # it counts in whole seconds
        wait = f"import time; time.sleep({0.7 * limit}); x = 1"
        return tool.run([wait, wait], timeout=limit)

    result = with_enough_time(
        run_for, lambda result: result.cells[0].status is ExecutionStatus.SUCCESS
    )

    assert [cell.status for cell in result.cells] == [
        ExecutionStatus.SUCCESS,
        ExecutionStatus.TIMEOUT,
    ]
    assert result.cells[1].cancelled
    assert result.cells[1].exit_code is None
    assert re.search(r"Cell 2 of 2 failed: Command timed out after [\d.]+ seconds\.", result.text)
    assert tool.run(["print(x)"]).text == "1"


def test_an_interrupt_stops_the_call_and_keeps_the_output(tool: PythonTool) -> None:
    def stop(_number: int, event: ExecutionEvent) -> None:
        if isinstance(event, OutputProduced):
            tool.interrupt()

    result = tool.run(["print('so far'); import time; time.sleep(60)", "1"], on_event=stop)

    assert [cell.status for cell in result.cells] == [ExecutionStatus.CANCELLED]
    assert result.cells[0].output == "so far\n"
    assert "Command was cancelled" in result.text


def test_input_is_refused_with_an_explanation_even_if_the_code_does_not_mind(
    tool: PythonTool,
) -> None:
    result = tool.run(["try:\n    input('? ')\nexcept EOFError:\n    print('none')", "1"])

    (cell,) = result.cells
    assert cell.stdin_requested
    assert cell.exit_code == 1
    assert cell.output.startswith("none\nKernel requested stdin; interactive input is not")


def test_events_come_while_the_cells_run_with_the_number_of_the_cell(tool: PythonTool) -> None:
    heard: list[tuple[int, str]] = []

    def hear(number: int, event: ExecutionEvent) -> None:
        if isinstance(event, OutputProduced | ExecutionFinished):
            heard.append((number, getattr(event, "text", "end")))

    tool.run(["print('a')", "print('b')"], on_event=hear)

    assert heard == [(1, "a\n"), (1, "end"), (2, "b\n"), (2, "end")]


def test_displays_become_text_and_data_in_their_places(tool: PythonTool) -> None:
    code = """
from IPython.display import HTML, JSON, Image, Latex, Markdown, display
print("before", end="")
display(HTML("<p>see <b>this</b></p>"), Markdown("# Title"), JSON({"a": [1, None]}), Latex("$x$"))
display({"application/vnd.taskweaver.status+json": {"op": "glob", "count": 2}}, raw=True)
display({"image/png": "aGk=", "text/plain": "<Figure>"}, raw=True)
print("after")
"""

    (cell,) = tool.run([code]).cells

    assert cell.output == (
        "before\nsee **this**\n# Title\n{1 key}\n  a: [2 items]\n    [0]: 1\n    [1]: null\n"
        "$x$\n<Figure>\nafter\n"
    )
    assert cell.outputs == (
        MarkdownOutput("# Title"),
        JsonOutput({"a": [1, None]}),
        StatusOutput({"op": "glob", "count": 2}),
        ImageOutput("image/png", "aGk="),
    )
    assert [Path(file).read_bytes() for file in cell.files] == [b"hi"]


def test_of_a_display_that_is_updated_the_last_state_is_told(tool: PythonTool) -> None:
    code = """
handle = display("0 %", display_id=True)
for percent in range(1, 101):
    handle.update(f"{percent} %")
"""

    assert tool.run([code + "print('done')"]).text == "'100 %'\ndone"


def test_long_output_is_shortened_and_whole_at_its_address(tool: PythonTool) -> None:
    result = tool.run(
        ["import sys\nfor i in range(40_000): print(i, file=[sys.stdout, sys.stderr][i % 2])"]
    )

    (cell,) = result.cells
    assert cell.artifact is not None
    whole = tool.read_artifact(cell.artifact)
    assert sorted(map(int, whole.split())) == list(range(40_000))
    assert len(result.text) < 60_000
    assert f"whole output: {cell.artifact}" in result.text
    assert tool.read_artifact(cell.artifact, offset=10, max_bytes=5) == whole[10:15]


def test_a_listener_that_is_slow_costs_none_of_the_output(
    tool: PythonTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_run, "CATCH_UP_SECONDS", 0.2)
    has_ended = threading.Event()

    def hold_on(_number: int, event: ExecutionEvent) -> None:
        if isinstance(event, OutputProduced):
            has_ended.wait(1.0)  # long after the end of the code

    (cell,) = tool.run(["for i in range(200_000): print(i)"], on_event=hold_on).cells

    assert cell.artifact is not None
    assert tool.read_artifact(cell.artifact) == "".join(f"{i}\n" for i in range(200_000))
    assert "display_skipped" in [notice.kind for notice in cell.notices]


def test_a_call_from_a_callback_of_its_own_session_is_refused(tool: PythonTool) -> None:
    inner: list[PythonCallResult] = []

    result = tool.run(["print(1)"], on_event=lambda *_: inner.append(tool.run(["2"])))

    assert not result.is_error
    assert "would wait for itself" in inner[0].text


def test_a_folder_has_one_kernel_however_its_path_is_written(tool: PythonTool) -> None:
    first = tool.run(["import os; os.makedirs('sub', exist_ok=True)", PID])
    second = tool.run([PID], cwd="sub/..")

    assert second.text == first.cells[1].output.strip()


@pytest.mark.parametrize("address", ["artifact://none", "artifact://../../etc/passwd", "x/y"])
def test_an_address_of_nothing_is_refused(address: str, tool: PythonTool) -> None:
    with pytest.raises(FileNotFoundError, match="There is no output"):
        tool.read_artifact(address)


def test_a_progress_bar_is_told_as_its_last_state(tool: PythonTool) -> None:
    code = "for i in range(101): print(f'\\r{i} %', end='', flush=True)"

    assert tool.run([code]).text == "100 %"


def test_calls_of_one_session_queue_in_the_order_they_came(
    tool: PythonTool, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    busy = f"""
import pathlib, time
order = []
print("busy")
while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)
"""
    is_busy = threading.Event()
    queued: list[Place] = []

    class ObservedTurns(Turns):
        def wait(self, place: Place, seconds: float | None = None) -> bool:
            queued.append(place)
            return super().wait(place, seconds)

    tool._turns["default"] = ObservedTurns()
    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(tool.run, [busy], on_event=lambda *_: is_busy.set())]
        assert is_busy.wait(LIMIT_SECONDS)
        for number in range(4):
            calls.append(pool.submit(tool.run, [f"order.append({number})"]))
            wait_until(lambda n=number: len(queued) == n + 2)  # type: ignore[misc]
        gate.touch()
        results = [call.result(LIMIT_SECONDS) for call in calls]

    assert not any(result.is_error for result in results)
    assert tool.run(["print(order)"]).text == "[0, 1, 2, 3]"


def test_sessions_do_not_wait_for_each_other(tool: PythonTool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(tool.run, [wait], timeout=60)
        result = tool.run([f"import pathlib; pathlib.Path({str(gate)!r}).touch()"], session_id="b")
        assert not waiting.result(LIMIT_SECONDS).is_error
    tool.end_session("b")

    assert not result.is_error


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "cells must be a list"),
        ({"cells": []}, "cells must be a list"),
        ({"cells": [{"title": "no code"}]}, "cells must be a list"),
        ({"cells": [{"code": "1"}], "timeout": "soon"}, "timeout must be a number"),
        ({"cells": [{"code": "1"}], "timeout": -1}, "timeout must be a number"),
        ({"cells": [{"code": "1"}], "cwd": 3}, "cwd must be"),
        ({"cells": [{"code": "1"}], "reset": "yes"}, "reset must be true or false"),
        ({"cells": [{"code": "1"}], "colour": 1}, "there is no parameter 'colour'"),
    ],
)
def test_a_call_that_makes_no_sense_is_explained(
    arguments: dict[str, object], complaint: str, tool: PythonTool
) -> None:
    result = tool.call(arguments)

    assert result.is_error
    assert complaint in result.text


def test_the_schema_is_json_and_names_every_parameter() -> None:
    schema = json.loads(json.dumps(PythonTool.schema))

    assert schema["name"] == "python"
    assert list(schema["parameters"]["properties"]) == ["cells", "timeout", "cwd", "reset"]
    assert schema["parameters"]["required"] == ["cells"]


def test_results_are_frozen() -> None:
    result = PythonCallResult(text="", is_error=False)

    with pytest.raises(FrozenInstanceError):
        result.text = "other"  # type: ignore[misc]  # that is what is tested


def test_prelude_and_modules_are_there_in_every_kernel(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "shapes.py").write_text("side = 3")
    (tmp_path / "modules" / "bad.py").write_text("1 / 0")

    with PythonTool(cwd=tmp_path, prelude="k = 2", modules=[tmp_path / "modules"]) as tool:
        result = tool.run(["print(k * side)"])

    assert "bad.py failed: ZeroDivisionError" in result.text
    assert result.text.endswith("\n\n6")


def test_modules_of_the_user_and_of_the_project_are_there_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    stranger = tmp_path / "stranger"
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder, whose in (
        (tmp_path / ".taskweaver", "user"),
        (project, "project"),
        (stranger, "stranger"),
    ):
        (folder / "modules").mkdir(parents=True)
        (folder / "modules" / "helpers.py").write_text(f"whose = {whose!r}")
    (project / "taskweaver_config.json").write_text("{}")
    (project / "sub").mkdir()

    with PythonTool(cwd=project / "sub") as tool:
        in_project = tool.run(["print(whose)"])
    with PythonTool(cwd=stranger) as tool:
        elsewhere = tool.run(["print(whose)"])

    assert in_project.text == "project"
    assert elsewhere.text == "user"  # what merely lies in a folder named modules is not run


def test_a_tool_on_a_given_environment_leaves_it_open(tmp_path: Path) -> None:
    with Environment(tmp_path) as environment:
        with PythonTool(environment, cwd=tmp_path) as tool:
            pid = int(tool.run([Cell(code=PID)]).text)
        wait_until(lambda: has_ended(pid))
        environment.start_session("still-there")

        assert environment.execute_code("still-there", "1").output == "1"


def test_an_interpreter_without_ipykernel_is_an_error_the_model_reads(tmp_path: Path) -> None:
    with PythonTool(cwd=tmp_path, python="/nowhere/python") as tool:
        result = tool.run(["1"])

    assert result.is_error
    assert "There is no Python at /nowhere/python" in result.text


def test_an_interrupt_while_the_kernel_starts_is_heeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Environment(tmp_path) as environment, PythonTool(environment, cwd=tmp_path) as tool:
        plain = environment.start_session

        def be_interrupted_while_starting(session_id: str, **options: Any) -> None:  # noqa: ANN401
            tool.interrupt()
            plain(session_id, **options)

        monkeypatch.setattr(environment, "start_session", be_interrupted_while_starting)
        result = tool.run(["open('mark', 'w')", "1"], timeout=60)
        monkeypatch.undo()
        after = tool.run(["print('next')"])

    assert [cell.status for cell in result.cells] == [ExecutionStatus.CANCELLED]
    assert "Cell 1 of 2 failed: Command was cancelled. 1 later cell was not run." in result.text
    assert not (tmp_path / "mark").exists()
    assert after.text == "next"


def test_an_interrupt_does_not_wait_for_a_kernel_that_takes_long_to_start(tmp_path: Path) -> None:
    prelude = "import pathlib, time; pathlib.Path('mark').touch(); time.sleep(1000)"
    with PythonTool(cwd=tmp_path, prelude=prelude) as tool:

        def interrupt_when_it_starts() -> None:
            wait_until((tmp_path / "mark").exists)
            tool.interrupt()

        interrupter = threading.Thread(target=interrupt_when_it_starts)
        interrupter.start()
        result = tool.run(["1"], timeout=0)
        interrupter.join()

    assert [cell.status for cell in result.cells] == [ExecutionStatus.CANCELLED]


def test_an_interrupt_between_two_cells_is_heeded(tool: PythonTool) -> None:
    def interrupt_after_the_first(number: int, event: ExecutionEvent) -> None:
        if number == 1 and isinstance(event, ExecutionFinished):
            tool.interrupt()

    result = tool.run(["x = 1", "x = 2"], on_event=interrupt_after_the_first)

    assert [cell.status for cell in result.cells] == [
        ExecutionStatus.SUCCESS,
        ExecutionStatus.CANCELLED,
    ]
    assert tool.run(["print(x)"]).text == "1"


def test_a_session_that_is_ended_while_its_kernel_starts_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Environment(tmp_path) as environment, PythonTool(environment, cwd=tmp_path) as tool:
        start = LocalKernelHost.start

        def end_while_starting(host: LocalKernelHost) -> KernelConnection:
            connection = start(host)
            ending = threading.Thread(target=tool.end_session, args=("default",))
            ending.start()
            wait_until(lambda: environment.sessions() == [])
            return connection

        monkeypatch.setattr(LocalKernelHost, "start", end_while_starting)
        result = tool.run(["1"])

        assert "has been stopped" in result.text
        assert environment.sessions() == []


@pytest.mark.parametrize("arguments", [None, [], "print(1)", 3])
def test_a_call_that_is_no_object_is_explained(
    arguments: dict[str, object], tool: PythonTool
) -> None:
    result = tool.call(arguments)

    assert result.is_error
    assert "must be an object with cells" in result.text


@pytest.mark.parametrize("cells", ["print(1)", []])
def test_cells_that_are_no_list_of_cells_are_refused(cells: list[str], tool: PythonTool) -> None:
    with pytest.raises(ValueError, match="cells is a list"):
        tool.run(cells)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_time_that_is_none_is_refused(timeout: float, tool: PythonTool) -> None:
    with pytest.raises(ValueError, match="timeout is a number of seconds"):
        tool.run(["1"], timeout=timeout)


@pytest.mark.parametrize(
    "settings",
    [{"kernel_lifetime": "forever"}, {"max_timeout": -1.0}, {"max_timeout": float("nan")}],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        PythonTool(**settings)


def test_a_part_of_an_output_that_makes_no_sense_is_refused(tool: PythonTool) -> None:
    with pytest.raises(ValueError, match="not negative"):
        tool.read_artifact("artifact://x", offset=-1)


def test_a_title_takes_one_line(tool: PythonTool) -> None:
    result = tool.call({"cells": [_cell("load\n  the data", "1"), {"code": "2", "title": None}]})

    assert result.text == "[1/2] load the data\n1\n\n[2/2]\n2"


@pytest.mark.parametrize("cwd", ["\0", "x" * 5000, "\ud800"])
def test_a_path_that_is_none_is_an_error_the_model_reads(cwd: str, tool: PythonTool) -> None:
    result = tool.call({"cells": [{"code": "1"}], "cwd": cwd})

    assert result.is_error
    assert result.cells == ()


def test_what_a_cell_writes_after_its_end_comes_with_the_next_result(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    heard: queue.Queue[tuple[str, LateOutput]] = queue.Queue()
    slow = f"""
import pathlib, threading, time
def wait():
    while not pathlib.Path({str(gate)!r}).exists():
        time.sleep(0.01)
    print("done at last")
threading.Thread(target=wait).start()
"""
    with PythonTool(on_late_output=lambda *late: heard.put(late)) as tool:
        first = tool.run([Cell(code=slow, title="begin a job")], session_id="s")
        gate.touch()
        session_id, late = heard.get(timeout=LIMIT_SECONDS)
        second = tool.run(["print('next')"], session_id="s")
        third = tool.run(["print('last')"], session_id="s")

    assert (first.late, third.late, third.text) == ((), (), "last")
    assert (session_id, late.text) == ("s", "done at last\n")
    assert second.text == "[late output of begin a job]\ndone at last\n[end of late output]\n\nnext"
    assert [(one.name, one.text) for one in second.late] == [("begin a job", "done at last")]


def test_output_comes_before_the_error_and_nothing_that_was_cleared(tool: PythonTool) -> None:
    code = """
from IPython.display import clear_output
print("gone")
clear_output()
print("x", end="")
1 / 0
"""

    text = tool.run([code]).text

    assert text.startswith("x\n----")
    assert "ZeroDivisionError" in text
