"""What a container may use: whether its limits are in force, and whether one was hit."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from taskweaver_ext.ces.kernels.client.host import ExecutionReply
from taskweaver_ext.ces.kernels.container.folder_watch import FolderLimit, FolderSize
from taskweaver_ext.errors import ConfigError

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_SEAL_SECONDS = 20
_SEAL = """
import ctypes, os, sys
library = ctypes.CDLL(None)
if library.setns(int(sys.argv[1]), 0x20000):  # CLONE_NEWNS
    os._exit(1)
attributes = (ctypes.c_uint64 * 4)(2 | 4)  # MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV
failures = 0
for path in sys.argv[2:]:  # mount_setattr, from AT_FDCWD, AT_SYMLINK_NOFOLLOW
    failures |= library.syscall(442, -100, os.fsencode(path), 0x100, attributes, 32)
os._exit(1 if failures else 0)
"""
"""Goes to where a process has its mounts and adds flags to some. Imports first: nothing of what
is found there may be run."""
_UNIT = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """What a container may use; None means no limit."""

    memory_bytes: int | None = 2 << 30
    """Memory of all processes together, `/tmp` included; there is no swap."""
    processes: int | None = 256
    """Processes and threads."""
    cpus: float | None = 2.0
    file_bytes: int | None = 1 << 30
    """The size of any single file."""
    folder_bytes: int | None = 4 << 30
    """What may be added to the working directory."""
    folder_files: int | None = 500_000
    """How many files and folders may be added to it."""
    tmp_bytes: int | None = 512 << 20
    """What `/tmp` may hold; it lies in memory."""

    def __post_init__(self) -> None:
        """Refuse what would mean something else to an engine: to it, 0 is no limit.

        Raises:
            ConfigError: A limit is not above 0.
        """
        wrong = [
            f"{entry.name} is {value}"
            for entry in fields(self)
            if (value := getattr(self, entry.name)) is not None and value <= 0
        ]
        if wrong:
            raise ConfigError(
                f"A container's limit must be above 0, or None for no limit: {', '.join(wrong)}."
            )


def size_text(size: int) -> str:
    """A size for people."""
    for name, unit in reversed(_UNIT.items()):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def growth_message(
    limit: FolderLimit,
    added: FolderSize,
    *,
    folder: str = "the working directory",
    place: str = "container",
) -> str:
    """Which limit of a folder was passed, and by what; the middle of a sentence."""
    if limit.bytes is not None and added.bytes > limit.bytes:
        allowed, grown = size_text(limit.bytes), size_text(added.bytes)
    else:
        allowed, grown = f"{limit.files:,} files and folders", f"{added.files:,}"
    return f"{folder} may grow by {allowed} in this {place} and has grown by {grown}"


class ContainerProcess:
    """A container's first process, as this machine sees it."""

    def __init__(self, pid: int, descriptor: int, groups: Mapping[str, Path]) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._groups = groups

    @classmethod
    def find(cls, pid: int, container: str) -> ContainerProcess | None:
        """The process of this number, if it is visible here and really that container's."""
        try:
            descriptor = os.pidfd_open(pid)
        except (AttributeError, OSError):
            return None
        try:
            lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
        except OSError:
            lines = []
        if not any(container in line for line in lines):
            os.close(descriptor)
            return None
        return cls(pid, descriptor, dict(_group_folders(lines)))

    def kill(self) -> bool:
        """Kill it, and with it all processes of the container; False when we may not."""
        try:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return True

    def duplicate(self) -> int:
        """A descriptor of one's own that is readable once it has ended."""
        return os.dup(self._descriptor)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    def limits_not_in_force(self, limits: ContainerLimits) -> list[str]:
        """The names of limits that were asked for and that the system does not enforce."""
        wanted = {
            "memory": (limits.memory_bytes, ("memory.max", "memory.limit_in_bytes")),
            "processes": (limits.processes, ("pids.max",)),
            "CPU": (limits.cpus, ("cpu.max", "cpu.cfs_quota_us")),
        }
        return [
            name
            for name, (limit, files) in wanted.items()
            if limit is not None and not any(self._is_limited(file, limit) for file in files)
        ]

    def count_of(self, event: str) -> int:
        """How often something happened to the container: "pids.max", "memory.oom_kill"."""
        controller, _, key = event.partition(".")
        for file in (f"{controller}.events", f"{controller}.oom_control"):
            for line in self._read(file).splitlines():
                name, _, count = line.partition(" ")
                if name == key:
                    return int(count)
        return 0

    def unnamed_files(self, device: int) -> FolderSize:
        """What files on a device take that the container has open and that have lost their name."""
        sizes: dict[int, int] = {}
        for pid in self._read_of("pids", "cgroup.procs").split():
            with contextlib.suppress(OSError), os.scandir(_PROC / pid / "fd") as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        found = os.stat(entry.path)
                        if found.st_dev == device and found.st_nlink == 0:
                            sizes[found.st_ino] = found.st_blocks * 512
        return FolderSize(sum(sizes.values()), len(sizes))

    def seal_mounts(self) -> bool:
        """Let no set-user-id bit and no device node count in what is mounted; False: we may not.

        No engine can be asked for that: a folder is mounted as its disk is. The container's own
        view is changed instead, by a process that does nothing else.
        """
        if os.geteuid() != 0:
            return False
        try:
            lines = (
                (_PROC / str(self.pid) / "mountinfo")
                .read_text(encoding="utf-8", errors="surrogateescape")
                .splitlines()
            )
            command = [sys.executable, "-I", "-S", "-c", _SEAL, str(self._descriptor)]
            done = subprocess.run(
                [*command, *_unsealed_mounts(lines)],
                pass_fds=(self._descriptor,),
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_SEAL_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _is_limited(self, file: str, limit: float) -> bool:
        """Whether a limit is at least as tight as asked; pages and periods round it a little."""
        fields = self._read(file).split()
        if not fields or fields[0] in ("max", "-1"):
            return False
        return file.startswith("cpu.") or int(fields[0]) <= limit

    def _read(self, file: str) -> str:
        return self._read_of(file.partition(".")[0], file)

    def _read_of(self, controller: str, file: str) -> str:
        folder = self._groups.get(controller)
        if folder is None:
            return ""
        try:
            return (folder / file).read_text()
        except OSError:
            return ""


def _group_folders(lines: list[str]) -> Iterator[tuple[str, Path]]:
    """Where the files of each controller are, from what `/proc/PID/cgroup` says."""
    # Version 2's line (no controllers) comes first: where both exist, version 1 has the limits.
    for controllers, path in sorted(line.split(":", 2)[1:] for line in lines):
        for controller in ("memory", "pids", "cpu"):
            if not controllers:
                yield controller, _CGROUPS / path.lstrip("/")
            elif controller in controllers.split(","):
                yield controller, _CGROUPS / controllers / path.lstrip("/")


def _unsealed_mounts(lines: list[str]) -> Iterator[str]:
    """Where something of the host is mounted without both flags, by `/proc/PID/mountinfo`."""
    for line in lines:
        path, options = line.split()[4:6]
        is_of_engine = path == "/" or path.split("/")[1] in ("dev", "proc", "sys")
        if not is_of_engine and not {"nosuid", "nodev"} <= set(options.split(",")):
            yield re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


class LimitCounter:
    """Say which limits of a container were met.

    Threads:
        `_lock` guards the counts; any thread may ask.
    """

    def __init__(self, limits: ContainerLimits, process: ContainerProcess | None) -> None:
        self._limits = limits
        self._process = process
        self._lock = threading.Lock()
        self._counts = {
            event: 0 if process is None else process.count_of(event)
            for event in ("memory.oom_kill", "pids.max")
        }

    def newly_met(self, reply: ExecutionReply | None = None) -> list[str]:
        """What was met since this was asked last, and what the code's error names, in words."""
        limits = self._limits
        messages = [] if reply is None else [_limit_named_by(reply, limits)]
        if self._has_more("memory.oom_kill") and limits.memory_bytes is not None:
            messages.append(
                f"The container may use {size_text(limits.memory_bytes)} of memory; a process in"
                " it was killed because that was not enough."
            )
        if self._has_more("pids.max"):
            messages.append(_processes_message(limits))
        return list(dict.fromkeys(message for message in messages if message is not None))

    def _has_more(self, event: str) -> bool:
        if self._process is None:
            return False
        with self._lock:
            before, self._counts[event] = self._counts[event], self._process.count_of(event)
            return self._counts[event] > before


def _limit_named_by(reply: ExecutionReply, limits: ContainerLimits) -> str | None:
    """What an error says about a limit, in words; None for an error of another kind."""
    name, text = reply.error_name, reply.error_text
    if name == "OSError" and text.startswith(f"[Errno {errno.EFBIG}]"):
        if limits.file_bytes is not None:
            return f"A file may not grow beyond {size_text(limits.file_bytes)} in this container."
    elif text.startswith(f"[Errno {errno.EAGAIN}]") or text == "can't start new thread":
        return _processes_message(limits)
    return None


def _processes_message(limits: ContainerLimits) -> str | None:
    """That there may be no more processes, if that is limited."""
    if limits.processes is None:
        return None
    return (
        f"The container may have at most {limits.processes} processes and threads; the code"
        " tried to start more."
    )
