"""Folders and files for their owner alone, whatever the umask is.

A file that is there already and open to others is closed to them when it is used; so is a folder
that is claimed. Where a file system knows no owners, or another user owns it, it is used as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

_OTHERS = 0o077
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; one that is there stays as it is.

    Raises:
        OSError: It cannot be made, or something else is there.
    """
    try:
        os.mkdir(folder, _FOLDER_MODE)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private_folder(folder.parent)
        with contextlib.suppress(FileExistsError):  # another process has just made it
            os.mkdir(folder, _FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise


def claim_private_folder(folder: Path) -> None:
    """Do the same for a folder of ours: if others can look into it, they no longer can."""
    make_private_folder(folder)
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # one that we may use and not look into
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _close_to_others(descriptor, _FOLDER_MODE)
            finally:
                os.close(descriptor)


def open_private(path: Path, flags: int) -> int:
    """Open a file for writing that others cannot read, no link to one; raises OSError.

    Args:
        flags: As for `os.open`; that it may be made goes without saying.
    """
    flags |= os.O_CREAT
    if sys.platform == "win32":
        return os.open(path, flags | os.O_BINARY, _FILE_MODE)
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    _close_to_others(descriptor, _FILE_MODE)
    return descriptor


def open_to_read(path: Path) -> int:
    """Open an ordinary file, no link to one; nothing else is waited for. Raises OSError."""
    if sys.platform == "win32":
        return os.open(path, os.O_RDONLY | os.O_BINARY)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Put a text into a file in place of what it holds; raises OSError."""
    descriptor = open_private(path, os.O_WRONLY | os.O_TRUNC)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


if sys.platform != "win32":

    def _close_to_others(descriptor: int, least: int) -> None:
        found = os.fstat(descriptor)
        mode = stat.S_IMODE(found.st_mode)
        wanted = (mode & ~_OTHERS) | least
        if mode != wanted and found.st_uid == os.geteuid():
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, wanted)
