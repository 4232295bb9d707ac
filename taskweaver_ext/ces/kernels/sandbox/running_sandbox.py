"""A sandbox in use: its temporary folder, its control group, and its watch."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from taskweaver_ext.ces.inside.sandbox.rules import Rules
from taskweaver_ext.ces.kernels.container.folder_watch import (
    NO_LIMIT,
    FolderLimit,
    FolderSize,
    FolderWatch,
)
from taskweaver_ext.ces.kernels.container.limits import growth_message, size_text
from taskweaver_ext.ces.sandbox import sandbox
from taskweaver_ext.ces.sandbox.control_groups import ControlGroup
from taskweaver_ext.config.sandbox import SandboxSettings
from taskweaver_ext.errors import ConfigError, KernelStartError
from taskweaver_ext.machine.owned_folders import make_owned_folder

_LOOK_SECONDS = 0.5

OnTooMuch = Callable[[str], None]
"""Called with a sentence when code must be stopped; on a thread of the sandbox."""


class RunningSandbox:
    """What the kernel of a session and its programs share. It ends with the last that uses it.

    Threads:
        Any thread may call any method; `_lock` guards the fields but
        `rules` and `folder`.
        Watches have threads of their own, which end with the sandbox.
    """

    def __init__(
        self, working_folder: Path, settings: SandboxSettings, python_folders: Iterable[str] = ()
    ) -> None:
        """Make it, for one user.

        Raises:
            ConfigError: The machine cannot enforce what is required, or the folder cannot be used.
            OSError: There is no room for its folder.
        """
        enforcement = sandbox.probe()
        self._settings = settings
        self._lock = threading.Lock()
        self._users = 1
        self._listeners: list[OnTooMuch] = []
        self._is_closed = False
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self.folder = make_owned_folder("sandbox")
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            temporary = self.folder / "tmp"
            temporary.mkdir(mode=0o700)
            self.rules = sandbox.sandbox_rules(
                working_folder,
                temporary,
                enforcement,
                python_folders=python_folders,
                settings=settings,
            )
            sandbox.check(self.rules, enforcement, settings.require)
            about_folder = sandbox.remarks_on_folder(working_folder)
            self.remarks = (*enforcement.remarks, *about_folder)
            limits = {
                "memory": settings.memory_bytes,
                "pids": settings.process_count,
                "cpuacct": None if settings.cpu_seconds is None else 0,
            }
            self._group = ControlGroup(
                enforcement.group_places,
                {name: limit for name, limit in limits.items() if limit is not None},
            )
            undo.callback(self._group.remove)
            self._watches = list(self._make_watches())
            for watch in self._watches:
                undo.callback(watch.stop)
            self._closing = undo.pop_all()

    def rules_for_kernel(self, connection_file: Path) -> Rules:
        """The rules for a kernel, which is made to `join`."""
        return replace(self.rules, readable=(*self.rules.readable, str(connection_file)))

    def rules_for_program(self) -> Rules:
        """The rules for a program, which joins by itself before it is one; raises OSError."""
        return replace(self.rules, group_files=self._group.files)

    def join(self, pid: int) -> None:
        """Have a process that runs no code yet count among those of the sandbox; raises OSError."""
        self._group.add(pid)

    def reaches(self, path: str) -> bool:
        """Whether code can read what lies at a path."""
        rules, real = self.rules, os.path.realpath(path)
        places = (rules.working_folder, rules.temporary_folder, *rules.readable, *rules.writable)
        return any(
            real == place or real.startswith(f"{place}/") for place in map(os.path.realpath, places)
        )

    @property
    def temporary_folder(self) -> Path:
        """Where code keeps temporary files."""
        return Path(self.rules.temporary_folder)

    @property
    def memory_bytes(self) -> int | None:
        """What all processes together may use."""
        return self._settings.memory_bytes

    def use(self) -> bool:
        """Become one more user, unless it has ended."""
        with self._lock:
            self._users += not self._is_closed
            return not self._is_closed

    def leave(self) -> None:
        """Use it no more; the last one ends it, with all that runs in it."""
        with self._lock:
            self._users -= 1
            if self._users or self._is_closed:
                return
            self._is_closed = True
        self._closing.close()

    def listen(self, on_too_much: OnTooMuch) -> None:
        """Have a function told when code uses too much; called before the code runs."""
        with self._lock:
            self._listeners.append(on_too_much)
            watches, self._watches = self._watches, []
        for watch in watches:
            watch.start()

    def forget(self, on_too_much: OnTooMuch) -> None:
        """Tell it no more."""
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(on_too_much)

    def count_met(self) -> dict[str, int]:
        """How often each limit of the control group was met until now."""
        return {name: self._group.count_met(name) for name in ("memory", "pids")}

    def describe_met(self, before: dict[str, int]) -> list[str]:
        """Say which limits were met since they were counted, and count them again."""
        now, settings = self.count_met(), self._settings
        messages = []
        if now["memory"] > before["memory"] and settings.memory_bytes is not None:
            messages.append(
                "The memory limit of the sandbox was met"
                f" ({size_text(settings.memory_bytes)} for all processes together)."
            )
        if now["pids"] > before["pids"]:
            messages.append(
                "The limit of processes and threads of the sandbox was met"
                f" ({settings.process_count})."
            )
        before.update(now)
        return messages

    def _make_watches(self) -> Iterator[FolderWatch | _ProcessorWatch]:
        """They begin with the first listener: until then no code runs."""
        limit = FolderLimit(self._settings.disk_bytes, self._settings.disk_files)
        cpu_seconds = self._settings.cpu_seconds
        if limit != NO_LIMIT:
            for folder, what in (
                (Path(self.rules.working_folder), "the working folder"),
                (self.temporary_folder, "the folder for temporary files"),
            ):
                tell = _growth_teller(self._tell, what, limit)
                yield FolderWatch(folder, limit, tell, "sandbox")
        if cpu_seconds is not None and self._group.counts_processor_time:
            yield _ProcessorWatch(self._group, cpu_seconds, self._tell)

    def _tell(self, message: str) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(message)


def open_sandbox(
    working_folder: Path, settings: SandboxSettings, python: str = sys.executable
) -> RunningSandbox:
    """Make a sandbox in which a Python can run; raises KernelStartError."""
    try:
        return RunningSandbox(working_folder, settings, sandbox.folders_of_python(python))
    except (ConfigError, OSError) as error:
        raise KernelStartError(str(error)) from error


def _growth_teller(
    tell: OnTooMuch, folder: str, limit: FolderLimit
) -> Callable[[FolderSize], None]:
    def tell_of_growth(added: FolderSize) -> None:
        tell(growth_message(limit, added, folder=folder, place="sandbox"))

    return tell_of_growth


class _ProcessorWatch(threading.Thread):
    """Tells, again and again, when a group has used more processor time than it may."""

    def __init__(self, group: ControlGroup, limit_seconds: int, tell: OnTooMuch) -> None:
        super().__init__(name="taskweaver-sandbox-cpu", daemon=True)
        self._group = group
        self._limit_seconds = limit_seconds
        self._tell = tell
        self._is_stopped = threading.Event()

    def run(self) -> None:
        while not self._is_stopped.wait(_LOOK_SECONDS):
            used = self._group.cpu_seconds or 0.0
            if used > self._limit_seconds:
                self._tell(
                    f"all processes of this sandbox together may use {self._limit_seconds} s of"
                    f" processor time and have used {used:.0f} s"
                )

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped.set()
        if self.is_alive() and self is not threading.current_thread():
            self.join()
