"""Where programs run: on this machine, or elsewhere with the same means to watch and end them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from taskweaver_ext.ces.child_environment import child_environment
from taskweaver_ext.ces.guardian import Guardian
from taskweaver_ext.ces.kernel_runtime.process_tree import ProcessSeen, ticks_since_boot
from taskweaver_ext.ces.kernel_runtime.started_process import (
    ProcessEnd,
    StartedProcess,
    complaint_about_folder,
    find_program,
)
from taskweaver_ext.ces.kernels.host import HostNotice
from taskweaver_ext.ces.owned_folders import make_owned_folder
from taskweaver_ext.ces.programs.exec_errors import absolute
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.ces.results import KernelDeath


class SiteGoneError(Exception):
    """The place where programs run has ended, with everything in it."""

    def __init__(self, death: KernelDeath) -> None:
        super().__init__(death.detail)
        self.death = death


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """What a process is started with. Paths are those of the site."""

    path: str
    command: tuple[str, ...]
    """The name it is called by, and its arguments."""
    cwd: Path
    environment: Mapping[str, str]
    stdin: str | None = None
    """A file it reads; None: it finds the end of its input at once."""
    has_open_stdin: bool = False
    """Whether we write what it reads instead."""
    has_stderr: bool = True
    """Whether anybody reads what it writes there."""
    limits: tuple[str, ...] = ()
    has_lifeline: bool = False
    is_guarded: bool = False
    """Whether it is bash, and is to end with us even if we are killed; at other sites than this
    machine everything does."""


class RunningProcess(Protocol):
    """A process that leads a session of its own, with everything that it starts.

    Belongs to one thread. Whoever started it closes its streams.
    """

    stdin: int | None
    stdout: ReadEnd
    stderr: ReadEnd | None
    descriptor: int | None
    """Readable when it has ended, or there is news; None where the system does not tell."""

    mark: str
    """What it and all that it starts carry in their environment, unless that is cleared."""

    @property
    def pid(self) -> int:
        """Its number at its site, which is also its session and group."""

    def ticks(self) -> int:
        """The time at its site, as the start times of its processes have it."""

    def has_ended(self) -> bool:
        """Whether it has ended, though perhaps not what it started."""

    def take_news(self) -> Iterable[HostNotice]:
        """What has happened to its site since this was asked last."""

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""

    def signal_group(self, number: int) -> None:
        """Send its group a signal."""

    def members(self) -> list[ProcessSeen]:
        """What lives of it and of all that it started."""

    def signal_members(
        self, members: Iterable[ProcessSeen], number: int, wait_seconds: float = 0.0
    ) -> None:
        """Send a signal to some of them, and wait a moment for their end."""

    def kill_all(self) -> None:
        """Kill it with everything it started."""

    def wait(self) -> int:
        """Its exit code once it has ended; negative for the signal that ended it."""

    def collect(self) -> ProcessEnd:
        """Let go of it once it has ended, and say how it did."""

    def death(self) -> KernelDeath | None:
        """How its site ended, if that is why it has."""

    def limits_met(self) -> list[str]:
        """The limits of its site that were met since it was started or this was asked, in words."""


class ProgramFolder(Protocol):
    """A private folder whose files programs of the site can read."""

    def write(self, name: str, content: bytes) -> str:
        """Write a file; return its path at the site. Raises OSError."""

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        """Make a named pipe; return its path at the site, and the end that we read."""

    def remove(self, name: str) -> None:
        """Take a name away; whoever has opened it keeps it."""

    def path_for_builds(self) -> str:
        """A folder at the site into which programs can write; removed with this one."""

    def close(self) -> None:
        """Remove it with everything in it."""


class ProgramSite(Protocol):
    """A place where programs can be run; safe from any thread.

    Raises:
        SiteGoneError: From any method, once the place has ended.
        KernelError: From any method, when the place lives and does not answer.
    """

    memory_bytes: int | None
    """What all its programs together may use, where that is bounded."""

    def complain_about_folder(self, path: Path) -> str:
        """What keeps a process from running there: "absent", "file", "closed", or nothing."""

    def find_program(self, command: str, environment: Mapping[str, str]) -> str | None:
        """The path of a program, looked for where the process itself would look."""

    def has_file(self, path: str) -> bool:
        """Whether there is anything at a path."""

    def make_folder(self) -> ProgramFolder:
        """A folder for a program's files; raises OSError."""

    def start(self, settings: ProcessSettings) -> RunningProcess:
        """Start a process; raises OSError, or ValueError for what no process can be given."""


class ProgramSites(Protocol):
    """Where an executor's programs run, now and after that place has ended."""

    def working_directory(self, path: str | Path | None) -> Path:
        """Where programs run that are to run at this path; by default at the site's own."""

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """What is to be set for programs that get these variables."""

    def use(self) -> AbstractContextManager[ProgramSite]:
        """The site, which is not put away meanwhile.

        Raises:
            TaskWeaverError: There is none, and none can be had.
        """


class LocalProcess(StartedProcess):
    """A process of this machine."""

    stdin: int | None
    stdout: ReadEnd
    stderr: ReadEnd | None

    def __init__(self, settings: ProcessSettings) -> None:
        """Start it; raises OSError or ValueError."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            stdin = self._open_stdin(settings, ours, theirs)
            receiver, stdout = _pipe(ours, theirs)
            self.stdout = ReadEnd(receiver)
            self.stderr, stderr = None, subprocess.DEVNULL
            if settings.has_stderr:
                receiver, stderr = _pipe(ours, theirs)
                self.stderr = ReadEnd(receiver)
            super().__init__(
                settings.path,
                settings.command,
                cwd=str(settings.cwd),
                environment=settings.environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                limits=settings.limits,
                has_lifeline=settings.has_lifeline,
            )
            ours.pop_all()
        self._guardian: Guardian | None = None
        if settings.is_guarded:
            with contextlib.suppress(OSError):  # where there is no room for it, we go without
                self._guardian = Guardian(settings.path, self.family)

    def collect(self) -> ProcessEnd:
        """Wait for it, and say how it ended."""
        end = super().collect()
        if self._guardian is not None:
            self._guardian.dismiss()
        return end

    def _open_stdin(
        self,
        settings: ProcessSettings,
        ours: contextlib.ExitStack,
        theirs: contextlib.ExitStack,
    ) -> int:
        self.stdin = None
        if settings.has_open_stdin:
            stdin, self.stdin = _pipe(theirs, ours)
            return stdin
        if settings.stdin is None:
            return subprocess.DEVNULL
        descriptor = os.open(settings.stdin, os.O_RDONLY | os.O_CLOEXEC)
        theirs.callback(os.close, descriptor)
        return descriptor

    def ticks(self) -> int:
        """Clock ticks since boot."""
        return ticks_since_boot()

    def take_news(self) -> Iterable[HostNotice]:
        """There is none: this machine does not end without us."""
        return ()

    def death(self) -> KernelDeath | None:
        """See `take_news`."""
        return None

    def limits_met(self) -> list[str]:
        """A process of this machine has only limits of its own."""
        return []


class LocalFolder:
    """A folder of this machine."""

    def __init__(self) -> None:
        self._path = make_owned_folder("program")

    def write(self, name: str, content: bytes) -> str:
        """Write a file."""
        path = self._path / name
        path.write_bytes(content)
        return str(path)

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        """Make a named pipe and open its end that we read."""
        path = self._path / name
        os.mkfifo(path, 0o600)
        return str(path), ReadEnd(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))

    def remove(self, name: str) -> None:
        """Take a name away."""
        (self._path / name).unlink(missing_ok=True)

    def path_for_builds(self) -> str:
        """The folder itself."""
        return str(self._path)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self._path, ignore_errors=True)


class LocalSite:
    """This machine."""

    memory_bytes: int | None = None

    def complain_about_folder(self, path: Path) -> str:
        """Look here."""
        return complaint_about_folder(str(path))

    def find_program(self, command: str, environment: Mapping[str, str]) -> str | None:
        """Look here."""
        return find_program(command, environment)

    def has_file(self, path: str) -> bool:
        """Look here."""
        return os.path.exists(path)

    def make_folder(self) -> LocalFolder:
        """A temporary folder."""
        return LocalFolder()

    def start(self, settings: ProcessSettings) -> LocalProcess:
        """Start a child process of ours."""
        return LocalProcess(settings)


class LocalSites:
    """This machine, always."""

    def working_directory(self, path: str | Path | None) -> Path:
        """An absolute path; by default our own."""
        return absolute(path)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The harmless variables of ours, and these."""
        return child_environment(variables)

    def use(self) -> AbstractContextManager[LocalSite]:
        """It is always there."""
        return contextlib.nullcontext(LocalSite())


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with their stacks."""
    receiver, sender = os.pipe()
    reading.callback(os.close, receiver)
    writing.callback(os.close, sender)
    return receiver, sender
