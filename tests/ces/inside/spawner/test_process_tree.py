"""Whatever a process started is found and ended, wherever it moved to."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from taskweaver_ext.ces.inside.spawner.process_tree import (
    MARK,
    ProcessFamily,
    kill_family,
    look_at,
    mark_of,
)
from tests.support.executions import has_ended, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


class Family:
    """A leader that waits, and processes that it starts when told to."""

    def __init__(self, *, is_tagged: bool = True) -> None:
        self.mark = uuid.uuid4().hex
        self.leader = subprocess.Popen(
            ["bash"],
            env={**os.environ, MARK: self.mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if is_tagged:
            ProcessFamily(self.leader.pid, self.mark).tag()

    def start(self, command: str) -> int:
        """Run a command that prints a process id, and return that."""
        assert self.leader.stdin is not None
        assert self.leader.stdout is not None
        self.leader.stdin.write(command + "\n")
        self.leader.stdin.flush()
        return int(self.leader.stdout.readline())

    def end(self) -> None:
        kill_family(ProcessFamily(self.leader.pid, self.mark))
        self.leader.communicate()


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    yield family
    family.end()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 1000 & echo $!", id="an ordinary child"),
        pytest.param("setsid sleep 1000 & echo $!", id="in another session"),
        pytest.param(
            "setsid bash -c 'sleep 1000 >&- & echo $!'", id="in another session, without parents"
        ),
        pytest.param(
            "setsid env -i bash -c 'sleep 1000 >&- 2>&- <&- & echo $!'",
            id="in another session, without parents, environment and streams",
        ),
    ],
)
def test_a_descendant_is_killed_wherever_it_is(family: Family, command: str) -> None:
    descendant = family.start(command)
    assert look_at(descendant) is not None

    kill_family(ProcessFamily(family.leader.pid, family.mark))

    wait_until(lambda: has_ended(descendant))
    assert has_ended(family.leader.pid)


def test_a_family_without_a_tag_is_known_by_its_mark() -> None:
    family = Family(is_tagged=False)
    descendant = family.start("setsid bash -c 'sleep 1000 >&- & echo $!'")
    wait_until(lambda: mark_of(descendant) == family.mark)  # none is seen while a program begins

    family.end()

    wait_until(lambda: has_ended(descendant))


def test_a_recent_family_is_found_by_looking_at_few_processes(family: Family) -> None:
    descendant = family.start("setsid sleep 1000 & echo $!")

    found = {
        seen.pid for seen in ProcessFamily(family.leader.pid, family.mark).members(is_recent=True)
    }

    assert found == {family.leader.pid, descendant}


def test_processes_of_others_are_no_members(family: Family) -> None:
    other = Family()

    found = {seen.pid for seen in ProcessFamily(family.leader.pid, family.mark).members()}

    assert found == {family.leader.pid}
    other.end()


def test_a_process_is_seen_with_its_session_and_mark(family: Family) -> None:
    seen = look_at(family.leader.pid)

    assert seen is not None
    assert (seen.session, seen.parent) == (family.leader.pid, os.getpid())
    # For a moment after its start the system does not show what a process was given.
    wait_until(lambda: mark_of(family.leader.pid) == family.mark)


def test_a_process_that_ended_is_not_seen() -> None:
    process = subprocess.Popen(["true"])
    process.wait()

    assert look_at(process.pid) is None


def test_many_that_keep_starting_others_are_all_killed(family: Family) -> None:
    descendant = family.start(
        "setsid bash -c 'echo $$; while :; do setsid sleep 1000 >&- & sleep 0.002; done' &"
    )
    wait_until(lambda: sum(1 for _ in _members(family)) > 20)

    kill_family(ProcessFamily(family.leader.pid, family.mark))

    wait_until(lambda: has_ended(descendant))
    assert list(_members(family)) == []


def _members(family: Family) -> Iterator[int]:
    yield from (seen.pid for seen in ProcessFamily(family.leader.pid, family.mark).members())
