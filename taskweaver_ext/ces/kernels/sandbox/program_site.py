"""A sandbox as a place where programs run."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from taskweaver_ext.ces.execution.files_beneath import open_beneath
from taskweaver_ext.ces.inside.spawner.started_process import ProcessEnd, find_program
from taskweaver_ext.ces.kernels.sandbox.running_sandbox import RunningSandbox, open_sandbox
from taskweaver_ext.ces.programs.local_site import LocalProcess, LocalSite
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.ces.programs.site import ProcessSettings, ProgramSite
from taskweaver_ext.ces.sandbox.sandbox import restriction_command, variables_for
from taskweaver_ext.config.sandbox import SandboxSettings
from taskweaver_ext.machine.child_environment import (
    FOR_AGENTS,
    EnvironmentRules,
    child_environment,
    variables_for_programs,
)
from taskweaver_ext.machine.tool_versions import ToolVersion, find_versions


class SandboxedProcess(LocalProcess):
    """A process in a sandbox, which does not end before it.

    Threads:
        As its base. `_lock` keeps its number its own while a thread of the sandbox kills it.
    """

    def __init__(self, settings: ProcessSettings, sandbox: RunningSandbox) -> None:
        """Start it; raises OSError or ValueError."""
        self._sandbox = sandbox
        self._met = sandbox.count_met()
        self._kill_reason = ""
        self._is_collected = False
        self._lock = threading.Lock()
        if not sandbox.use():
            raise OSError("its sandbox has ended")
        try:
            super().__init__(settings, restriction_command(sandbox.rules_for_program()))
        except BaseException:
            sandbox.leave()
            raise
        sandbox.listen(self._handle_too_much)

    def collect(self) -> ProcessEnd:
        """Wait for it, and say how it ended."""
        self._sandbox.forget(self._handle_too_much)
        with self._lock:
            self._is_collected = True
        try:
            return super().collect()
        finally:
            self._sandbox.leave()

    def limits_met(self) -> list[str]:
        """The limits that were met since its start or the last call."""
        messages = self._sandbox.describe_met(self._met)
        reason, self._kill_reason = self._kill_reason, ""
        return [*messages, *([f"The program was killed: {reason}."] if reason else [])]

    def _handle_too_much(self, message: str) -> None:
        with self._lock:
            if not self._is_collected:
                self._kill_reason = message
                self.kill_all()

    def _open_file(self, path: str) -> int:
        """Code may have put a link there by now."""
        folder = self._sandbox.folder
        return open_beneath(folder, str(Path(path).relative_to(folder)))


class SandboxedFolder:
    """A folder that programs in the sandbox can write to.

    They may put links in the place of anything: all is done relative to the folder as it was
    made, and nothing that is there already is opened.
    """

    def __init__(self, parent: Path) -> None:
        """Make it; raises OSError."""
        self._path = parent / f"program-{uuid.uuid4().hex}"
        self._path.mkdir(mode=0o700)
        self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def write(self, name: str, content: bytes) -> str:
        """Write a file."""
        self.remove(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=self._folder), "wb") as file:
            file.write(content)
        return str(self._path / name)

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        """Make a named pipe and open its end that we read."""
        os.mkfifo(name, 0o600, dir_fd=self._folder)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        return str(self._path / name), ReadEnd(os.open(name, flags, dir_fd=self._folder))

    def remove(self, name: str) -> None:
        """Remove a name."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)

    def path_for_builds(self) -> str:
        """The folder itself."""
        return str(self._path)

    def close(self) -> None:
        """Remove it."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1
            shutil.rmtree(self._path, ignore_errors=True)


class SandboxedSite(LocalSite):
    """This machine, as far as a sandbox lets programs have it."""

    def __init__(self, sandbox: RunningSandbox, cwd: Path, environment: Mapping[str, str]) -> None:
        super().__init__()
        self.memory_bytes = sandbox.memory_bytes
        self._sandbox = sandbox
        self._cwd = cwd
        self._environment = {**environment, **variables_for(sandbox.rules)}

    def complain_about_folder(self, path: Path) -> str:
        """Look on this machine."""
        return super().complain_about_folder(self._cwd / path)

    def find_program(self, command: str, environment: Mapping[str, str]) -> str | None:
        """Look where programs of the sandbox can look."""
        path = {**self._environment, **environment}.get("PATH", os.defpath)
        for folder in path.split(os.pathsep):
            found = find_program(command, {"PATH": str(self._cwd / folder)})
            if found is not None and self._sandbox.reaches(found):
                return found
        return None

    def find_versions(
        self, tool: str, environment: Mapping[str, str], cwd: Path
    ) -> list[ToolVersion] | None:
        """Those of this machine that programs of the sandbox can read."""
        found = find_versions(tool, {**self._environment, **environment}, self._cwd / cwd)
        return [one for one in found if self._sandbox.reaches(os.path.realpath(one.path))]

    def has_file(self, path: str) -> bool:
        """Look where programs of the sandbox can look."""
        return super().has_file(path) and self._sandbox.reaches(path)

    def make_folder(self) -> SandboxedFolder:
        """A folder among temporary files."""
        return SandboxedFolder(self._sandbox.temporary_folder)

    def start(self, settings: ProcessSettings) -> SandboxedProcess:
        """Start a child process of ours that gives up its rights before it becomes the program."""
        placed = replace(
            settings,
            cwd=self._cwd / settings.cwd,
            environment={**self._environment, **settings.environment},
        )
        return SandboxedProcess(placed, self._sandbox)


class ProgramSandbox:
    """`ProgramSites` with a sandbox of their own, made for the first program."""

    def __init__(
        self, cwd: Path, settings: SandboxSettings, *, rules: EnvironmentRules = FOR_AGENTS
    ) -> None:
        self._cwd = cwd
        self._rules = rules
        self._settings = settings
        self._lock = threading.Lock()
        self._sandbox: RunningSandbox | None = None

    def working_directory(self, path: str | Path | None) -> Path:
        """A path of this machine."""
        return self._cwd if path is None else Path(path).absolute()

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """These, besides what the sandbox has."""
        return variables_for_programs(variables)

    @contextlib.contextmanager
    def use(self) -> Iterator[ProgramSite]:
        """The sandbox."""
        with self._lock:
            if self._sandbox is None:
                self._sandbox = open_sandbox(self._cwd, self._settings)
        yield SandboxedSite(self._sandbox, self._cwd, child_environment(rules=self._rules))

    def close(self) -> None:
        """End the sandbox, with all that runs in it."""
        with self._lock:
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.leave()
