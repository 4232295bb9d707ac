"""What all tests share: an environment to run code in, and a look at what a test leaves behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment

GONE_SECONDS = 60.0
"""How long what a test started may take to be gone after its end."""

pytest_plugins = ["tests.support.needs", "tests.support.tried_again"]

_folders_made: list[str] = []

# The program that started us may have had them ignored (`nohup`, or `&` in a script), and so would
# everything that tests start.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def _remember_folder(event: str, arguments: tuple[object, ...]) -> None:
    if event == "tempfile.mkdtemp" and "/taskweaver-" in str(arguments[0]):
        _folders_made.append(str(arguments[0]))


sys.addaudithook(_remember_folder)


@pytest.fixture(autouse=True, scope="session")
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sessions of tests are kept where no person's are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module")
def shared_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """An environment without sessions, for the tests of one module."""
    with Environment(tmp_path_factory.mktemp("environment")) as environment:
        yield environment


@pytest.fixture
def environment(shared_environment: Environment, tmp_path: Path) -> Iterator[Environment]:
    """An environment with a fresh session "s1"."""
    shared_environment.start_session("s1", session_dir=tmp_path / "session")
    yield shared_environment
    for session in shared_environment.sessions():  # also those that a failed test has left
        shared_environment.stop_session(session.session_id)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, a process or a temporary folder of ours."""
    before = _traces()
    yield
    deadline = time.monotonic() + GONE_SECONDS
    while left := _traces() - before:
        if time.monotonic() > deadline:
            pytest.fail("the test left behind: " + ", ".join(sorted(left)))
        gc.collect()  # results keep their files
        time.sleep(0.01)


def _traces() -> set[str]:
    """Name everything of ours that lives in or beneath this process, or lies on the disk."""
    threads = {
        f"thread {thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if thread.name.startswith("taskweaver-")
    }
    processes = {f"process {process}" for process in _descendants(os.getpid())}
    folders = {f"folder {folder}" for folder in _folders_made if os.path.isdir(folder)}
    return threads | processes | folders


def _descendants(process: int) -> Iterator[int]:
    """Ask the system for children: looking at all processes takes a hundred times longer."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has just ended
            for child in map(int, children.read_text().split()):
                yield child
                yield from _descendants(child)
