"""More than a hundred ways out of a sandbox; without one, each of them leads out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterator
from contextlib import closing

import pytest
from docker import DockerClient

from taskweaver_ext.ces.sandbox import sandbox
from tests.support.containers import IMAGE, require_engine
from tests.support.escape_attempts import ATTEMPTS, NEEDS, SECRET
from tests.support.sandboxes import NOBODY, PROCESSES, World, limited_group, make_world

DONE = "done"

pytestmark = pytest.mark.skipif(
    bool(sandbox.probe().missing.keys() & {"files", "network", "processes"}),
    reason="this machine cannot enforce a sandbox",
)


@pytest.fixture(scope="module")
def worlds() -> Iterator[contextlib.ExitStack]:
    """Keeps what the tests of this module have made."""
    with contextlib.ExitStack() as stack:
        yield stack
        world_of.cache_clear()
        outcomes.cache_clear()


@functools.cache
def world_of(user: int, worlds: contextlib.ExitStack) -> World:
    return worlds.enter_context(make_world(user))


@functools.cache
def outcomes(user: int, kind: str, worlds: contextlib.ExitStack) -> dict[str, str]:
    """What came of all attempts of a user, once and for all tests."""
    world = world_of(user, worlds)
    if kind == "free":
        return world.try_to_escape(None)
    rules = world.rules(has_private_view=kind == "private view")
    if user != 0 or "pids" not in sandbox.probe().group_places:
        return world.try_to_escape(rules)
    with limited_group({"pids": PROCESSES}) as group:
        return world.try_to_escape(dataclasses.replace(rules, group_files=group.files))


def is_expected_to_succeed(attempt: str, user: int) -> bool:
    """Whether it must do so outside of a sandbox, on every machine."""
    return NEEDS[attempt] in ("", "host") or (NEEDS[attempt] == "root" and user == 0)


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("kind", ["private view", "shared view"])
@pytest.mark.parametrize("user", [os.getuid(), NOBODY])
def test_no_way_leads_out(user: int, kind: str, attempt: str, worlds: contextlib.ExitStack) -> None:
    if user != os.getuid() and os.getuid() != 0:
        pytest.skip("only root can become another user")
    if kind == "private view" and not sandbox.probe().has_private_view:
        pytest.skip("this machine gives no process a file system of its own")
    if attempt == "fork_many_times" and user == 0 and not sandbox.probe().group_places:
        pytest.skip("root can be limited by a control group only, and there is none")

    free = outcomes(user, "free", worlds)[attempt]
    restricted = outcomes(user, kind, worlds)[attempt]

    assert restricted != DONE
    assert not restricted.startswith(("AttributeError", "NameError", "TypeError", "AssertionError"))
    if free != DONE:
        assert not is_expected_to_succeed(attempt, user), free
        pytest.skip(f"it does not succeed outside of a sandbox either: {free}")


@pytest.fixture(scope="module")
def container_outcomes() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """What came of the attempts in a container, outside and inside of a sandbox."""
    with make_world() as world, closing(DockerClient(base_url=require_engine().url)) as client:
        where = {str(world.folder): {"bind": str(world.folder), "mode": "rw"}}
        container = client.containers.run(
            IMAGE, ["600"], entrypoint="sleep", volumes=where, user="0", detach=True
        )
        try:
            source, found = world.folder / "source", []
            for is_restricted in (False, True):
                world.furnish()
                victim = world.folder / f"victim{is_restricted}"
                offer = f"{source}/escape_victim.py {world.folder}/outside {SECRET.decode()}"
                start = f"sleep 600 | KEY={SECRET.decode()} python {offer} >{victim}"
                container.exec_run(["sh", "-c", start], detach=True)
                wait = f"until [ -s {victim} ]; do sleep 0.02; done"
                container.exec_run(["timeout", "60", "sh", "-c", wait])
                known = {**json.loads(victim.read_text()), **world.surroundings(), "inherited": 9}
                rules = dataclasses.asdict(world.rules(has_private_view=False))
                readable = ["/usr", "/lib", "/lib64", "/bin", "/opt", *rules["readable"][-2:]]
                rules |= {"process_count": None, "readable": readable}
                starter = ["python", "-I", "-S", f"{source}/inside/restricted_start.py"]
                command = ["python", f"{source}/escape_attempts.py", json.dumps(known)]
                code, output = container.exec_run(
                    [
                        *("sh", "-c", f'exec "$@" 9<{world.folder}/outside/secret', "sh"),
                        *([*starter, json.dumps(rules), "python"] if is_restricted else []),
                        *command,
                    ],
                    workdir=str(world.working_folder),
                )
                assert code == 0, output
                assert isinstance(output, bytes)
                found.append(json.loads(output))
            yield found[0], found[1]
        finally:
            container.remove(force=True)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_way_leads_out_within_a_container(
    attempt: str, container_outcomes: tuple[dict[str, str], dict[str, str]]
) -> None:
    if attempt == "fork_many_times":
        pytest.skip("there is no control group to be had, and code is root: the container's limit")
    free, restricted = (found[attempt] for found in container_outcomes)

    assert restricted != DONE
    if free != DONE:
        assert NEEDS[attempt], free
        pytest.skip(f"it does not succeed outside of a sandbox either: {free}")
