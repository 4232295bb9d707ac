"""What can be wrong before a program starts, and how errors that are not its own read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from taskweaver_ext.errors import ConfigError, KernelDiedError, SessionError, TaskWeaverError


def exec_error(what: str, code: str) -> str:
    """The text of an error that is not the program's own."""
    return f"exec: {what} ({code})"


def describe_start_failure(error: OSError | ValueError) -> str:
    """Why a process could not be started."""
    if isinstance(error, OSError) and error.errno is not None:
        what = f"Cannot start the process: {os.strerror(error.errno)}"
        return exec_error(what, errno.errorcode.get(error.errno, "EIO"))
    return exec_error(f"Cannot start the process: {error}", "EINVAL")


def describe_missing_site(error: TaskWeaverError) -> str:
    """Why there is no place for a process to run."""
    codes = {KernelDiedError: "KERNEL_DIED", SessionError: "SESSION", ConfigError: "CONFIG"}
    return exec_error(str(error), codes.get(type(error), "KERNEL_START"))


def explain_working_directory(cwd: Path, complaint: str) -> str | None:
    """What is wrong with a working directory; None when nothing is.

    Args:
        complaint: As `complaint_about_folder` has it.
    """
    if complaint == "absent":
        return exec_error(f"Working directory does not exist '{cwd}'", "ENOENT")
    if complaint == "file":
        return exec_error(f"Working directory is not a folder '{cwd}'", "CWD_INVALID")
    if complaint:
        return exec_error(f"Working directory may not be entered '{cwd}'", "CWD_INVALID")
    return None


def explain_missing_program(command: str, *, is_there: bool) -> str:
    """What is wrong with a program that was not found.

    Args:
        is_there: Whether there is a file of that name.
    """
    if os.path.dirname(command):
        what = "is not executable" if is_there else "does not exist"
        return exec_error(f"{command} {what}", "EACCES" if is_there else "ENOENT")
    return exec_error(f"{command} not found in PATH", "ENOENT")
