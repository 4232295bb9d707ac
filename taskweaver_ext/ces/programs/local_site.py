"""Programs on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.inside.spawner.process_tree import ProcessFamily, ticks_since_boot
from taskweaver_ext.ces.inside.spawner.started_process import (
    ProcessEnd,
    StartedProcess,
    complaint_about_folder,
    find_program,
    new_mark,
)
from taskweaver_ext.ces.programs.orphan_killer import ORPHAN_KILLER
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.ces.programs.site import ProcessSettings, ProgramFolder
from taskweaver_ext.ces.sandbox.sandbox import restriction_command
from taskweaver_ext.machine.child_environment import (
    FOR_AGENTS,
    EnvironmentRules,
    child_environment,
)
from taskweaver_ext.machine.owned_folders import make_owned_folder
from taskweaver_ext.machine.private_files import open_private
from taskweaver_ext.machine.tool_versions import ToolVersion, find_versions


class LocalProcess(StartedProcess):
    """A process of this machine."""

    stdin: int | None
    stdout: ReadEnd
    stderr: ReadEnd | None

    def __init__(self, settings: ProcessSettings, restriction: Sequence[str] = ()) -> None:
        """Start it; raises OSError or ValueError.

        Args:
            restriction: A command that gives up rights and then becomes the program.
        """
        path, command = settings.path, settings.command
        if restriction:
            path, command = restriction[0], (*restriction, path, *command)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            stdin = self._open_stdin(settings, ours, theirs)
            receiver, stdout = _pipe(ours, theirs)
            self.stdout = ReadEnd(receiver)
            self.stderr, stderr = None, subprocess.DEVNULL
            if settings.has_stderr:
                receiver, stderr = _pipe(ours, theirs)
                self.stderr = ReadEnd(receiver)
            mark = new_mark()
            ours.callback(ORPHAN_KILLER.forget, mark)
            ORPHAN_KILLER.watch(ProcessFamily(0, mark))
            super().__init__(
                path,
                command,
                cwd=str(settings.cwd),
                environment=settings.environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                limits=settings.limits,
                has_lifeline=settings.has_lifeline,
                mark=mark,
            )
            ours.pop_all()
        ORPHAN_KILLER.watch(self.family)

    def collect(self) -> ProcessEnd:
        """Wait for it, and say how it ended."""
        ORPHAN_KILLER.forget(self.mark)
        return super().collect()

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
        descriptor = self._open_file(settings.stdin)
        theirs.callback(os.close, descriptor)
        return descriptor

    def _open_file(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def ticks(self) -> int:
        """Clock ticks since boot."""
        return ticks_since_boot()

    def read_notices(self) -> Iterable[HostNotice]:
        """Return none: this machine does not end before us."""
        return ()

    def death(self) -> KernelDeath | None:
        """See `read_notices`."""
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
        with open(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(content)
        return str(path)

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        """Make a named pipe and open its end that we read."""
        path = self._path / name
        os.mkfifo(path, 0o600)
        return str(path), ReadEnd(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))

    def remove(self, name: str) -> None:
        """Remove a name."""
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

    def __init__(self, restriction: Sequence[str] = ()) -> None:
        """`restriction` is what `LocalProcess` takes."""
        self._restriction = restriction

    def complain_about_folder(self, path: Path) -> str:
        """Look on this machine."""
        return complaint_about_folder(str(path))

    def find_program(self, command: str, environment: Mapping[str, str]) -> str | None:
        """Look on this machine."""
        return find_program(command, environment)

    def find_versions(
        self, tool: str, environment: Mapping[str, str], cwd: Path
    ) -> list[ToolVersion] | None:
        """Look where projects and version managers keep them, and on the PATH."""
        return find_versions(tool, environment, cwd)

    def has_file(self, path: str) -> bool:
        """Look on this machine."""
        return os.path.exists(path)

    def make_folder(self) -> ProgramFolder:
        """A temporary folder."""
        return LocalFolder()

    def start(self, settings: ProcessSettings) -> LocalProcess:
        """Start a child process of ours."""
        return LocalProcess(settings, self._restriction)


class LocalSites:
    """This machine, always."""

    def __init__(self, *, guard: bool = False, rules: EnvironmentRules = FOR_AGENTS) -> None:
        """With `guard`, programs cannot look into other processes; `rules` say what they see."""
        self._rules = rules
        self._site = LocalSite(restriction_command("guard") if guard else ())

    def working_directory(self, path: str | Path | None) -> Path:
        """An absolute path; by default our own, even if that has been removed."""
        try:
            return Path(path or "").absolute()
        except OSError:
            return Path(path or "")

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Those of ours that programs may see, and these."""
        return child_environment(variables, rules=self._rules)

    def use(self) -> AbstractContextManager[LocalSite]:
        """It is always there."""
        return contextlib.nullcontext(self._site)


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with their stacks."""
    receiver, sender = os.pipe()
    reading.callback(os.close, receiver)
    writing.callback(os.close, sender)
    return receiver, sender
