"""What can be seen of sessions from outside: by their own program, and by other processes.

Beside every kernel lies a small file that says whose it is. It is there for
people who look (`taskweaver-ext kernels`); nothing depends on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from taskweaver_ext.ces.inside.spawner.process_tree import look_at
from taskweaver_ext.machine.owned_folders import PREFIX, make_owned_folder

SessionState: TypeAlias = Literal["idle", "busy", "put_away", "starting", "dead", "stale"]

PRIVATE_FOLDERS = Path("/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir())
"""Where kernels have their private folders."""

_RECORD = "session.json"
_STATE = "state"
_BUSY, _IDLE = b"busy", b"idle"  # of one length: each is written over the other


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session at one moment."""

    session_id: str
    mode: str
    """Where its kernel runs: local, container or gateway."""
    state: SessionState
    """"stale": its program has ended without tidying up, and the kernel with it."""
    owner_pid: int
    """The program that the session belongs to."""
    pid: int | None
    """The kernel's process, where it is one of this machine."""
    memory_bytes: int | None
    """What the kernel's process holds now, where it can be seen."""
    created_at: float
    """Seconds since 1970."""
    last_used_at: float
    cwd: str


class SessionRecord:
    """The files that tell other processes of a kernel: what it is, and what it is doing.

    Threads:
        `_lock` guards `_state`, a descriptor that stays open because every
        execution writes to it; -1 once the record was removed.
    """

    def __init__(self, info: SessionInfo, *, pid: int | None, folder: Path | None) -> None:
        self._lock = threading.Lock()
        owner = look_at(info.owner_pid)
        content = {
            **asdict(replace(info, pid=pid)),
            "owner_start_ticks": owner.start_ticks if owner else None,
        }
        self._owns_folder = folder is None
        self._folder = folder or make_owned_folder(parent=PRIVATE_FOLDERS)
        self._state = -1
        with contextlib.suppress(OSError):  # without space on the disk there is nothing to look at
            self._state = _open_new(self._folder / _STATE)
            os.write(self._state, _BUSY)
            record = _open_new(self._folder / _RECORD)
            try:
                os.write(record, json.dumps(content).encode())
            finally:
                os.close(record)

    def begin_use(self) -> None:
        """The kernel has something to do."""
        self._write_state(_BUSY)

    def end_use(self) -> None:
        """The kernel is idle."""
        self._write_state(_IDLE)

    def remove(self) -> None:
        """The kernel is about to end."""
        with self._lock:
            state, self._state = self._state, -1
        if state >= 0:
            os.close(state)
        for name in (_RECORD, _STATE):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
        if self._owns_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write_state(self, state: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._state >= 0:
                os.pwrite(self._state, state, 0)


def _open_new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def sessions_of_this_user(folders: Path = PRIVATE_FOLDERS) -> list[SessionInfo]:
    """The sessions with kernels of all processes of this user, oldest first."""
    found = _read_records(folders)
    return sorted(found, key=lambda info: info.created_at)


def memory_of(pid: int | None) -> int | None:
    """The memory that a process holds; None where that cannot be seen."""
    if pid is None:
        return None
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _read_records(folders: Path) -> Iterator[SessionInfo]:
    for path in folders.glob(f"{PREFIX}*/{_RECORD}"):
        # A folder that another user made may say anything, and another may be gone already.
        with contextlib.suppress(OSError, ValueError, TypeError):
            if path.stat(follow_symlinks=False).st_uid == os.getuid():
                yield _look_again(json.loads(path.read_text()), path.with_name(_STATE))


def _look_again(content: dict[str, object], state: Path) -> SessionInfo:
    """What a record says, as things are now."""
    start_ticks = content.pop("owner_start_ticks", None)
    info = SessionInfo(**content)  # type: ignore[arg-type]  # what is missing is a TypeError
    owner = look_at(info.owner_pid)
    is_busy, used_at = state.read_bytes() == _BUSY, state.stat().st_mtime
    can_look = start_ticks is not None
    if can_look and (owner is None or owner.start_ticks != start_ticks):
        return replace(info, state="stale", memory_bytes=None, last_used_at=used_at)
    is_dead = can_look and info.pid is not None and look_at(info.pid) is None
    return replace(
        info,
        state="dead" if is_dead else "busy" if is_busy else "idle",
        memory_bytes=memory_of(info.pid),
        last_used_at=time.time() if is_busy else used_at,
    )
