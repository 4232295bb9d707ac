"""Values, displays, errors, and code that is odd: each as a notebook user would expect it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import DisplayProduced, DisplayUpdated, OutputCleared
from taskweaver_ext.ces.execution.results import ExecutionStatus
from tests.support.executions import run


def test_the_last_expression_is_the_output(environment: Environment) -> None:
    assert environment.execute_code("s1", "x = 6\nx * 7").output == "42"
    assert environment.execute_code("s1", "x * 7;").output == ""
    assert environment.execute_code("s1", "y = 1").output == ""


def test_variables_and_functions_last(environment: Environment) -> None:
    environment.execute_code("s1", "factor = 3\ndef times(x): return factor * x")

    assert environment.execute_code("s1", "times(14)").output == "42"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("", ""),
        ("# only a comment", ""),
        ("1 + 1;", ""),
        ("print('a');", ""),
        ("import asyncio\nawait asyncio.sleep(0, 'waited')", "'waited'"),
        ("%pwd", None),
        ("%%timeit -n1 -r1\npass", ""),
        ("'''a\n;b'''", "'a\\n;b'"),
    ],
)
def test_code_of_all_kinds_runs(environment: Environment, code: str, output: str | None) -> None:
    result = environment.execute_code("s1", code)

    assert result.status is ExecutionStatus.SUCCESS
    if output is not None:
        assert result.output == output


def test_replies_leave_on_the_thread_that_owns_their_socket(environment: Environment) -> None:
    code = """
import threading
kernel = get_ipython().kernel
has_thread = isinstance(getattr(kernel, "shell_channel_thread", None), threading.Thread)
has_thread == bool(getattr(kernel, "_supports_kernel_subshells", False))
"""

    assert environment.execute_code("s1", code).output == "True"


def test_an_error_is_a_plain_traceback(environment: Environment) -> None:
    result = environment.execute_code("s1", "def f(): return 1 / 0\nf()")

    assert result.status is ExecutionStatus.ERROR
    assert "ZeroDivisionError: division by zero" in (result.error or "")
    assert "def f(): return 1 / 0" in (result.error or "")
    assert "\x1b" not in (result.error or "")


def test_a_syntax_error_is_a_result(environment: Environment) -> None:
    result = environment.execute_code("s1", "print('a'\nx = = 2")

    assert result.status is ExecutionStatus.ERROR
    assert "SyntaxError" in (result.error or "")
    assert environment.execute_code("s1", "'on'").output == "'on'"


@pytest.mark.parametrize(
    ("code", "exit_code", "status"),
    [
        ("import sys; sys.exit(3)", 3, ExecutionStatus.ERROR),
        ("exit(4)", 4, ExecutionStatus.ERROR),
        ("quit()", 0, ExecutionStatus.SUCCESS),
        ("exit", 0, ExecutionStatus.SUCCESS),
        ("import sys; sys.exit()", 0, ExecutionStatus.SUCCESS),
        ("import sys; sys.exit('bad')", 1, ExecutionStatus.ERROR),
        ("raise SystemExit(5)", 5, ExecutionStatus.ERROR),
    ],
)
def test_exit_ends_the_cell_and_not_the_kernel(
    environment: Environment, code: str, exit_code: int, status: ExecutionStatus
) -> None:
    environment.execute_code("s1", "x = 1")

    heard = run(environment, code)

    assert heard.result.exit_code == exit_code
    assert heard.result.status is status
    assert heard.text("stderr") == ("bad\n" if "bad" in code else "")
    assert environment.execute_code("s1", "x").output == "1"


def test_a_forked_child_ends_with_the_cell(environment: Environment) -> None:
    code = """
import os
child = os.fork()
if child == 0:
    print("child")
else:
    _, status = os.waitpid(child, 0)
    print("parent", os.waitstatus_to_exitcode(status))
"""

    assert run(environment, code).text() == "child\nparent 0\n"
    assert environment.execute_code("s1", "'one kernel'").output == "'one kernel'"


def test_a_forked_child_that_raises_says_so_and_fails(environment: Environment) -> None:
    code = """
import os
child = os.fork()
if child == 0:
    raise ValueError("in the child")
_, status = os.waitpid(child, 0)
os.waitstatus_to_exitcode(status)
"""

    heard = run(environment, code)

    assert heard.result.output == "1"
    assert "in the child" in heard.text("stderr")


def test_a_replaced_stdout_is_put_back(environment: Environment) -> None:
    code = "import io, sys; sys.stdout = io.StringIO(); print('swallowed')"

    assert run(environment, code).text() == ""
    assert run(environment, "print('back')").text() == "back\n"


def test_a_closed_stdout_is_still_there(environment: Environment) -> None:
    environment.execute_code("s1", "import sys; sys.stdout.close()")

    assert run(environment, "print('open')").text() == "open\n"


@pytest.mark.parametrize(
    "code",
    [
        "import sys; del sys.stdout",
        "import os; os.close(1)",
        "x = '\ud800'",
        "import os; os.close(2)",
    ],
)
def test_whatever_a_cell_does_to_its_streams_it_ends_and_the_next_is_heard(
    environment: Environment, code: str
) -> None:
    result = environment.execute_code("s1", code, timeout=20)

    assert result.status in (ExecutionStatus.SUCCESS, ExecutionStatus.ERROR)
    assert result.death is None
    assert run(environment, "print('heard')").text() == "heard\n"
    assert run(environment, "import os; os.system('echo child')").text() == "child\n"


@pytest.mark.parametrize(
    "bundle",
    [
        {"application/vnd.taskweaver.log+json": "x"},
        {"image/png": "é"},
        {"application/vnd.taskweaver.artifact+json": {"path": "a\0b"}},
    ],
)
def test_a_senseless_message_is_left_out_and_named(
    environment: Environment, bundle: dict[str, object]
) -> None:
    environment.execute_code("s1", "x = 1")

    code = f"from IPython.display import display; display({bundle!r}, raw=True)"
    result = environment.execute_code("s1", code)

    assert result.status is ExecutionStatus.SUCCESS
    assert environment.execute_code("s1", "x").output == "1"


@pytest.mark.not_on_gateway("a gateway takes messages of at most 10 MB")
def test_ten_megabytes_of_code_run(environment: Environment) -> None:
    code = f"text = '''{'x' * (10 << 20)}'''\nlen(text)"

    assert environment.execute_code("s1", code, timeout=60).output == str(10 << 20)


def test_displays_keep_their_place_among_the_output(environment: Environment) -> None:
    code = """
from IPython.display import display, HTML
print("before")
display(HTML("<b>bold</b>"))
print("after")
"""

    heard = run(environment, code)

    kinds = [type(e).__name__ for e in heard.events]
    kinds = [kind for kind, _ in itertools.groupby(kinds)]  # a line may come in pieces
    assert kinds == [
        "StatusChanged",
        "OutputProduced",
        "DisplayProduced",
        "OutputProduced",
        "ExecutionFinished",
    ]
    assert heard.result.displays[0].bundle["text/html"] == "<b>bold</b>"


def test_a_display_is_updated_and_output_cleared(environment: Environment) -> None:
    code = """
from IPython.display import clear_output, display
handle = display("one", display_id="d1")
handle.update("two")
clear_output(wait=True)
"""

    heard = run(environment, code)

    shown, updated, cleared = heard.events[1:4]
    assert isinstance(shown, DisplayProduced)
    assert isinstance(updated, DisplayUpdated)
    assert shown.display_id == updated.display_id == "d1"
    assert isinstance(cleared, OutputCleared)
    assert cleared.wait
    assert [d.bundle["text/plain"] for d in heard.result.displays] == ["'two'"]


@pytest.mark.not_in_container("its image has no matplotlib")
def test_a_chart_is_saved_as_an_artifact(environment: Environment) -> None:
    code = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3]); plt.show()
"""

    heard = run(environment, code)

    (artifact,) = heard.result.artifact
    path = Path(artifact.file_name)
    assert artifact.type == "image"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "ArtifactProduced" in [type(e).__name__ for e in heard.events]


def test_a_displayed_image_is_saved_as_an_artifact(environment: Environment) -> None:
    code = """
from IPython.display import display
display({"image/png": "iVBORw0KGgo=", "text/plain": "a picture"}, raw=True)
"""

    result = environment.execute_code("s1", code, exec_id="e7")

    (artifact,) = result.artifact
    assert Path(artifact.file_name).read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert (artifact.mime_type, artifact.preview) == ("image/png", "a picture")


def test_warnings_and_logging_reach_stderr(environment: Environment) -> None:
    heard = run(environment, "import logging, warnings; warnings.warn('w'); logging.error('l')")

    assert "UserWarning: w" in heard.text("stderr")
    assert "ERROR:root:l" in heard.text("stderr")
    assert heard.result.status is ExecutionStatus.SUCCESS


def test_usage_is_reported(environment: Environment) -> None:
    result = environment.execute_code("s1", "sum(i * i for i in range(1_000_000))")

    assert (result.usage.cpu_seconds or 0) > 0.01
    assert (result.usage.peak_memory_bytes or 0) > 10 << 20
    assert result.duration_seconds > 0
