"""Which process has a session open: one at a time, and everybody can ask which.

`.in_use` in the session's folder names the process and is locked by it; the lock ends with the
process, however that ends. Where a file system has no locks, its name alone has to do.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, get_type_hints

from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.forks import closed_in_forks
from taskweaver_ext.machine.owned_folders import Owner
from taskweaver_ext.machine.private_files import make_private_folder, open_private, open_to_read
from taskweaver_ext.text.json_shapes import has_shape

if sys.platform != "win32":
    import fcntl

_MARK = ".in_use"
_LONGEST_MARK = 4096
_PATIENCE_SECONDS = 1.0
"""How long a process may look at a session, remove it, or be about to say its name."""
_AGAIN_SECONDS = 0.02
_SUBCOMMAND = re.compile(r"[a-z][a-z-]{0,19}")


@dataclass(frozen=True, slots=True)
class SessionOwner:
    """A process that has a session open, or had it when it was killed."""

    pid: int
    command: str
    host: str
    since: float
    """In seconds since 1970."""
    process: str
    """What tells it from every other process; see `Owner`."""

    def __str__(self) -> str:
        place = "" if self.host == socket.gethostname() else f" on {self.host}"
        since = datetime.datetime.fromtimestamp(self.since)
        return f"process {self.pid} ({self.command}){place} since {since:%Y-%m-%d %H:%M:%S}"

    def is_dead(self) -> bool:
        """Whether it is gone for certain."""
        owner = Owner.parse(self.process)
        return owner is not None and owner.is_dead()


class SessionLock(Closeable):
    """Makes this process the only one that has a session open, until `close`."""

    def __init__(self, folder: Path) -> None:
        """Claim a session.

        Raises:
            SessionError: Another process has it, or another application in this one.
            OSError: The folder cannot be written.
        """
        self.problem = ""
        """Why another process could open the session all the same; empty if it cannot."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (mark := self._claim(folder)) is None:
            if time.monotonic() > deadline:
                raise _refusal(folder, "another process")
            time.sleep(_AGAIN_SECONDS)
        self._mark = closed_in_forks(mark)
        self._write(json.dumps(asdict(_this_process())))

    def close(self) -> None:
        """Leave the session to others."""
        if not self._mark.closed:
            self._write("")
            self._mark.close()

    def _claim(self, folder: Path) -> IO[bytes] | None:
        """Lock the file; None where a process only looks at it, or has just removed it."""
        mark = _open_mark(folder)
        try:
            is_locked = _lock(mark, exclusive=True)
            if is_locked and _is_still_there(mark, folder):
                return mark
            owner = None if is_locked else _living_owner(mark)
            if owner is not None:
                raise _refusal(folder, str(owner))
            if is_locked is None:
                self.problem = (
                    f"The file system of {folder} has no locks: nothing keeps another process from"
                    " opening this session at the same time."
                )
                return mark
        except BaseException:
            mark.close()
            raise
        mark.close()
        return None

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # on a full disk it has no name, and is locked
            self._mark.seek(0)
            self._mark.truncate()
            self._mark.write(text.encode())


def owner_of(folder: Path) -> SessionOwner | None:
    """Return which process has the session of a folder open; None if none has."""
    try:
        descriptor = open_to_read(folder / _MARK)
    except OSError:
        return None  # it was never opened, or is of another user
    with open(descriptor, "rb", buffering=0) as mark:
        return None if _lock(mark, exclusive=False) else _living_owner(mark)


@contextlib.contextmanager
def claimed_for_removal(folder: Path) -> Iterator[bool]:
    """Keep processes from opening a session during a block; give False if one has it open."""
    try:
        lock = SessionLock(folder)
    except (SessionError, OSError):  # what cannot be claimed is not ours to remove
        yield False
        return
    with lock:
        yield True


def _refusal(folder: Path, owner: str) -> SessionError:
    return SessionError(
        f"Session {folder.name} is open in {owner}. End it there, or use another session: two"
        " processes cannot work on one."
    )


def _open_mark(folder: Path) -> IO[bytes]:
    """Open the file that is locked; a folder that was just removed is made again."""
    try:
        descriptor = open_private(folder / _MARK, os.O_RDWR)
    except FileNotFoundError:
        make_private_folder(folder)
        descriptor = open_private(folder / _MARK, os.O_RDWR)
    return open(descriptor, "r+b", buffering=0)


def _lock(mark: IO[bytes], *, exclusive: bool) -> bool | None:
    """Lock the file if no other process has; None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(mark, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # of a network's file system, such as ENOLCK
        return None
    return True


def _is_still_there(mark: IO[bytes], folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(mark.fileno()), os.stat(folder / _MARK))
    except OSError:
        return False


def _living_owner(mark: IO[bytes]) -> SessionOwner | None:
    """Return the process that the file names, unless that is gone."""
    with contextlib.suppress(OSError, ValueError):
        mark.seek(0)
        values = json.loads(mark.read(_LONGEST_MARK))
        if has_shape(values, dict[str, Any]):
            hints = get_type_hints(SessionOwner)
            if all(has_shape(values.get(name), hint) for name, hint in hints.items()):
                owner = SessionOwner(**{name: values[name] for name in hints})
                return None if owner.is_dead() else owner
    return None


def _this_process() -> SessionOwner:
    return SessionOwner(
        pid=os.getpid(),
        command=_command(sys.argv),
        host=socket.gethostname(),
        since=time.time(),
        process=str(Owner.this_process()),
    )


def _command(arguments: Sequence[str]) -> str:
    """Return what a person calls this program; arguments may be secret, so only its command."""
    path = Path(arguments[0] if arguments else "")
    name = path.parent.name if path.name == "__main__.py" else path.name
    words = [word for word in arguments[1:2] if _SUBCOMMAND.fullmatch(word)]
    return " ".join((name or "python", *words))
