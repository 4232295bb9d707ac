"""Where programs run: the seam between executors and this machine, or a container.

`LocalSites`, `SessionSites` (`ces/executors.py`) and `ProgramContainer` stand behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.inside.spawner.process_tree import ProcessSeen
from taskweaver_ext.ces.inside.spawner.started_process import ProcessEnd
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.machine.tool_versions import ToolVersion


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
    """Whether we read what it writes there."""
    limits: tuple[str, ...] = ()
    has_lifeline: bool = False


class RunningProcess(Protocol):
    """A process that leads a session of its own, with everything that it starts.

    Belongs to one thread. The caller that started it closes its streams.
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

    def read_notices(self) -> Iterable[HostNotice]:
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
        """The limits of its site that were met since its start or the last call, in words."""


class ProgramFolder(Protocol):
    """A private folder with files that programs of the site can read."""

    def write(self, name: str, content: bytes) -> str:
        """Write a file; return its path at the site. Raises OSError."""

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        """Make a named pipe; return its path at the site, and the end that we read."""

    def remove(self, name: str) -> None:
        """Remove a name; a program that has opened the file keeps it."""

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

    def find_versions(
        self, tool: str, environment: Mapping[str, str], cwd: Path
    ) -> list[ToolVersion] | None:
        """The versions of a tool, nearest first; None where only its PATH can be looked at."""

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
