"""Whose container is it? Find and remove what a process left behind when it was killed.

A container carries a label that names the process it belongs to, so that it
cannot be mistaken for a later process with the same number. What cannot be
judged (another machine, another container's processes) is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.ces.kernels.container_engine import LABEL, Engine, EngineError

OWNER_LABEL = f"{LABEL}.owner"
SESSION_LABEL = f"{LABEL}.session"
FOLDER_LABEL = f"{LABEL}.folder"

FOLDER_PREFIX = "taskweaver-"

_FOLDER = re.compile(rf"/tmp/{FOLDER_PREFIX}\w+")
_SECONDS = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that cannot be confused with any other."""

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
        return cls(*_boot_and_namespace(), os.getpid(), _start_of(os.getpid()) or "")

    @classmethod
    def parse(cls, label: str) -> Owner | None:
        """Read what `__str__` wrote; None for anything else."""
        parts = label.split("/")
        if len(parts) != 4 or not parts[2].isdigit():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])

    def __str__(self) -> str:
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.started}"

    def is_dead(self, *, engine_is_here: bool) -> bool:
        """Whether the process is gone for certain; an engine elsewhere has clients elsewhere."""
        boot, namespace = _boot_and_namespace()
        if self.boot != boot:
            return engine_is_here  # then it was this machine, before it was started again
        return self.namespace == namespace and _start_of(self.pid) != self.started


def remove_leftovers(engine: Engine) -> list[str]:
    """Remove the containers and folders of processes that are gone; return their names."""
    removed = []
    engine_is_here = engine.shares_this_machine
    for container in engine.list_ours():
        labels = container.get("Labels") or {}
        owner = Owner.parse(labels.get(OWNER_LABEL, ""))
        is_dead = owner is not None and owner.is_dead(engine_is_here=engine_is_here)
        if not is_dead and container["Id"] not in engine.unremoved:
            continue
        name = str((container.get("Names") or [container["Id"]])[0]).lstrip("/")
        try:
            engine.remove(container["Id"])
        except EngineError as error:
            _log.warning("the leftover container %s cannot be removed: %s", name, error)
            continue
        _remove_folder(labels.get(FOLDER_LABEL, ""))
        removed.append(name)
    return removed


def _remove_folder(path: str) -> None:
    """Remove a folder that a label names, if it can only be one of ours."""
    if not _FOLDER.fullmatch(path):
        return
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)


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
