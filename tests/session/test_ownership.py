"""Two processes cannot work on one session: the second is told which has it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.llm.scripted import ScriptedModel
from taskweaver_ext.session.folders import remove_folder
from taskweaver_ext.session.ownership import SessionLock, owner_of
from tests.support.conversations import Listener
from tests.support.executions import LIMIT_SECONDS

HOLD = """
import sys
from pathlib import Path
from taskweaver_ext.session.ownership import SessionLock
lock = SessionLock(Path(sys.argv[-1]))
print("locked", flush=True)
sys.stdin.read()
lock.close()
"""


@contextmanager
def held_elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the session until its stdin ends."""
    program = [sys.executable, "-c", HOLD, "chat", str(folder)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_session_that_is_open_elsewhere_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / "sessions" / "s1"
    with held_elsewhere(folder) as process, TaskWeaverApp(tmp_path) as app:
        with pytest.raises(SessionError) as refused:
            app.get_session("s1")
        owner = owner_of(folder)
        other = app.get_session("s2")

    assert str(refused.value).startswith(
        f"Session s1 is open in process {process.pid} (-c chat) since "
    )
    assert owner is not None
    assert owner.pid == process.pid
    assert other.session_id == "s2"


def test_an_owner_that_is_killed_or_leaves_frees_the_session(tmp_path: Path) -> None:
    for end in ("kill", "leave"):
        with held_elsewhere(tmp_path) as process:
            if end == "kill":
                process.send_signal(signal.SIGKILL)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(LIMIT_SECONDS)

            assert owner_of(tmp_path) is None
            SessionLock(tmp_path).close()


def test_a_fork_of_the_owner_does_not_keep_the_session(tmp_path: Path) -> None:
    lock = SessionLock(tmp_path)
    release, held = os.pipe()
    child = os.fork()
    if child == 0:  # it outlives the lock
        os.close(held)
        os.read(release, 1)
        os._exit(0)
    try:
        still_ours = owner_of(tmp_path)
        lock.close()
        SessionLock(tmp_path).close()
    finally:
        os.close(held)
        os.close(release)
        os.waitpid(child, 0)

    assert still_ours is not None
    assert still_ours.pid == os.getpid()


def test_looking_at_a_session_does_not_keep_others_from_opening_it(tmp_path: Path) -> None:
    SessionLock(tmp_path).close()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            owner_of(tmp_path)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(200):
            SessionLock(tmp_path).close()
    finally:
        is_over.set()
        watcher.join(LIMIT_SECONDS)


def test_a_session_that_is_open_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "s1"
    with SessionLock(folder):
        was_removed = remove_folder(folder)
        is_there = folder.exists()

    assert (was_removed, is_there) == (False, True)
    assert remove_folder(folder)
    assert not folder.exists()


def test_a_session_that_could_not_be_made_leaves_its_folder_to_others(tmp_path: Path) -> None:
    with TaskWeaverApp(tmp_path, {"session.roles": ["planner", "planner"]}) as app:
        for _ in range(2):
            with pytest.raises(Exception, match=r"session\.roles"):
                app.get_session("s1")


def test_a_file_system_without_locks_is_named_and_the_session_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    listener = Listener()
    with TaskWeaverApp(tmp_path, model=ScriptedModel([])) as app:
        session = app.get_session("s1")
        with session.emitter.subscribe(listener, after=0):
            pass
        with pytest.raises(SessionError, match=f"process {os.getpid()}"):
            SessionLock(session.session_dir)

    notices = [one.msg for one in listener.events if one.t is SessionEventType.session_notice]
    assert len(notices) == 1
    assert "has no locks" in notices[0]
    assert owner_of(session.session_dir) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"pid": "x"}', b"[" * 5000])
def test_a_mark_that_makes_no_sense_keeps_nobody_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".in_use").write_bytes(content)

    assert owner_of(tmp_path) is None
    SessionLock(tmp_path).close()
