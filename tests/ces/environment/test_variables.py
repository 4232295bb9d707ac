"""Variables of a kernel are saved to a file and come back, but for those that are named."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.config import variables
from taskweaver_ext.errors import SessionError
from tests.support.executions import run, wait_until

CODE = """
import enum, functools, math as m
shared = [1, 2]
same = shared
holder = {"list": shared}
counter = 0
_hidden = "kept"
def count():
    return counter
def make_counter():
    n = 0
    def increment():
        nonlocal n
        n += 1
    def read():
        return n
    return increment, read
increment, read = make_counter()
@functools.lru_cache(maxsize=5)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
class Base:
    def name(self):
        return "base"
class Derived(Base):
    def name(self):
        return super().name() + " derived"
one, other = Derived(), Derived()
class Color(enum.Enum):
    RED = 1
red = Color.RED
functions = [count, lambda x: x + counter]
cycle = []
cycle.append(cycle)
"""

CHECK = """
assert same is shared and holder["list"] is shared
counter = 7
assert count() == 7 and functions[0] is count and functions[1](1) == 8
increment(); increment()
assert read() == 2
assert fibonacci(20) == 6765 and fibonacci.cache_parameters()["maxsize"] == 5
assert isinstance(one, Derived) and type(other) is Derived and one.name() == "base derived"
assert red is Color.RED and cycle[0] is cycle and m.pi > 3 and _hidden == "kept"
"""

UNSAVABLE = """
import socket, tempfile, threading
file = tempfile.TemporaryFile("w+")
lock = threading.Lock()
generator = (n for n in range(3))
peer, _other_peer = socket.socketpair()
namespace = globals()
class Refuses:
    def __reduce__(self):
        print("this is not part of the snapshot")
        raise ValueError("not me")
refusing = Refuses()
fine = [lock] and 5
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "variables.snapshot"


def checked(environment: Environment, code: str) -> None:
    result = run(environment, code).result
    assert result.is_success, result.error


def test_variables_functions_and_classes_come_back_as_they_were(
    environment: Environment, path: Path
) -> None:
    checked(environment, CODE)

    saved = environment.snapshot("s1", path)
    environment.restart_session("s1")
    restored = environment.restore("s1", path)

    assert saved.left_out == restored.left_out == {}
    assert set(saved.names) == set(restored.names) >= {"shared", "count", "Derived", "_hidden", "m"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert saved.size_bytes == path.stat().st_size
    checked(environment, CHECK)


def test_after_a_restore_nothing_is_said_to_be_lost_that_is_there(
    environment: Environment, path: Path
) -> None:
    checked(environment, "x = 5")
    environment.snapshot("s1", path)
    run(environment, "import os; os._exit(3)")

    environment.restore("s1", path)
    restored = run(environment, "x").result
    run(environment, "import os; os._exit(3)")
    lost = run(environment, "'x' in globals()").result

    assert (restored.output, lost.output) == ("5", "False")
    [notice] = restored.notices
    assert "those that were restored are there" in notice.message
    assert "are lost" not in notice.message
    [notice] = lost.notices
    assert "variables of earlier executions are lost" in notice.message


def test_what_cannot_be_saved_is_named_and_costs_only_itself(
    environment: Environment, path: Path
) -> None:
    checked(environment, UNSAVABLE)

    saved = environment.snapshot("s1", path)
    environment.restart_session("s1")
    restored = environment.restore("s1", path)

    unsaved = {"file", "lock", "generator", "peer", "_other_peer", "namespace", "refusing"}
    assert set(saved.left_out) == set(restored.left_out) == unsaved
    assert "open file" in saved.left_out["file"]
    assert saved.left_out["refusing"] == "ValueError: not me"
    assert "fine" in restored.names
    checked(environment, "assert fine == 5 and threading.Lock and Refuses")


def test_what_cannot_be_loaded_is_named_and_costs_only_itself(
    environment: Environment, path: Path
) -> None:
    checked(
        environment,
        """
import pathlib, sys
pathlib.Path("here_today.py").write_text("class Thing: pass")
sys.path.insert(0, "")
import here_today
thing, number = here_today.Thing(), 5
class Fragile:
    def __setstate__(self, state):
        raise OSError("broke")
fragile = Fragile()
fragile.field = 1
pathlib.Path("here_today.py").unlink()
""",
    )

    environment.snapshot("s1", path)
    environment.restart_session("s1")
    restored = environment.restore("s1", path)

    assert {"here_today", "thing", "fragile"} <= set(restored.left_out)
    assert "here_today" in restored.left_out["thing"]
    assert "number" in restored.names
    checked(environment, "assert number == 5")


def test_limits_leave_out_what_is_too_large(environment: Environment, path: Path) -> None:
    checked(environment, "large, small = bytes(3_000_000), 'small'")

    saved = environment.snapshot("s1", path, max_bytes=1_000_000)

    assert saved.names == ("small",)
    assert "larger" in saved.left_out["large"]


def test_many_bytes_and_objects_come_back(environment: Environment, path: Path) -> None:
    checked(
        environment, "data, texts = bytes(range(256)) * 20_000, [str(n) for n in range(99_999)]"
    )

    environment.snapshot("s1", path)
    environment.restart_session("s1")
    environment.restore("s1", path)

    checked(
        environment,
        "assert data == bytes(range(256)) * 20_000 and texts == [str(n) for n in range(99_999)]",
    )


def test_a_variable_that_takes_too_long_is_left_out(environment: Environment, path: Path) -> None:
    checked(
        environment,
        """
class Slow:
    def __reduce__(self):
        while True:
            pass
before, slow, after = 1, Slow(), 2
""",
    )

    saved = environment.snapshot("s1", path, timeout=0.2)

    assert "before" in saved.names
    assert "no time" in saved.left_out["slow"]
    checked(environment, "assert after == 2")


def test_saving_can_be_stopped_and_the_kernel_is_unharmed(
    environment: Environment, path: Path
) -> None:
    checked(
        environment,
        """
class Slow:
    def __reduce__(self):
        while True:
            pass
slow, number = Slow(), 5
""",
    )
    token = CancellationToken()
    path.write_text("the one before")
    failures: list[str] = []

    def save() -> None:
        try:
            environment.snapshot("s1", path, token=token)
        except SessionError as error:
            failures.append(str(error))

    saving = threading.Thread(target=save)
    saving.start()
    wait_until(lambda: environment.sessions()[0].state == "busy")
    token.cancel()
    saving.join()

    assert "stopped" in failures[0]
    assert path.read_text() == "the one before"
    assert run(environment, "print(number)").text() == "5\n"


def test_a_session_without_a_kernel_has_nothing_to_save(
    environment: Environment, path: Path
) -> None:
    assert run(environment, "import os; os._exit(3)").result.status is ExecutionStatus.DIED

    with pytest.raises(SessionError, match="no kernel"):
        environment.snapshot("s1", path)

    assert not path.exists()


def test_a_file_of_another_owner_is_loaded_only_on_request(
    environment: Environment, path: Path
) -> None:
    checked(environment, "number = 5")
    environment.snapshot("s1", path)
    environment.restart_session("s1")
    (variables.key_folder() / "owner-key").unlink()  # the next one is another user's

    with pytest.raises(SessionError, match="trust"):
        environment.restore("s1", path)
    assert "NameError" in str(run(environment, "number").result.error)

    environment.restore("s1", path, trust=True)
    checked(environment, "assert number == 5")


def test_a_plugin_of_the_kernel_is_neither_saved_nor_replaced(
    environment: Environment, path: Path
) -> None:
    plugin = """
from taskweaver.plugin import register_plugin

@register_plugin
def double(x):
    return 2 * x
"""
    checked(environment, "double = 5")
    environment.snapshot("s1", path)
    environment.restart_session("s1")
    environment.load_plugin("s1", "double", plugin)

    restored = environment.restore("s1", path)
    saved = environment.snapshot("s1", path)

    assert "double" in restored.left_out
    assert "double" not in saved.names
    checked(environment, "assert double(4) == 8")


@pytest.mark.local_only("the gate is a file of this machine")
@pytest.mark.not_in_sandbox
def test_what_cannot_be_stopped_neither_keeps_the_caller_nor_costs_the_kernel(
    environment: Environment, path: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    checked(
        environment,
        f"""
import os, time
class Stubborn:
    def __reduce__(self):
        while not os.path.exists({str(gate)!r}):
            try:
                time.sleep(0.01)
            except KeyboardInterrupt:
                pass
        return int, (5,)
number, stubborn = 5, Stubborn()
""",
    )

    with pytest.raises(SessionError, match="unharmed and busy"):
        environment.snapshot("s1", path, timeout=0.1)
    gate.touch()

    assert run(environment, "print(number)").text() == "5\n"
