"""A small world with a sandbox in it, for programs that try to get out, or just to work."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.inside.sandbox.rules import Rules
from taskweaver_ext.ces.kernels.modes import EnvMode
from taskweaver_ext.ces.sandbox import sandbox
from taskweaver_ext.ces.sandbox.control_groups import ControlGroup
from taskweaver_ext.config.sandbox import SandboxSettings
from tests.support import escape_attempts, escape_victim
from tests.support.escape_attempts import SECRET

NOBODY = 65534
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PROCESSES, MEMORY_BYTES, FILE_BYTES = 300, 512 << 20, 64 << 20
SECONDS = 120.0

_SCRIPTS = ("escape_attempts", "escape_victim", "session_escapes", "sandboxed_session")
_FILES = "secret overwritten truncated to_move exchanged removed mode"


@dataclass(frozen=True, slots=True)
class World:
    """Folders in and outside of a sandbox; all belong to the user that code runs as."""

    folder: Path
    user: int

    @property
    def working_folder(self) -> Path:
        """Where code may write."""
        return self.folder / "work"

    @property
    def python(self) -> str:
        """An interpreter that the user may run."""
        return sys.executable if self.user == os.getuid() else "/usr/bin/python3"

    def rules(self, *, has_private_view: bool) -> Rules:
        """Those of a sandbox, with limits."""
        enforcement = sandbox.Enforcement(
            has_private_view=has_private_view, missing={}, remarks=(), group_places={}
        )
        rules = sandbox.sandbox_rules(
            self.working_folder,
            self.folder / "temporary",
            enforcement,
            python_folders=sandbox.folders_of_python(self.python),
            readable=[str(self.folder / "shared"), str(self.folder / "source")],
            settings=SandboxSettings(memory_bytes=MEMORY_BYTES, file_bytes=FILE_BYTES),
        )
        return dataclasses.replace(rules, process_count=PROCESSES)

    def run(
        self,
        command: list[str],
        rules: Rules | Literal["guard"] | None = None,
        inherited: tuple[int, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as the user, in a sandbox if there are rules."""
        if rules is not None:
            starter = str(self.folder / "source/inside/restricted_start.py")
            described = rules if rules == "guard" else json.dumps(dataclasses.asdict(rules))
            command = [self.python, "-I", "-S", starter, described, command[0], *command]
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(self.working_folder),
            **(sandbox.variables_for(rules) if isinstance(rules, Rules) else {}),
        }
        return subprocess.run(
            command,
            cwd=self.working_folder,
            env=variables,
            timeout=SECONDS,
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            **self._as_user(),
        )

    @contextlib.contextmanager
    def victim(self) -> Iterator[dict[str, Any]]:
        """A process outside, and what there is to know about it."""
        script = str(self.folder / "source/escape_victim.py")
        with subprocess.Popen(
            [self.python, script, str(self.folder / "outside"), escape_victim.SECRET.decode()],
            env={"KEY": escape_victim.SECRET.decode()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **self._as_user(),
        ) as process:
            assert process.stdout is not None
            yield {**json.loads(process.stdout.readline()), **self.surroundings()}
            process.communicate()

    def surroundings(self) -> dict[str, Any]:
        """What attempts have to know besides."""
        return {
            "outside": str(self.folder / "outside"),
            "shared": str(self.folder / "shared"),
            "disk": next(map(str, Path("/dev").glob("[sv]da")), "/dev/none"),
            "group": next(map(str, Path("/sys/fs/cgroup").rglob("cgroup.procs")), "/none"),
            "processes": PROCESSES + 100,
            "memory": 2 * MEMORY_BYTES,
            "file": 2 * FILE_BYTES,
        }

    def try_to_escape(self, rules: Rules | Literal["guard"] | None) -> dict[str, str]:
        """Make all attempts; say what came of each."""
        self.furnish()
        with self.victim() as known, open(self.folder / "outside/secret", "rb") as inherited:
            known["inherited"] = inherited.fileno()
            script = str(self.folder / "source/escape_attempts.py")
            command = [self.python, script, json.dumps(known)]
            run = self.run(command, rules, (inherited.fileno(),))
        assert run.returncode == 0, run.stderr
        outcomes: dict[str, str] = json.loads(run.stdout)
        return outcomes

    def furnish(self) -> None:
        """Put everything where it was."""
        for name in ("work", "temporary", "outside", "shared"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        home = self.folder / "outside/home"
        (home / ".ssh").mkdir(parents=True)
        for path in (
            *(
                self.folder / place / name
                for place in ("outside", "shared")
                for name in _FILES.split()
            ),
            *(home / name for name in (".ssh/id_ed25519", "taskweaver_config.json", ".bashrc")),
        ):
            path.write_bytes(escape_attempts.SECRET)
        if os.getuid() == 0:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, self.user, self.user)
            program = self.folder / "shared/id_of_root"
            shutil.copy("/usr/bin/id", program)
            program.chmod(0o4755)

    def try_to_escape_from_a_session(
        self, settings: Mapping[str, Any], *, has_private_view: bool
    ) -> dict[str, Any]:
        """Have a kernel, its shell and its programs make all attempts; say what came of each."""
        script = str(self.folder / "source/sandboxed_session.py")
        command = [sys.executable, script, str(self.folder), json.dumps(settings)]
        command += [] if has_private_view else ["shared"]
        home = self.folder / "outside/home"
        run = subprocess.run(
            self.as_user(command),
            cwd="/",
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "KEY": SECRET.decode()},
            timeout=5 * SECONDS,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    def as_user(self, command: list[str]) -> list[str]:
        """The command that runs another one as the user, with the interpreter that runs us."""
        if self.user == os.getuid():
            return command
        needed = Path(sys.base_prefix)
        closed = [folder for folder in needed.parents if not folder.stat().st_mode & 0o001]
        show = ":"
        if closed:  # the user may not enter where the interpreter lies: nothing else is shown there
            kept = self.folder / "interpreter"
            kept.mkdir(exist_ok=True)
            show = (
                f"mount --bind {needed} {kept} && mount -t tmpfs -o mode=0755 none {closed[-1]}"
                f" && mkdir -p {needed} && mount --bind {kept} {needed}"
            )
        become = f"setpriv --reuid={self.user} --regid={self.user} --clear-groups --inh-caps=-all"
        return ["unshare", "--mount", "sh", "-c", f'{show} && exec {become} "$@"', "sh", *command]

    def _as_user(self) -> Mapping[str, Any]:
        if self.user == os.getuid():
            return {}
        return {"user": self.user, "group": self.user, "extra_groups": []}


@contextlib.contextmanager
def make_world(user: int | None = None) -> Iterator[World]:
    """A world for a user: us by default."""
    with tempfile.TemporaryDirectory(prefix="sandbox-test-", ignore_cleanup_errors=True) as name:
        # Another ordinary user for each worker: limits on processes count for all that a user has.
        user = NOBODY - 1 - _WORKER if user == NOBODY else user
        world = World(Path(name), os.getuid() if user is None else user)
        world.folder.chmod(0o755)
        source = world.folder / "source"
        inside = sandbox.RUNTIME_FOLDER
        shutil.copytree(inside, source / "inside", ignore=shutil.ignore_patterns("__pycache__"))
        for script in _SCRIPTS:
            shutil.copy(Path(__file__).with_name(f"{script}.py"), source)
        world.furnish()
        (source / "surroundings.json").write_text(json.dumps(world.surroundings()))
        yield world


def require_sandbox() -> None:
    """Skip a test where the machine cannot enforce a sandbox."""
    if missing := sandbox.probe().missing:
        pytest.skip(" ".join(dict.fromkeys(missing.values())))


def sandbox_environment(folder: Path, **more: object) -> Environment:
    """An environment whose kernels run in sandboxes."""
    return Environment(folder, EnvMode.Sandbox, **more)  # type: ignore[arg-type]


@contextlib.contextmanager
def limited_group(limits: Mapping[str, int]) -> Iterator[ControlGroup]:
    """A control group that is gone in the end."""
    group = ControlGroup(sandbox.probe().group_places, limits)
    try:
        yield group
    finally:
        group.remove()
