"""Kernels, shells and programs of real sessions try to get out of their sandbox."""

from __future__ import annotations

import functools
import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from docker import DockerClient

import taskweaver_ext
from taskweaver_ext.ces.sandbox import sandbox
from tests.support.containers import IMAGE, require_engine
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


def try_in_a_container(user: int, settings: dict[str, object]) -> dict[str, Any]:
    """What comes of all attempts of a session that is sandboxed within a container."""
    with make_world(user) as world, closing(DockerClient(base_url=require_engine().url)) as client:
        script = str(world.folder / "source/sandboxed_session.py")
        ours = str(Path(str(taskweaver_ext.__file__)).parent)
        output = client.containers.run(
            IMAGE,
            [script, str(world.folder), json.dumps(settings)],
            entrypoint=["python3"],
            user=str(world.user),
            environment={"PYTHONPATH": "/ours", "HOME": "/tmp/home", "KEY": "the-secret-of-others"},
            volumes={
                str(world.folder): {"bind": str(world.folder), "mode": "rw"},
                ours: {"bind": "/ours/taskweaver_ext", "mode": "ro"},
            },
            remove=True,
        )
    found: dict[str, Any] = json.loads(output)
    return found


def test_root_in_a_container_is_told_what_cannot_be_enforced_there() -> None:
    refused = try_in_a_container(0, dict(LIMITS))["refused"]

    assert "cannot enforce process_count of a sandbox" in refused
    assert 'set sandbox.require to ["files", "network", "processes"]' in refused


@pytest.mark.parametrize("user", [0, NOBODY])
def test_no_way_leads_out_of_a_session_within_a_container(user: int) -> None:
    lesser = {"require": ["files", "network", "processes"]} if user == 0 else {}
    accepted = {"fork_many_times"} if user == 0 else set()

    found = try_in_a_container(user, {**LIMITS, **lesser})

    for who in ("kernel", "shell", "program"):
        done = {name for name, outcome in found[who].items() if outcome == "done"}
        assert done <= accepted, who
    assert any("memory is limited for each process" in notice for notice in found["notices"])
