"""Output belongs to the execution that caused it, whoever writes it and whenever."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import LateOutput
from tests.support.executions import LIMIT_SECONDS, run


@pytest.fixture
def late_outputs() -> queue.Queue[LateOutput]:
    return queue.Queue()


@pytest.fixture
def environment(
    shared_environment: Environment, tmp_path: Path, late_outputs: queue.Queue[LateOutput]
) -> Iterator[Environment]:
    shared_environment.start_session(
        "s1", session_dir=tmp_path / "session", on_late_output=late_outputs.put
    )
    yield shared_environment
    shared_environment.stop_session("s1")


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.run(['sh', '-c', 'echo out; echo err >&2'])",
        "import os; os.system('echo out; echo err >&2')",
        "import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')",
        "import ctypes; c = ctypes.CDLL(None); c.dprintf(1, b'out\\n'); c.dprintf(2, b'err\\n')",
        "!echo out; echo err >&2",
    ],
    ids=["subprocess", "os.system", "os.write", "C", "magic"],
)
def test_child_processes_and_c_code_are_heard(environment: Environment, code: str) -> None:
    heard = run(environment, code)

    assert heard.text("stdout") + heard.text("stderr") in ("out\nerr\n", "out\r\nerr\r\n")


def test_a_child_keeps_its_place_among_prints(environment: Environment) -> None:
    code = """
import subprocess
for i in range(20):
    print("before", i)
    subprocess.run(["echo", f"child {i}"])
    print("after", i)
"""

    heard = run(environment, code)

    expected = "".join(f"before {i}\nchild {i}\nafter {i}\n" for i in range(20))
    assert heard.text() == expected


def test_a_split_character_of_a_child_survives(environment: Environment) -> None:
    code = """
import os, time
os.write(1, "€".encode()[:1]); time.sleep(0.05)
os.write(1, "€".encode()[1:])
"""

    assert run(environment, code).text() == "€"


def next_line(late_outputs: queue.Queue[LateOutput]) -> tuple[str, str, str]:
    """By execution and stream, what came late up to the end of a line: in one piece or in more."""
    pieces: list[LateOutput] = []
    while not pieces or not pieces[-1].text.endswith("\n"):
        pieces.append(late_outputs.get(timeout=LIMIT_SECONDS))
    [(execution_id, stream)] = {(piece.execution_id, piece.stream) for piece in pieces}
    return execution_id, stream, "".join(piece.text for piece in pieces)


def test_a_background_child_writes_late_under_its_own_execution(
    environment: Environment, late_outputs: queue.Queue[LateOutput], tmp_path: Path
) -> None:
    gate = tmp_path / "session" / "cwd" / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.01; done; echo late child"
    environment.execute_code(
        "s1", f"import subprocess; p = subprocess.Popen(['sh', '-c', {wait!r}])", exec_id="first"
    )

    code = f"open({str(gate)!r}, 'w').close(); p.wait(); print('second')"
    second = environment.execute_code("s1", code, exec_id="second", timeout=LIMIT_SECONDS)

    assert next_line(late_outputs) == ("first", "stdout", "late child\n")
    assert "".join(second.stdout) == "second\n"


@pytest.mark.parametrize(
    "start", ["threading.Thread(target=work).start()", "_thread.start_new_thread(work, ())"]
)
def test_a_thread_writes_late_under_its_own_execution(
    environment: Environment, late_outputs: queue.Queue[LateOutput], start: str
) -> None:
    work = """
import threading, _thread
go, done = threading.Event(), threading.Event()
def work():
    go.wait()
    print("late thread")
    done.set()
"""
    environment.execute_code("s1", work + start, exec_id="first")

    second = environment.execute_code("s1", "go.set(); done.wait(); print('second')")

    assert next_line(late_outputs) == ("first", "stdout", "late thread\n")
    assert "".join(second.stdout) == "second\n"


def test_a_thread_that_fails_is_explained_without_our_own_frames(environment: Environment) -> None:
    code = "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()"

    text = run(environment, code).text("stderr")

    assert "ZeroDivisionError" in text
    assert "attribution" not in text


def test_a_thread_pool_of_an_earlier_execution_belongs_to_whoever_uses_it(
    environment: Environment,
) -> None:
    start = (
        "from concurrent.futures import ThreadPoolExecutor as P; p = P(1); p.submit(int).result()"
    )
    environment.execute_code("s1", start)

    second = run(environment, "p.submit(print, 'mine').result()")

    assert second.text() == "mine\n"


def test_late_output_is_recorded(environment: Environment, tmp_path: Path) -> None:
    environment.execute_code("s1", "import threading; go = threading.Event()", exec_id="zero")
    environment.execute_code(
        "s1",
        "t = threading.Thread(target=lambda: (go.wait(), print('kept'))); t.start()",
        exec_id="first",
    )
    environment.execute_code("s1", "go.set(); t.join()", exec_id="second")
    environment.execute_code("s1", "pass", exec_id="third")

    record = tmp_path / "session" / "ces" / "output" / "first.late.stdout"
    assert record.read_text() == "kept\n"


def test_nothing_reaches_our_own_terminal(
    environment: Environment, capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
import os, sys
print("a"); os.write(1, b"b"); os.system("echo c"); sys.__stderr__.write("d")
"""

    run(environment, code)

    assert capfd.readouterr() == ("", "")
