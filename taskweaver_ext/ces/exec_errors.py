"""What can be wrong before a program starts, and how errors that are not its own read."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def exec_error(what: str, code: str) -> str:
    """The text of an error that is not the program's own."""
    return f"exec: {what} ({code})"


def describe_start_failure(error: OSError | ValueError) -> str:
    """Why a process could not be started."""
    if isinstance(error, OSError) and error.errno is not None:
        what = f"Cannot start the process: {os.strerror(error.errno)}"
        return exec_error(what, errno.errorcode.get(error.errno, "EIO"))
    return exec_error(f"Cannot start the process: {error}", "EINVAL")


def absolute(path: str | Path | None) -> Path:
    """A working directory as an absolute path; by default ours, even if that has been removed."""
    try:
        return Path(path or "").absolute()
    except OSError:
        return Path(path or "")


def explain_working_directory(cwd: Path) -> str | None:
    """What is wrong with a working directory; None when nothing is."""
    if not cwd.exists():
        return exec_error(f"Working directory does not exist '{cwd}'", "ENOENT")
    if not cwd.is_dir():
        return exec_error(f"Working directory is not a folder '{cwd}'", "CWD_INVALID")
    if not os.access(cwd, os.X_OK):
        return exec_error(f"Working directory may not be entered '{cwd}'", "CWD_INVALID")
    return None


def find_program(command: str, environment: Mapping[str, str]) -> str | None:
    """The path of a program, looked for where the process itself would look."""
    return shutil.which(command, path=environment.get("PATH", os.defpath))


def explain_missing_program(command: str) -> str:
    """What is wrong with a program that was not found."""
    if os.path.dirname(command):
        what = "is not executable" if os.path.exists(command) else "does not exist"
        return exec_error(f"{command} {what}", "EACCES" if os.path.exists(command) else "ENOENT")
    return exec_error(f"{command} not found in PATH", "ENOENT")
