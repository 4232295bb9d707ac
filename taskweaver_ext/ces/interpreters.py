"""Which Python runs a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from taskweaver_ext.errors import KernelStartError

_BIN = "Scripts" if os.name == "nt" else "bin"


def find_python(configured: str | None, cwd: Path, environment: dict[str, str]) -> str:
    """The configured Python, else the active or the folder's virtual environment, else ours."""
    if configured is not None:
        return configured
    homes = [environment.get("VIRTUAL_ENV"), cwd / ".venv", cwd / "venv"]
    for home in homes:
        if home and (python := Path(home) / _BIN / "python").exists():
            return str(python)
    return sys.executable


def environment_of(python: str, environment: dict[str, str]) -> dict[str, str]:
    """The environment with the interpreter's own folder first on the path."""
    folder = str(Path(python).parent)
    path = environment.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] == folder:
        return environment
    return {**environment, "PATH": f"{folder}{os.pathsep}{path}"}


def explain_why_unusable(python: str) -> KernelStartError | None:
    """The error for an interpreter that cannot run a kernel; None for one that can."""
    try:
        check = subprocess.run(
            [python, "-c", "import ipykernel"], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        return KernelStartError(
            f"There is no Python at {python}. Set another one, or none to use {sys.executable}."
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return KernelStartError(f"The Python at {python} does not run: {error}.")
    if check.returncode == 0:
        return None
    if "ModuleNotFoundError" in check.stderr and "ipykernel" in check.stderr:
        return KernelStartError(
            f"The Python at {python} has no ipykernel, so it cannot run a kernel."
            f" Install it with: {python} -m pip install ipykernel"
        )
    return KernelStartError(f"The Python at {python} fails to start: {check.stderr.strip()}")
