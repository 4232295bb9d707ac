"""Which Python runs a kernel."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.tool_versions import (
    ToolVersion,
    describe_versions,
    find_versions,
    parse_version,
)

_BIN, _PYTHON = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
_MANAGED = Path(".taskweaver") / "python-env"
"""Beneath the user's home: an environment kept for kernels, used if it is there."""

_TOO_OLD = 4
_CHECK = f"""
import importlib.util, sys
print(importlib.util.find_spec("pip") and "pip")
import ipykernel
sys.exit({_TOO_OLD} if ipykernel.version_info[0] < 6 else 0)
"""
"""Says whether there is pip, then how it stands with ipykernel."""


def find_python(configured: str | None, cwd: Path, environment: dict[str, str]) -> str:
    """The interpreter that is configured, else the nearest one.

    One that is configured may be a version such as 3.12, a name on the path, or the folder of a
    virtual environment. Of several of that version one that can run kernels comes first.
    Otherwise the active virtual environment comes first, then one in the working directory,
    then `~/.taskweaver/python-env`, then the interpreter we run on if it can run kernels, and
    last the `python3` of the path.

    Raises:
        KernelStartError: There is no Python of the version that is configured.
    """
    if configured:
        if version := parse_version(configured):
            return _find_version(version, cwd, environment)
        return _read_configured(configured, environment)
    homes = [environment.get("VIRTUAL_ENV"), cwd / ".venv", cwd / "venv"]
    if user_home := environment.get("HOME") or environment.get("USERPROFILE"):
        homes.append(Path(user_home) / _MANAGED)
    for home in homes:
        if home and (python := Path(home) / _BIN / _PYTHON).exists():
            return str(python)
    if importlib.util.find_spec("ipykernel") is not None:
        return sys.executable
    path = environment.get("PATH", os.defpath)
    return shutil.which("python3", path=path) or shutil.which("python", path=path) or sys.executable


def _find_version(version: str, cwd: Path, environment: dict[str, str]) -> str:
    pythons = find_versions("python", environment, cwd)
    matching = [one for one in pythons if one.matches(version)]
    if not matching:
        there = describe_versions(pythons) or "none"
        raise KernelStartError(
            f"There is no Python {version} here; there are: {there}. Install it, or choose another."
        )
    return next((one for one in matching if _has_ipykernel(one)), matching[0]).path


def _has_ipykernel(python: ToolVersion) -> bool:
    """Whether it seems to have one, without running it."""
    library = Path(python.path).parent.parent / "lib"
    folders = (
        f"python{'.'.join(python.version.split('.')[:2])}/site-packages",
        "python3/dist-packages",
    )
    return any((library / folder / "ipykernel").is_dir() for folder in folders)


def _read_configured(configured: str, environment: dict[str, str]) -> str:
    if os.path.basename(configured) == configured:
        return shutil.which(configured, path=environment.get("PATH", os.defpath)) or configured
    path = Path(configured).expanduser().absolute()  # kernels start in another folder
    return str(path / _BIN / _PYTHON if path.is_dir() else path)


def environment_of(python: str, environment: dict[str, str]) -> dict[str, str]:
    """The environment with the interpreter's own folder first on the path."""
    if not os.path.isabs(python):
        return environment  # there is none of this name
    folder = str(Path(python).parent)
    path = environment.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] == folder:
        return environment
    return {**environment, "PATH": f"{folder}{os.pathsep}{path}"}


def explain_why_unusable(python: str, environment: Mapping[str, str]) -> KernelStartError | None:
    """The error for an interpreter that cannot run a kernel; None for one that can."""
    try:
        check = subprocess.run(
            [python, "-c", _CHECK],
            env=dict(environment),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
    except FileNotFoundError:
        return KernelStartError(
            f"There is no Python at {python}. Set another one, or none to use {sys.executable}."
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return KernelStartError(f"The Python at {python} does not run: {error}.")
    if check.returncode == 0:
        return None
    if check.returncode == _TOO_OLD:
        lacks, package = "has an ipykernel that is too old to run a kernel", "'ipykernel>=6.29'"
    elif "ModuleNotFoundError" in check.stderr and "ipykernel" in check.stderr:
        lacks, package = "has no ipykernel, so it cannot run a kernel", "ipykernel"
    else:
        return KernelStartError(f"The Python at {python} fails to start: {check.stderr.strip()}")
    command = _install_command(python, package, has_pip="pip" in check.stdout)
    return KernelStartError(f"The Python at {python} {lacks}. Install it with: {command}")


def _install_command(python: str, package: str, *, has_pip: bool) -> str:
    """What brings a package into an environment, which may have been made without pip."""
    python = shlex.quote(python)
    if not has_pip and shutil.which("uv"):
        return f"uv pip install --python {python} {package}"
    install = f"{python} -m pip install {package}"
    return install if has_pip else f"{python} -m ensurepip && {install}"
