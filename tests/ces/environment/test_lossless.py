"""Every byte that an execution writes is in its record, whatever has written it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from scripts.campaigns.mixed_writers import random_program, run_program
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.results import ExecutionStatus
from tests.support.executions import run, times

PROGRAMS = 20


@pytest.fixture
def environment(shared_environment: Environment) -> Iterator[Environment]:
    shared_environment.start_session("s1")
    yield shared_environment
    shared_environment.stop_session("s1")


def test_nothing_that_mixed_writers_write_is_lost_or_overtaken(environment: Environment) -> None:
    choose = random.Random(5)
    programs = [random_program(choose) for _ in range(times(environment, PROGRAMS))]

    assert [run_program(environment, "s1", program) for program in programs] == [
        [] for _ in programs
    ]


def test_more_than_a_pipe_holds_is_all_in_the_record(environment: Environment) -> None:
    code = "import os\nfor i in range(3): os.write(1, b'x' * 300_001)"

    for _ in range(times(environment, 10)):
        assert len(run(environment, code).text()) == 900_003


def test_a_print_after_the_end_of_a_child_comes_after_what_the_child_wrote(
    environment: Environment,
) -> None:
    code = """
import subprocess, sys
child = "import fcntl, os; fcntl.fcntl(1, 1031, 1 << 20); os.write(1, b'y' * 900_000)"
subprocess.run([sys.executable, "-c", child])
print("after", end="")
"""

    for _ in range(times(environment, 10)):
        assert run(environment, code).text() == "y" * 900_000 + "after"


@pytest.mark.parametrize(
    "write", ["import os; os.write(1, %s)", "import sys; _ = sys.stdout.buffer.write(%s)"]
)
def test_half_a_character_at_the_end_of_a_cell_stays_with_its_cell(
    environment: Environment, write: str
) -> None:
    first = run(environment, write % r"b'ab\xe2\x82'")
    second = run(environment, write % r"b'\xac next'")

    assert first.text() == r"ab\xe2\x82"
    assert second.text() == r"\xac next"


def test_a_cell_runs_after_code_has_used_up_its_descriptors(environment: Environment) -> None:
    run(environment, "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))")
    use_up = """
import subprocess
subprocess.run(["true"])  # the next cell would get new pipes
files = []
try:
    while True: files.append(open("/dev/null"))
except OSError as error: print(error.strerror)
"""
    used_up = run(environment, use_up)
    told = run(environment, "print('told')")
    let_go = run(environment, "del files")
    child = run(environment, "import subprocess; subprocess.run(['echo', 'of a child'])")

    assert used_up.text() == "Too many open files\n"
    assert told.text() == "told\n"
    assert let_go.result.status is ExecutionStatus.SUCCESS
    assert child.text() == "of a child\n"
