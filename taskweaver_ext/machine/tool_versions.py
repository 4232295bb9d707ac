"""Which versions of an interpreter or compiler this machine has, and where.

Looked for in the environments of a project, in the folders of version managers, and on the
PATH. Nothing is run but a program of the PATH, to be asked for its version.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.machine.child_environment import child_environment

_ASK_SECONDS = 10.0
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_WANTED = re.compile(r"v?(\d+(?:\.\d+)*)")
_MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class ToolVersion:
    """One version of a tool."""

    version: str
    path: str
    origin: str
    """Who put it there: `.venv`, `pyenv`, `nvm` ..., or `PATH`."""

    def matches(self, wanted: str) -> bool:
        """Whether this is a 3.12.1 where a 3.12 is wanted."""
        parts = wanted.split(".")
        return self.version.split(".")[: len(parts)] == parts


@dataclass(frozen=True, slots=True)
class _Manager:
    """Where a version manager keeps what it has installed."""

    name: str
    homes: tuple[str, ...]
    """Its folder: a variable that says where that is, or a place below the user's home."""
    pattern: str
    """Where programs are below it; the first star is a folder named after the version."""


@dataclass(frozen=True, slots=True)
class _Tool:
    names: re.Pattern[str]
    """What its program is called on the PATH."""
    managers: tuple[_Manager, ...] = ()
    has_environments: bool = False
    """Whether a project can have one of its own, as with `.venv`."""


def _shared_managers(name: str, program: str) -> tuple[_Manager, ...]:
    """Those that look after tools of every kind."""
    return (
        _Manager("asdf", ("$ASDF_DATA_DIR", "~/.asdf"), f"installs/{name}/*/bin/{program}"),
        _Manager(
            "mise",
            ("$MISE_DATA_DIR", "$XDG_DATA_HOME/mise", "~/.local/share/mise"),
            f"installs/{name}/*/bin/{program}",
        ),
    )


_TOOLS: Mapping[str, _Tool] = {
    "python": _Tool(
        re.compile(r"python(?:3(?:\.\d+)?)?"),
        (
            _Manager("pyenv", ("$PYENV_ROOT", "~/.pyenv"), "versions/*/bin/python"),
            _Manager(
                "uv",
                ("$UV_PYTHON_INSTALL_DIR", "$XDG_DATA_HOME/uv/python", "~/.local/share/uv/python"),
                "cpython-*/bin/python3",
            ),
            *_shared_managers("python", "python"),
        ),
        has_environments=True,
    ),
    "node": _Tool(
        re.compile(r"node(?:js)?"),
        (
            _Manager("nvm", ("$NVM_DIR", "~/.nvm"), "versions/node/*/bin/node"),
            _Manager(
                "fnm",
                ("$FNM_DIR", "$XDG_DATA_HOME/fnm", "~/.local/share/fnm", "~/.fnm"),
                "node-versions/*/installation/bin/node",
            ),
            _Manager("volta", ("$VOLTA_HOME", "~/.volta"), "tools/image/node/*/bin/node"),
            *_shared_managers("nodejs", "node"),
        ),
    ),
    "ruby": _Tool(
        re.compile(r"ruby(?:\d+(?:\.\d+)*)?"),
        (
            _Manager("rbenv", ("$RBENV_ROOT", "~/.rbenv"), "versions/*/bin/ruby"),
            *_shared_managers("ruby", "ruby"),
        ),
    ),
    "rustc": _Tool(
        re.compile("rustc"),
        (_Manager("rustup", ("$RUSTUP_HOME", "~/.rustup"), "toolchains/*/bin/rustc"),),
    ),
}
_VERSION_ARGUMENTS = {"go": "version", "lua": "-v"}


def parse_version(text: str) -> str | None:
    """The version that is wanted, such as 3.12 or v20; None for what is no version."""
    match = _WANTED.fullmatch(text.strip())
    return match[1] if match else None


def find_versions(tool: str, environment: Mapping[str, str], cwd: Path) -> list[ToolVersion]:
    """All versions of a tool, those that are nearest first, then the newest first.

    Args:
        tool: The name of its program: `python`, `node`, `rustc`, or any other on the PATH.
        environment: Says where the user's home and the managers' folders are.
        cwd: The folder whose environments count.
    """
    known = _TOOLS.get(tool) or _Tool(re.compile(re.escape(tool)))
    near = [*_of_environments(environment, cwd)] if known.has_environments else []
    near += _of_path(known, environment, {os.path.dirname(one.path) for one in near})
    managed = [one for manager in known.managers for one in _of_manager(manager, environment)]
    managed.sort(key=lambda one: _as_numbers(one.version), reverse=True)
    places = {os.path.realpath(one.path) for one in near if one.origin == "PATH"}
    return [*near, *(one for one in managed if os.path.realpath(one.path) not in places)]


def find_version(
    tool: str, wanted: str, environment: Mapping[str, str], cwd: Path
) -> ToolVersion | None:
    """The nearest program of a version, if there is one."""
    versions = find_versions(tool, environment, cwd)
    return next((one for one in versions if one.matches(wanted)), None)


def describe_versions(versions: list[ToolVersion]) -> str:
    """What there is, in words, for a message that says what there is not."""
    named = [f"{one.version} ({one.origin})" for one in versions[:_MAX_NAMED]]
    more = len(versions) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])])


def ask_version(path: str) -> str:
    """The version that a program of this machine says it has; empty if it says none."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return _ask_version(path, status.st_mtime_ns)


def is_as_new_as(version: str, oldest: str) -> bool:
    """Whether a version is at least another one."""
    return _as_numbers(version) >= _as_numbers(oldest)


@functools.lru_cache(maxsize=256)
def _ask_version(path: str, _changed_at: int) -> str:
    argument = _VERSION_ARGUMENTS.get(os.path.basename(path), "--version")
    try:
        done = subprocess.run(
            [path, argument],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd="/",
            timeout=_ASK_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    match = _VERSION.search(done.stdout) or _VERSION.search(done.stderr)
    return match[0] if match and done.returncode == 0 else ""


def _of_environments(environment: Mapping[str, str], cwd: Path) -> Iterator[ToolVersion]:
    """The virtual environment that is active, and those of the folder."""
    places = {"VIRTUAL_ENV": environment.get("VIRTUAL_ENV"), ".venv": cwd / ".venv"}
    seen = set()
    for origin, home in {**places, "venv": cwd / "venv"}.items():
        if not home or str(home) in seen:
            continue
        seen.add(str(home))
        python = Path(home) / "bin" / "python"
        if (version := _version_of_environment(Path(home))) and _is_program(python):
            yield ToolVersion(version, str(python), origin)


def _version_of_environment(home: Path) -> str:
    """The version that a virtual environment says it has; empty if it is none."""
    try:
        lines = (home / "pyvenv.cfg").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.partition("=")
        # `version_info` is what virtualenv and uv write.
        if name.strip() in ("version", "version_info") and (match := _VERSION.search(value)):
            return ".".join(match[0].split(".")[:3])
    return ""


def _of_manager(manager: _Manager, environment: Mapping[str, str]) -> Iterator[ToolVersion]:
    depth = next(i for i, part in enumerate(manager.pattern.split("/")) if "*" in part)
    for home in dict.fromkeys(_expand(home, environment) for home in manager.homes):
        for path in sorted(home.glob(manager.pattern)) if home is not None else ():
            assert home is not None
            folder = home.joinpath(*path.relative_to(home).parts[: depth + 1])
            if folder.is_symlink() or not _is_program(path):
                continue  # a link such as 3.12 -> 3.12.1 is the same once more
            named = _VERSION.search(folder.name)
            version = named[0] if named else _version_of_environment(folder)
            if version := version or ask_version(str(path)):
                yield ToolVersion(version, str(path), manager.name)


def _expand(home: str, environment: Mapping[str, str]) -> Path | None:
    first, _, rest = home.partition("/")
    if first == "~":
        first_folder = environment.get("HOME") or os.path.expanduser("~")
    else:
        first_folder = environment.get(first[1:], "")
    return Path(first_folder) / rest if first_folder else None


def _of_path(
    tool: _Tool, environment: Mapping[str, str], known_folders: set[str]
) -> Iterator[ToolVersion]:
    seen: set[str] = set()
    for folder in dict.fromkeys(environment.get("PATH", os.defpath).split(os.pathsep)):
        # A shim runs what its manager says, which is not to be known before.
        if not folder or folder in known_folders or os.path.basename(folder) == "shims":
            continue
        try:
            names = sorted(name for name in os.listdir(folder) if tool.names.fullmatch(name))
        except OSError:
            continue
        is_environment = os.path.exists(os.path.join(os.path.dirname(folder), "pyvenv.cfg"))
        for name in names:
            path = Path(folder) / name
            place = folder if is_environment else os.path.realpath(path)
            if place in seen or not _is_program(path):
                continue
            seen.add(place)
            if version := ask_version(str(path)):
                yield ToolVersion(version, str(path), "PATH")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
