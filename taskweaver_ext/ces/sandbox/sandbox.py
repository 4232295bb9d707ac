"""What a sandbox on this machine allows, and what the machine can enforce of it.

What happens in the process that is restricted is `ces/inside/sandbox`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from taskweaver_ext.ces.inside import sandbox as inside
from taskweaver_ext.ces.inside.sandbox import landlock
from taskweaver_ext.ces.inside.sandbox.rules import Rules
from taskweaver_ext.ces.inside.sandbox.system_calls import MACHINE, NUMBERS
from taskweaver_ext.ces.sandbox.control_groups import GroupPlace, find_places
from taskweaver_ext.config.sandbox import PROTECTIONS, Protection, SandboxSettings
from taskweaver_ext.errors import ConfigError

RUNTIME_FOLDER = Path(next(iter(inside.__path__))).parent
STARTER = RUNTIME_FOLDER / "restricted_start.py"
_OURS = (sys.prefix, sys.base_prefix, str(RUNTIME_FOLDER.parent.parent))
"""The interpreter that runs us, and this package."""

_SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /nix/store /gnu/store /snap"
_SYSTEM_FILES = """
    alternatives bash.bashrc ca-certificates crypto-policies debian_version default/locale
    fonts gai.conf gitconfig group host.conf hosts inputrc java-11-openjdk java-17-openjdk
    java-21-openjdk ld.so.cache ld.so.conf ld.so.conf.d locale.alias locale.conf localtime magic
    magic.mime mailcap matplotlibrc mime.types nsswitch.conf os-release passwd pki/ca-trust
    pki/java pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf profile profile.d protocols R
    resolv.conf services shells ssl/certs ssl/cert.pem ssl/openssl.cnf terminfo timezone vimrc
    zsh
"""
"""What programs read in `/etc`. Keys and passwords lie there too, and root could read them."""
_HARDWARE = "/sys/devices/system/cpu /sys/devices/system/node /sys/kernel/mm"
_PROBE_SECONDS = 30.0
_FOLDERS_OF_PYTHON = """
import os, sys, sysconfig
names = "stdlib", "platstdlib", "purelib", "platlib"
places = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
places.update(sysconfig.get_paths()[name] for name in names)
places.update(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
print("\\n".join(sorted(places)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """What this machine can enforce."""

    has_private_view: bool
    missing: Mapping[Protection, str]
    """Why it cannot give a protection: a sentence."""
    remarks: tuple[str, ...]
    """What holds in a lesser way, or costs code something: sentences."""
    group_places: Mapping[str, GroupPlace] = field(default_factory=dict, repr=False)
    """Where the whole tree can be limited: "memory", "pids"."""


@functools.cache
def probe() -> Enforcement:
    """Find out, by doing it to a process of our own, what this machine can enforce."""
    missing: dict[Protection, str] = {}
    remarks = []
    abi = landlock.version()
    if MACHINE not in NUMBERS:
        sentence = f"The system calls of a {MACHINE} are not known here."
        missing |= dict.fromkeys(("files", "network", "processes"), sentence)
    elif not abi:
        sentence = "The kernel has no Landlock (Linux 5.13 and newer have, unless it is off)."
        missing |= dict.fromkeys(("files", "network", "processes"), sentence)
    elif reason := _why_it_fails(has_private_view=False):
        sentence = f"A process could not be restricted: {reason}."
        missing |= dict.fromkeys(("files", "network", "processes"), sentence)
    else:
        if abi < 3:
            missing["files"] = "Landlock keeps files from being truncated since Linux 6.2."
        if abi < 6:
            missing["processes"] = "Landlock keeps signals from other processes since Linux 6.12."
    reason = next(iter(missing.values()), "") or _why_it_fails(has_private_view=True)
    if reason:
        remarks.append(
            f"Code has no file system of its own here ({reason.rstrip('.')}): it cannot change"
            " modes and times of files, connect to sockets, watch folders, or use terminals and"
            " shared memory (pools of multiprocessing need it); and it can find out names and"
            " sizes of files that it cannot read."
        )
    places = find_places()
    if "memory" not in places:
        remarks.append(
            "No control group can be made here: memory is limited for each process, not for all"
            " together, and what processes share is not counted."
        )
    if "pids" not in places:
        if os.getuid() == 0:
            missing["process_count"] = (
                "No control group can be made here, and root may start any number of processes."
            )
        elif reason:
            remarks.append("The limit of processes counts those that the user has already.")
    return Enforcement(
        has_private_view=not reason,
        missing=missing,
        remarks=tuple(remarks),
        group_places=places,
    )


def check(
    rules: Rules,
    enforcement: Enforcement,
    required: Iterable[str] = PROTECTIONS,
) -> None:
    """Refuse rules that would not hold.

    Raises:
        ConfigError: The machine cannot enforce something that is required, or the rules would
            give away what they are to protect.
    """
    refuse_sandbox_folder(rules.working_folder)
    working = os.path.realpath(rules.working_folder)
    others = set(rules.readable) - set(_system_paths())  # which was refused above
    within = [path for path in others if _is_beneath(os.path.realpath(path), working)]
    if within and not rules.has_private_view:
        raise ConfigError(
            f"{within[0]} lies within the working folder, where code could change it."
            " Use a Python outside of it, or another working folder."
        )
    lacking = {name: why for name, why in enforcement.missing.items() if name in required}
    if lacking:
        accepted = [name for name in required if name not in lacking]
        raise ConfigError(
            f"This machine cannot enforce {', '.join(lacking)} of a sandbox."
            f" {' '.join(dict.fromkeys(lacking.values()))}"
            f" Use containers, or accept less: set sandbox.require to {json.dumps(accepted)}."
        )


def refuse_folder(working_folder: str | Path, place: str = "a sandbox") -> None:
    """Raise ConfigError for a working folder that holds what is to be protected from code."""
    working = os.path.realpath(working_folder)
    for what, places in (
        ("all that the user has", _real_paths(_home(), str(Path.home()))),
        ("what other programs keep for a while", _real_paths("/tmp", tempfile.gettempdir())),
        ("the system", _system_folders()),
    ):
        if any(_is_beneath(place, working) for place in places):
            raise ConfigError(
                f"{working_folder} cannot be the working folder of {place}: {what} is in it."
                " Use a folder of its own."
            )


def refuse_sandbox_folder(working_folder: str | Path) -> None:
    """Raise ConfigError for a working folder that a sandbox may not have, or cannot enter."""
    refuse_folder(working_folder)
    if ~_rights_without_root(working_folder) & (os.R_OK | os.X_OK):
        raise ConfigError(
            f"{working_folder} cannot be the working folder of a sandbox: it is for another user"
            " alone, and code in a sandbox has none of root's rights. Work as that user, or use"
            " another folder."
        )


def remarks_on_folder(working_folder: str | Path) -> tuple[str, ...]:
    """What code in a sandbox cannot do with its working folder: sentences."""
    if _rights_without_root(working_folder) & os.W_OK:
        return ()
    return (
        f"Code can read {working_folder} and not change it: the folder belongs to another user,"
        " and code in a sandbox has none of root's rights.",
    )


def _rights_without_root(folder: str | Path) -> int:
    """What its permissions let root do once it has no more rights than others; all, if not root."""
    everything = os.R_OK | os.W_OK | os.X_OK
    try:
        found = os.stat(folder)
    except OSError:  # which is said where the folder is used
        return everything
    if os.geteuid() != 0 or found.st_uid == 0:
        return everything
    is_in_group = found.st_gid in (os.getegid(), *os.getgroups())
    return found.st_mode >> (3 if is_in_group else 0) & everything


def sandbox_rules(
    working_folder: Path,
    temporary_folder: Path,
    enforcement: Enforcement,
    *,
    python_folders: Iterable[str] = (),
    readable: Iterable[str] = (),
    settings: SandboxSettings | None = None,
    group_files: Iterable[str] = (),
    descriptors: Iterable[int] = (),
) -> Rules:
    """Describe a sandbox in which programs of the system and a Python can run."""
    settings = settings or SandboxSettings()
    count = settings.process_count
    if "pids" in enforcement.group_places:
        count = None  # the group's: it counts what belongs to the sandbox only
    elif count is not None and not enforcement.has_private_view:
        count += _tasks_of_user()
    working = os.path.abspath(working_folder)
    # What we ourselves run must not be changed by the code, should it lie in its folder.
    ours = (
        path for path in _OURS if _is_beneath(os.path.realpath(path), os.path.realpath(working))
    )
    added = (os.path.abspath(os.path.expanduser(path)) for path in settings.readable)
    allowed = (str(RUNTIME_FOLDER), *python_folders, *added, *readable, *ours)
    return Rules(
        working_folder=working,
        temporary_folder=os.path.abspath(temporary_folder),
        readable=(
            *_system_paths(),
            *(path for path in dict.fromkeys(allowed) if os.path.exists(path)),
        ),
        writable=tuple(os.path.abspath(os.path.expanduser(path)) for path in settings.writable),
        has_private_view=enforcement.has_private_view,
        group_files=tuple(group_files),
        memory_bytes=settings.memory_bytes,
        process_count=count,
        cpu_seconds=settings.cpu_seconds,
        file_bytes=settings.file_bytes,
        descriptors=tuple(descriptors),
    )


@functools.cache
def folders_of_python(python: str) -> tuple[str, ...]:
    """What an interpreter reads of its own and of what is installed for it.

    Raises:
        ConfigError: It does not run.
    """
    try:
        answer = subprocess.run(
            [python, "-c", _FOLDERS_OF_PYTHON],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"The Python at {python} does not run: {error}.") from error
    return tuple(path for path in answer.stdout.splitlines() if path not in ("", "/", _home()))


def restriction_command(rules: Rules | Literal["guard"]) -> list[str]:
    """What comes before a program's path, name and arguments to run it under rules."""
    described = rules if rules == "guard" else json.dumps(dataclasses.asdict(rules))
    return [sys.executable, "-I", "-S", str(STARTER), described]


def variables_for(rules: Rules) -> dict[str, str]:
    """The variables that tell programs where they can write."""
    return {"TMPDIR": rules.temporary_folder, "HOME": rules.temporary_folder}


def can_guard() -> bool:
    """Whether this system lets a process give up looking into others."""
    return sys.platform == "linux"


def find_gaps_of_guard() -> tuple[str, ...]:
    """What code that is guarded can do to this process all the same: sentences."""
    if not can_guard():
        return ("Code can read and signal this program: only Linux can keep it from that.",)
    abi, gaps = landlock.version(), []
    if not abi:
        gaps.append("Code can signal this program: the kernel has no Landlock.")
    elif abi < 6:
        gaps.append("Code can signal this program: Landlock prevents that since Linux 6.12.")
    if os.geteuid() == 0:
        gaps.append(
            "Code runs as root: it can reach this program by way of others, such as services"
            " that start programs, and of files that it may change."
        )
    return tuple(gaps)


@functools.cache
def _system_paths() -> tuple[str, ...]:
    """What there is of the system that all may read."""
    etc = (f"/etc/{name}" for name in _SYSTEM_FILES.split())
    paths = (*_SYSTEM.split(), *etc, *_HARDWARE.split())
    return tuple(path for path in paths if os.path.exists(path))


@functools.cache
def _system_folders() -> tuple[str, ...]:
    others = ("/etc", "/var", "/proc", "/sys", "/dev", "/run")
    return _real_paths(*_SYSTEM.split(), *others)


def _real_paths(*paths: str) -> tuple[str, ...]:
    return tuple(map(os.path.realpath, paths))


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return str(Path.home())


def _is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _tasks_of_user() -> int:
    """How many threads the user has, which is what the limit counts."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                if entry.stat().st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{entry.name}/task"))
            except OSError:
                continue  # it has just ended
    return count


def _why_it_fails(*, has_private_view: bool) -> str:
    """Restrict a process that does nothing else; the reason if that cannot be done."""
    places = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)))
    readable = (*_SYSTEM.split(), *places, str(RUNTIME_FOLDER))
    with tempfile.TemporaryDirectory(prefix="taskweaver-") as folder:
        rules = Rules(folder, folder, readable=readable, has_private_view=has_private_view)
        nothing = [sys.executable, "-I", "-S", "-c", ""]
        command = [*restriction_command(rules), sys.executable, *nothing]
        try:
            tried = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_PROBE_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    return "" if tried.returncode == 0 else tried.stderr.strip().rpartition("\n")[2]
