"""What IPython shows beside a cell is output; what ends the cell is its error, in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from tests.support.executions import run

GOES_ON = {
    "a script that fails": "%run bad.py",
    "a script that cannot be compiled": "%run worse.py",
    "a cell within the cell": "_ = get_ipython().run_cell('1 / 0')",
    "a cell within the cell that cannot be compiled": "_ = get_ipython().run_cell('x = = 1')",
}


@pytest.mark.parametrize("name", GOES_ON)
def test_a_traceback_that_does_not_end_the_cell_is_output(
    environment: Environment, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "session" / "cwd"
    (folder / "bad.py").write_text("1 / 0")
    (folder / "worse.py").write_text("x = = 1")

    heard = run(environment, f"print('before')\n{GOES_ON[name]}\nprint('after')")

    assert heard.result.status is ExecutionStatus.SUCCESS, heard.result.error
    assert heard.text() == "before\nafter\n"
    expected = "ZeroDivisionError: division by zero" if "fail" in name else ""
    assert expected in heard.text("stderr")
    assert "Error" in heard.text("stderr")
    stderr_at = [stream for stream, _ in heard.pieces].index("stderr")
    assert 0 < stderr_at < len(heard.pieces) - 1


def test_the_error_that_ends_the_cell_is_no_output(environment: Environment) -> None:
    heard = run(environment, "_ = get_ipython().run_cell('1 / 0')\nraise ValueError('own')")

    assert (heard.result.error or "").endswith("ValueError: own")
    assert "own" not in heard.text("stderr")
    assert "ZeroDivisionError" in heard.text("stderr")
    assert "ZeroDivisionError" not in (heard.result.error or "")


def test_an_error_is_explained_once(environment: Environment) -> None:
    count = """
explained, shown_by = [], get_ipython().InteractiveTB
plain = shown_by.structured_traceback
shown_by.structured_traceback = lambda *a, **n: explained.append(1) or plain(*a, **n)"""
    environment.execute_code("s1", count)

    error = environment.execute_code("s1", "1 / 0").error

    assert "ZeroDivisionError" in str(error)
    assert environment.execute_code("s1", "len(explained)").output == "1"


def test_what_fails_beside_the_code_is_shown(environment: Environment) -> None:
    code = """
def fail(*_): raise LookupError("in a callback")
get_ipython().events.register("post_run_cell", fail)
"""

    heard = run(environment, code)

    assert heard.result.status is ExecutionStatus.SUCCESS
    assert "LookupError: in a callback" in heard.text("stderr")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("len?", "Return the number of items in a container."),
        ("import json\njson.dumps??", "def dumps(obj, *, skipkeys=False"),
        ("help(len)", "Return the number of items in a container."),
        ("get_ipython().run_line_magic('pinfo', 'len')", "Return the number of items"),
        ("%prun sum([])", "function calls in"),
    ],
)
def test_help_pages_are_output(environment: Environment, code: str, expected: str) -> None:
    heard = run(environment, f"print('before')\n{code}\nprint('after')")

    assert heard.text().startswith("before\n")
    assert expected in heard.text()
    assert heard.text().endswith("after\n")


@pytest.mark.parametrize("wait", ["", "import asyncio; await asyncio.sleep(0)\n"])
def test_a_group_of_exceptions_is_explained(environment: Environment, wait: str) -> None:
    environment.execute_code("s1", "an_earlier_error")
    code = wait + "raise ExceptionGroup('both', [ValueError('a'), TypeError('b')])"

    heard = run(environment, code)

    assert "ExceptionGroup: both (2 sub-exceptions)" in (heard.result.error or "")
    assert "ValueError: a" in (heard.result.error or "")
    assert "an_earlier_error" not in (heard.result.error or "")
    assert heard.text("stderr") == ""


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise ValueError('half \\ud800')", "ValueError: half \\ud800"),
        ("import sys; sys.exit('half \\ud800')", "SystemExit: half \\ud800"),
        ("import nothing_\\ud800", ""),
    ],
)
def test_half_a_character_does_not_cost_an_error(
    environment: Environment, code: str, error: str
) -> None:
    result = environment.execute_code("s1", code)

    assert result.status is ExecutionStatus.ERROR
    assert (result.error or "").endswith(error)
    (result.error or "").encode()
    assert environment.execute_code("s1", "'on'").output == "'on'"


def test_half_a_character_may_be_printed_and_displayed(environment: Environment) -> None:
    code = """
import sys
print("out \\ud800"); print("err \\udcff", file=sys.stderr)
display({"text/plain": "shown \\ud800"}, raw=True)
"""

    heard = run(environment, code)

    assert heard.text() == "out \\ud800\n"
    assert heard.text("stderr") == "err \\udcff\n"
    assert heard.result.displays[0].bundle == {"text/plain": "shown \\ud800"}


def test_leaving_the_debugger_has_a_name(environment: Environment) -> None:
    result = environment.execute_code(
        "s1", "breakpoint()\nprint('never')", on_input=lambda *_: "q", timeout=30
    )

    assert result.status is ExecutionStatus.ERROR
    assert result.error == "BdbQuit"


def test_exit_still_leaves_the_cell_after_a_reset(environment: Environment) -> None:
    environment.execute_code("s1", "%reset -f")

    result = environment.execute_code("s1", "exit(3)")

    assert result.exit_code == 3
