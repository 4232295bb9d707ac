"""Control groups: limits on a process and all that it starts, together.

Made beneath the group that we are in, or beside it, wherever the system lets us: root may
anywhere, a user where systemd has handed a part of the tree over. Both versions are known.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "taskweaver-"
_FILES = {
    "memory": {1: "memory.limit_in_bytes", 2: "memory.max"},
    "pids": {1: "pids.max", 2: "pids.max"},
    "cpuacct": {1: "cpuacct.usage"},
}
"""What is written to, for each version. The second counts processor time in every group."""
_EVENTS = {
    "memory": ({1: "memory.oom_control", 2: "memory.events"}, "oom_kill"),
    "pids": ({1: "pids.events", 2: "pids.events"}, "max"),
}
"""Where it is counted how often a limit was met, for each version, and under which name."""
_SWAP = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}
_END_SECONDS = 10.0
_counter = itertools.count()


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where groups can be made that limit something."""

    folder: Path
    version: int


def find_places() -> dict[str, GroupPlace]:
    """Where "memory" and "pids" can be limited, and "cpuacct" counted; found by trying."""
    places = {}
    for controller in _FILES:
        for place in _candidates(controller):
            if _is_usable(place, controller):
                places[controller] = place
                break
    return places


class ControlGroup:
    """A group that processes can join; one folder for each hierarchy it takes.

    It is made for the first one: that takes a while, and can be done while a process starts.

    Threads:
        Any thread may call any method; `_lock` guards the making and the end.
    """

    def __init__(self, places: Mapping[str, GroupPlace], limits: Mapping[str, int]) -> None:
        """A group that is not made yet.

        Args:
            places: What `find_places` found.
            limits: Bytes of "memory", number of "pids", 0 for "cpuacct", which is only
                counted; what has no place is left out.
        """
        self._places = {name: places[name] for name in limits if name in places}
        self._limits = limits
        self._lock = threading.Lock()
        self._folders: tuple[Path, ...] = ()
        self._is_removed = False
        self._event_files: dict[str, Path] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """What a process writes "0" to in order to join; raises OSError when it cannot be made."""
        return tuple(str(folder / "cgroup.procs") for folder in self._made_folders())

    def add(self, pid: int) -> None:
        """Have a process join; takes hundredths of a second. Raises OSError."""
        for file in self.files:
            Path(file).write_text(str(pid))

    @property
    def counts_processor_time(self) -> bool:
        """Whether `cpu_seconds` is known once there is the group."""
        return any(name == "cpuacct" or place.version == 2 for name, place in self._places.items())

    @property
    def cpu_seconds(self) -> float | None:
        """How much processor time all that was ever in the group has used; None: not known."""
        for folder in self._folders:
            with contextlib.suppress(OSError, ValueError):
                return int((folder / "cpuacct.usage").read_text()) / 1e9
            with contextlib.suppress(OSError, ValueError):
                return _field(folder / "cpu.stat", "usage_usec") / 1e6
        return None

    def count_met(self, controller: str) -> int:
        """How often the limit of "memory" or "pids" was met."""
        if (path := self._event_files.get(controller)) is not None:
            with contextlib.suppress(OSError, ValueError):
                return _field(path, _EVENTS[controller][1])
        return 0

    def remove(self) -> None:
        """Kill all that is in the group, and remove it."""
        with self._lock:
            self._is_removed = True
            folders, self._folders = self._folders, ()
        deadline = time.monotonic() + _END_SECONDS
        for folder in folders:
            while not _remove(folder) and time.monotonic() < deadline:
                _kill_all(folder)
                time.sleep(0.002)

    def _made_folders(self) -> tuple[Path, ...]:
        with self._lock:
            if self._is_removed:
                raise OSError("the control group has been removed")
            if not self._folders:
                self._folders = self._make_folders()
            return self._folders

    def _make_folders(self) -> tuple[Path, ...]:
        name = f"{_PREFIX}{os.getpid()}-{next(_counter)}"
        with contextlib.ExitStack() as undo:
            folders = dict.fromkeys(place.folder / name for place in self._places.values())
            for folder in folders:
                _remove_those_of_the_dead(folder.parent)
                folder.mkdir()
                undo.callback(_remove, folder)
            for controller, place in self._places.items():
                _set_limit(place.folder / name, place.version, controller, self._limits[controller])
            undo.pop_all()
        self._event_files = {
            controller: place.folder / name / _EVENTS[controller][0][place.version]
            for controller, place in self._places.items()
            if controller in _EVENTS
        }
        return tuple(folders)


def _set_limit(folder: Path, version: int, controller: str, limit: int) -> None:
    (folder / _FILES[controller][version]).write_text(str(limit))
    if controller == "memory":
        with contextlib.suppress(OSError):  # not every system counts what is swapped out
            (folder / _SWAP[version]).write_text(str(limit if version == 1 else 0))


def _candidates(controller: str) -> Iterator[GroupPlace]:
    try:
        membership = Path("/proc/self/cgroup").read_text()
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            for fields in mounts:
                if "cgroup" in fields and controller in fields[-1].split(","):
                    yield GroupPlace(_folder_of(path, fields), 1)
        elif not controllers:
            for fields in mounts:
                if "cgroup2" in fields:
                    yield from _handed_over(_folder_of(path, fields), Path(fields[4]), controller)


def _folder_of(path: str, mount: list[str]) -> Path:
    """Where a group's folder is; what is mounted may be a part of the hierarchy."""
    relative = os.path.relpath(path, mount[3])
    return Path(mount[4]) if relative.startswith("..") else Path(mount[4]) / relative


def _handed_over(own: Path, root: Path, controller: str) -> Iterator[GroupPlace]:
    """Groups from ours upward whose members are counted; one with processes cannot count them."""
    for folder in (own, *own.parents):
        with contextlib.suppress(OSError):
            if controller in (folder / "cgroup.subtree_control").read_text().split():
                yield GroupPlace(folder, 2)
        if folder == root:
            return


def _is_usable(place: GroupPlace, controller: str) -> bool:
    group = place.folder / f"{_PREFIX}{os.getpid()}-{next(_counter)}"
    try:
        group.mkdir()
    except OSError:
        return False
    try:
        limit = 0 if controller == "cpuacct" else 1 << 20
        (group / _FILES[controller][place.version]).write_text(str(limit))
        return os.access(group / "cgroup.procs", os.W_OK) and (
            place.version == 1 or os.access(place.folder / "cgroup.procs", os.W_OK)
        )
    except OSError:
        return False
    finally:
        group.rmdir()


def _field(file: Path, name: str) -> int:
    """A number in a file that has a name and a number on each line; raises OSError, ValueError."""
    with open(file, "rb", buffering=0) as opened:  # often read, and short
        for line in opened.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    raise ValueError(f"{file} does not say {name}")


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill_all(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _remove_those_of_the_dead(parent: Path) -> None:
    """A process that was killed leaves its groups; only empty ones can be removed."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name[len(_PREFIX) :].partition("-")[0]
        if owner.isdecimal() and not os.path.exists(f"/proc/{owner}"):
            _remove(folder)
