"""A kernel says what it knows and does, idle or busy, and no code of the user runs for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.looks import Completions
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.errors import SessionError
from taskweaver_ext.text.redaction import MASK, Redactor
from tests.support.executions import LIMIT_SECONDS, OpenEnvironment, run, wait_until

SETUP = '''
class Point:
    """A place."""

    def __init__(self, x, y=2):
        self.x = x

    @property
    def distance(self):
        raise SystemExit("looked at")

    def move(self, dx: int, *, dy=0):
        """Move it."""
        return self

point = Point(1)
prices = {"apple": 1, "pear": [1, 2, 3]}
'''

LOOPS = "def spin(n):\n    while True:\n        n += 1\nspin(0)"
SLEEPS = "import time\ntime.sleep(1000)"
AWAITS = "import asyncio\nasync def wait():\n    await asyncio.sleep(1000)\nawait wait()"

HOSTILE = """
import threading, itertools
class Evil(type):
    def __getattribute__(cls, name): asked.append(name); raise RuntimeError(name)
    def __instancecheck__(cls, other): asked.append("instance"); return True
class Hostile(metaclass=Evil):
    def __getattr__(self, name): asked.append(name); threading.Event().wait()
    def __getattribute__(self, name): asked.append(name); return object.__getattribute__(self, name)
    def __dir__(self): asked.append("dir"); return itertools.count()
    def __repr__(self): asked.append("repr"); print("loud"); threading.Event().wait()
    def __len__(self): asked.append("len"); raise SystemExit
    def __eq__(self, other): asked.append("eq"); return True
    def __hash__(self): asked.append("hash"); return 1
    def __bool__(self): asked.append("bool"); raise SystemExit
    @property
    def __class__(self): asked.append("class"); return int
    @property
    def __dict__(self): asked.append("dict"); return {}
    @property
    def blocks(self): asked.append("blocks"); threading.Event().wait()
class Lying:
    def __dir__(self): asked.append("dir"); return [1, None, "no name", "lie"]
    def __repr__(self): asked.append("repr"); raise RuntimeError
    def __init__(self): self.real = 2
asked = []
lying, strange = Lying(), [Lying(), {1: Lying()}]
asked.clear()
"""
"""Objects that note whatever is asked of them."""


def texts(completions: Completions) -> list[str]:
    assert (completions.status, completions.detail) == ("ok", "")
    return [match.text for match in completions.matches]


def complete(environment: Environment, code: str) -> list[str]:
    return texts(environment.complete("s1", code, timeout=LIMIT_SECONDS))


@contextlib.contextmanager
def running(environment: Environment, code: str) -> Iterator[list[ExecutionResult]]:
    """Meanwhile code runs; it is stopped at the end, and the list has its result then."""
    results: list[ExecutionResult] = []
    thread = threading.Thread(
        target=lambda: results.append(environment.execute_code("s1", code, timeout=LIMIT_SECONDS))
    )
    thread.start()
    try:
        wait_until(lambda: environment.peek("s1", timeout=0.2).running is not None)
        yield results
    finally:
        environment.interrupt("s1", kill_after=5)
        thread.join()


def test_an_idle_kernel_completes_what_it_knows(environment: Environment) -> None:
    run(environment, SETUP)

    assert complete(environment, "poi") == ["point"]
    assert complete(environment, "point.") == ["distance", "move", "x"]
    assert complete(environment, "point.move(d") == [
        "dx=",
        "dy=",
        "def",
        "del",
        "delattr",
        "dict",
        "dir",
        "display",
        "divmod",
    ]
    assert complete(environment, "prices['") == ["apple", "pear"]
    found = environment.complete("s1", "x = point.mo + 1", cursor=12, timeout=LIMIT_SECONDS)
    assert (found.start, found.end) == (10, 12)
    (move,) = found.matches
    assert (move.text, move.kind, move.detail) == ("move", "method", "(dx, *, dy=0)")


def test_help_says_how_something_is_called_and_where_it_is_from(environment: Environment) -> None:
    run(environment, SETUP)

    move = environment.inspect("s1", "point.move(1, ", timeout=LIMIT_SECONDS)
    point = environment.inspect("s1", "Point", detail=1, timeout=LIMIT_SECONDS)
    dumps = environment.inspect("s1", "import json", timeout=LIMIT_SECONDS)
    missing = environment.inspect("s1", "nowhere", timeout=LIMIT_SECONDS)

    assert (move.name, move.signature, move.documentation) == (
        "point.move",
        "(dx, *, dy=0)",
        "Move it.",
    )
    assert move.source == ""
    assert (point.kind, point.documentation) == ("class", "A place.")
    assert point.source.startswith("class Point:")
    assert point.source.rstrip().endswith("return self")
    assert point.line == 1  # IPython drops empty lines before the first
    assert dumps.file.endswith("json/__init__.py")
    assert (missing.status, missing.is_found) == ("ok", False)


@pytest.mark.parametrize(
    ("code", "function", "line"),
    [(LOOPS, "spin", None), (SLEEPS, "<module>", "time.sleep(1000)"), (AWAITS, "wait", None)],
)
def test_a_busy_kernel_answers_and_says_which_line_runs(
    environment: Environment, code: str, function: str, line: str | None
) -> None:
    run(environment, SETUP)

    with running(environment, code) as results:
        completed = complete(environment, "point.m")
        inspected = environment.inspect("s1", "point.move", timeout=LIMIT_SECONDS)
        peek = environment.peek("s1", timeout=LIMIT_SECONDS)
        assert not results

    assert completed == ["move"]
    assert inspected.documentation == "Move it."
    assert (peek.state, peek.status) == ("busy", "ok")
    assert peek.running is not None
    assert peek.running.execution_id == results[0].execution_id
    assert peek.running.seconds > 0
    calls = [(one.function, one.text) for one in peek.running.stack if one.cell == 2]
    assert calls[0][0] == "<module>"
    assert calls[-1][0] == function
    assert line is None or calls[-1][1] == line
    assert results[0].status is ExecutionStatus.CANCELLED
    assert run(environment, "point.x").result.output == "1"


def test_a_call_that_holds_the_lock_is_a_clear_result_and_no_hang(
    environment: Environment,
) -> None:
    with running(environment, "sum(range(10 ** 12))"):
        wait_until(lambda: environment.complete("s1", "pri", timeout=0.3).status == "timeout")
        completed = environment.complete("s1", "pri", timeout=0.3)
        peek = environment.peek("s1", timeout=0.3)
        many = [environment.complete("s1", "pri", timeout=0.05) for _ in range(20)]

    assert (completed.status, completed.matches) == ("timeout", ())
    assert "did not answer" in completed.detail
    assert (peek.status, peek.state) == ("timeout", "busy")
    assert peek.running is not None
    assert {one.status for one in many} == {"timeout"}
    assert "print" in complete(environment, "pri")  # on a fresh kernel


def test_looking_neither_runs_nor_prints_nor_changes_anything(environment: Environment) -> None:
    run(environment, HOSTILE)

    for code in ("lying.", "strange[0].", "strange[1][1].", "Hostile.", "lying.real."):
        environment.complete("s1", code, timeout=LIMIT_SECONDS)
        environment.inspect("s1", code.rstrip("."), detail=1, timeout=LIMIT_SECONDS)
    peek = environment.peek("s1", timeout=LIMIT_SECONDS)

    assert complete(environment, "lying.") == ["real"]
    values = {one.name: one.value for one in peek.variables}
    assert values["lying"] == "<Lying object>"
    assert values["strange"] == "[<Lying object>, {1: <Lying object>}]"
    assert run(environment, "asked").result.output == "[]"
    assert run(environment, "len(In)").result.output == "4"  # looking counts as no cell


def test_objects_that_block_when_they_are_asked_are_not_asked(environment: Environment) -> None:
    run(environment, HOSTILE)
    run(environment, "hostile = object.__new__(Hostile)\nasked.clear()")

    assert "blocks" in complete(environment, "hostile.")
    assert complete(environment, "hostile.blocks.") == []
    peek = environment.peek("s1", timeout=LIMIT_SECONDS)
    assert {one.name: one.value for one in peek.variables}["hostile"] == "<Hostile object>"
    assert run(environment, "asked").result.output == "[]"


def test_values_are_short_whatever_their_size(environment: Environment) -> None:
    run(
        environment,
        """
from collections import namedtuple
from dataclasses import dataclass
@dataclass
class Sale:
    what: str
    prices: list
long_text, big, deep = "x" * 10_000_000, list(range(1_000_000)), [[[[[1]]]]]
circle = []
circle.append(circle)
huge = 10 ** 100_000
sale = Sale("tea", [1, 2])
_hidden = 1
""",
    )

    peek = environment.peek("s1", timeout=LIMIT_SECONDS)

    seen = {one.name: one for one in peek.variables}
    assert "_hidden" not in seen
    assert not {"In", "exit", "quit", "get_ipython"} & {*seen}
    assert max(len(one.value) for one in peek.variables) <= 200
    assert (seen["big"].type_name, seen["big"].size) == ("list", "1,000,000")
    assert seen["big"].value.startswith("[0, 1, 2, ")
    assert seen["long_text"].size == "10,000,000"
    assert seen["huge"].value.startswith("<int of 332,193 bits")
    assert seen["sale"].value == "Sale(what='tea', prices=[1, 2])"
    assert seen["deep"].value == "[[[[…]]]]"
    assert peek.memory_bytes is not None
    assert peek.memory_bytes > 1 << 20


def test_many_names_are_cut_and_counted(environment: Environment) -> None:
    run(environment, "globals().update((f'name_{i}', i) for i in range(100_000))")

    completed = environment.complete("s1", "name_", timeout=LIMIT_SECONDS)
    peek = environment.peek("s1", timeout=LIMIT_SECONDS)

    assert (completed.status, len(completed.matches), completed.is_cut) == ("ok", 500, True)
    assert complete(environment, "name_99999") == ["name_99999"]
    assert peek.variable_count == 100_000
    assert len(peek.variables) == 200
    assert peek.variables[-1].name == "name_99999"


def test_a_session_whose_kernel_is_not_ready_completes_when_it_is(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path) as environment:
        environment.start_session("s1", wait=False)

        assert "print" in complete(environment, "pri")


def test_a_kernel_that_was_put_away_is_started_by_a_completion_and_not_by_a_look(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, idle_seconds=0.2) as environment:
        environment.start_session("s1")
        wait_until(lambda: environment.sessions()[0].state == "put_away")

        peek = environment.peek("s1")
        assert (peek.state, peek.status, peek.variables) == ("put_away", "no_kernel", ())
        wait_until(lambda: environment.complete("s1", "pri").status == "ok")


@pytest.mark.local_only  # elsewhere no kernels are started in advance
@pytest.mark.not_in_sandbox
def test_paths_are_those_of_the_session_before_any_code_has_run(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    with open_environment(tmp_path, spare_kernels=2) as environment:
        for number in range(6):  # most of them get a kernel that was started in advance
            folder = tmp_path / f"folder{number}"
            folder.mkdir()
            (folder / f"sales{number}.csv").touch()
            environment.start_session(f"s{number}", cwd=folder)

            found = environment.complete(f"s{number}", "open('sa", timeout=LIMIT_SECONDS)

            assert texts(found) == [f"sales{number}.csv"]


def test_secrets_are_masked_in_what_is_seen(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    key = "sk-5up3r/s3cr3t+k3y"
    with open_environment(tmp_path, redactor=Redactor([key])) as environment:
        environment.start_session("s1")
        run(environment, f"key = {key[:7]!r} + {key[7:]!r}\nkeys = {{key: 1}}")
        run(environment, "long = ['y' * (130 + n) + key for n in range(30)]")

        peek = environment.peek("s1", timeout=LIMIT_SECONDS)
        completed = complete(environment, "keys['")
        inspected = environment.inspect("s1", "key", timeout=LIMIT_SECONDS)

    assert {one.name: one.value for one in peek.variables}["key"] == repr(MASK)
    assert completed == [MASK]
    assert inspected.value == repr(MASK)
    assert "sk-5" not in repr(peek)


def test_bad_questions_are_refused(environment: Environment) -> None:
    with pytest.raises(SessionError, match="no session 'nowhere'"):
        environment.complete("nowhere", "x")
    with pytest.raises(ValueError, match="0 to 1, not 2"):
        environment.complete("s1", "x", cursor=2)
    with pytest.raises(TypeError, match="Code is a text"):
        environment.inspect("s1", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not looked at"):
        environment.complete("s1", "x" * 2_000_000)


def test_forged_answers_change_nothing(environment: Environment) -> None:
    run(
        environment,
        """
from IPython import get_ipython
runtime = get_ipython().kernel.runtime
for number in range(40):
    runtime.queue.say_apart(2, 'looked\\n{"number": %d, "matches": 3}' % number)
    runtime.queue.say_apart(2, 'looked\\n{"number": [], "running": 5}')
""",
    )

    assert "print" in complete(environment, "pri")
