"""Temporary folders that say which process they belong to, so that others can tidy up.

A process that is killed leaves its folders behind. Whether it is gone is judged
by more than its number, which may be another's by now. What cannot be judged is
left alone: the processes of another machine that shares our temporary folder, or
of another container; and what was there before this machine was started again,
where the machine has no identity that outlasts its start.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.machine.forks import not_in_forks

PREFIX = "taskweaver-"
"""What the names of all temporary folders of ours begin with."""

_OWNER = ".owner"
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_LONGEST_OWNER = 500
_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that cannot be confused with any other."""

    machine: str
    """Tells machines apart: whatever is known only here says nothing about another's."""
    boot: str
    """Which start of the machine it belongs to; its name where that is not known."""
    namespace: str
    """Where its number is valid."""
    pid: int
    started: str
    """When it started, in whatever unit the system counts."""

    @classmethod
    def this_process(cls) -> Owner:
        """The one that asks."""
        boot, namespace = _boot_and_namespace()
        return cls(_machine(), boot, namespace, os.getpid(), _start_of(os.getpid()) or "")

    @classmethod
    def parse(cls, label: str) -> Owner | None:
        """Read what `__str__` wrote; None for anything else."""
        parts = label.split("/")
        if len(parts) != 5 or not parts[3].isdigit():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4])

    def __str__(self) -> str:
        return f"{self.machine}/{self.boot}/{self.namespace}/{self.pid}/{self.started}"

    def is_dead(self) -> bool:
        """Whether the process is gone for certain."""
        if self.machine != _machine():
            return False
        boot, namespace = _boot_and_namespace()
        if self.boot != boot:  # then it was before the machine was started again
            return bool(_machine_id())
        return self.namespace == namespace and _start_of(self.pid) != self.started


def make_owned_folder(purpose: str = "", parent: Path | None = None) -> Path:
    """A private temporary folder that names its owner; raises OSError."""
    prefix = f"{PREFIX}{purpose}-" if purpose else PREFIX
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        (folder / _OWNER).write_text(_this_process(os.getpid()))
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def disown_folder(folder: Path) -> None:
    """Leave a folder to the user, who was told of it: it is not to be tidied up."""
    (folder / _OWNER).unlink(missing_ok=True)


class TemporaryFolder:
    """A folder of our own that is removed when nothing refers to this object any more."""

    def __init__(self) -> None:
        """Make it; raises OSError."""
        self.path = make_owned_folder()
        weakref.finalize(self, not_in_forks(shutil.rmtree), self.path, ignore_errors=True)

    def __deepcopy__(self, _copied: object) -> TemporaryFolder:
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Another process cannot keep it."""
        return type(None), ()


class GivenFolder:
    """A folder that the caller has given, or else one of our own.

    After `close` one of our own is there for as long as something refers to `temporary`.
    """

    def __init__(self, folder: str | Path | GivenFolder | None) -> None:
        self.path: Path
        self.temporary: TemporaryFolder | None = None
        if isinstance(folder, GivenFolder):
            self.temporary, self.path = folder.temporary, folder.path
        elif folder is not None:
            self.path = Path(folder).absolute()
        else:
            self.temporary = TemporaryFolder()
            self.path = self.temporary.path

    def close(self) -> None:
        """Let go of it."""
        self.temporary = None


def owned_parents() -> list[Path]:
    """Where temporary folders of ours are made."""
    return [Path(name) for name in dict.fromkeys((tempfile.gettempdir(), "/tmp"))]


def remove_abandoned_folders(parents: Iterable[Path] | None = None) -> list[Path]:
    """Remove the folders of this user whose processes are gone; return what was removed."""
    removed = []
    for parent in owned_parents() if parents is None else parents:
        for folder in _folders_of_this_user(parent):
            owner = Owner.parse(_read_owner(folder))
            if owner is not None and owner.is_dead():
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def _folders_of_this_user(parent: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                # Root may have given one to another user; who has made it is known by its label.
                may_be_ours = os.getuid() in (0, found.st_uid)
                if entry.name.startswith(PREFIX) and may_be_ours and stat.S_ISDIR(found.st_mode):
                    yield Path(entry.path)


def _read_owner(folder: Path) -> str:
    try:
        descriptor = os.open(folder / _OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != os.getuid():
            return ""
        return file.read(_LONGEST_OWNER).decode("ascii", "replace")


@functools.cache
def _this_process(_pid: int) -> str:
    """This process as an owner, looked at once."""
    return str(Owner.this_process())


def _machine() -> str:
    """What tells this machine from others, as something that may be shown to anybody."""
    # Machines that were copied have the same id, so the name counts as well.
    known = f"{PREFIX}{_machine_id()} {platform.node()}"
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def _machine_id() -> str:
    """What stays the same when the machine is started again; empty where there is nothing."""
    for path in _MACHINE_IDS:
        with contextlib.suppress(OSError, ValueError):
            if (found := path.read_text().strip()) and found != "uninitialized":
                return found
    return ""


def _boot_and_namespace() -> tuple[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return re.sub(r"\W", "-", platform.node()), ""
    return boot, re.sub(r"\D", "", namespace)


def _start_of(pid: int) -> str | None:
    """When a process started; None when there is no such process."""
    if os.path.isdir("/proc/self"):
        try:
            content = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        state, *fields = content.rpartition(") ")[2].split()
        return None if state in "ZX" else fields[18]
    listing = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=_SECONDS
    )
    return re.sub(r"\W+", "-", listing.stdout.strip()) or None
