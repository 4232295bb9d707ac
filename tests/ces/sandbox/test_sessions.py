"""Kernels, shells and programs of real sessions try to get out of their sandbox."""

from __future__ import annotations

import functools
import os
from typing import Any

import psutil
import pytest

from taskweaver_ext.ces.sandbox import sandbox
from tests.support.sandboxes import (
    FILE_BYTES,
    MEMORY_BYTES,
    NOBODY,
    PROCESSES,
    make_world,
    require_sandbox,
)

LIMITS = {"memory_bytes": MEMORY_BYTES, "file_bytes": FILE_BYTES, "process_count": PROCESSES}
MISTAKES = ("AttributeError", "NameError", "TypeError", "KeyError", "AssertionError")


VIEWS = pytest.mark.parametrize("view", ["private", "shared"])
USERS = pytest.mark.parametrize("user", [os.getuid(), NOBODY])


@functools.cache
def outcomes(user: int, view: str) -> dict[str, Any]:
    """What came of all attempts of a user's session."""
    require_sandbox()
    if user != os.getuid() and os.getuid() != 0:
        pytest.skip("only root can become another user")
    if view == "private" and not sandbox.probe().has_private_view:
        pytest.skip("this machine gives no process a file system of its own")
    with make_world(user) as world:
        return world.try_to_escape_from_a_session(LIMITS, has_private_view=view == "private")


@pytest.mark.parametrize("who", ["kernel", "shell", "program"])
@VIEWS
@USERS
def test_no_way_leads_out_of_a_session(user: int, view: str, who: str) -> None:
    found = outcomes(user, view)[who]

    assert len(found) > 130
    assert {name for name, outcome in found.items() if outcome == "done"} == set()
    assert {name for name, outcome in found.items() if outcome.startswith(MISTAKES)} == set()


@VIEWS
@USERS
def test_nothing_outlives_a_sandbox(user: int, view: str) -> None:
    survivor = outcomes(user, view)["survivor"]

    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if survivor in (command or [])[:1]]
