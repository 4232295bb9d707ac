"""Which user the code in a container is: never root, unless the settings say so.

Root inside is root outside for everything that is mounted, and for whatever a fault in the
engine or the system lets through.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.errors import ConfigError, KernelStartError

UNPRIVILEGED = 65532
"""A user and a group that own nothing. Not "nobody", as which other things run as well."""


@dataclass(frozen=True, slots=True)
class CodeUser:
    """The user that the code of one container runs as."""

    name: str
    """As the engine wants it: UID:GID, or names that the image knows."""
    owner: int | None = None
    """Who must own files of ours that it reads, if that is another user than we are."""


def find_code_user(wanted: str | None, cwd: Path, *, is_rootless: bool) -> CodeUser:
    """The user for code that works on a folder.

    Args:
        wanted: As the settings say, if they do.
        is_rootless: Whether root of the engine is the user who started it.

    Raises:
        KernelStartError: It would have to be root, or the folder cannot be looked at.
    """
    if is_rootless:
        return CodeUser("0:0")
    if wanted is not None:
        uid, _ = _numbers_of(wanted)
        return CodeUser(wanted, uid if uid not in (None, os.getuid()) else None)
    if os.getuid() != 0:
        return CodeUser(f"{os.getuid()}:{os.getgid()}")
    try:
        found = cwd.stat()
    except OSError as error:
        raise KernelStartError(
            f"The folder {cwd} cannot be given to a container: {error}."
        ) from error
    if found.st_uid == 0:
        raise KernelStartError(
            f"The folder {cwd} belongs to root, and code in a container does not run as root. Give"
            " the folder to another user (chown), use another one, or say which user the code"
            ' is to be: ContainerSettings(user="UID:GID"), or execution_service.container_user'
            " (the variable EXECUTION_SERVICE_CONTAINER_USER)."
        )
    return CodeUser(f"{found.st_uid}:{found.st_gid}", found.st_uid)


def refuse_folder_of_root(wanted: str | None, cwd: Path, is_rootless: Callable[[], bool]) -> None:
    """Raise ConfigError for a folder with which no container would start, before one is tried."""
    try:
        find_code_user(wanted, cwd, is_rootless=False)
    except KernelStartError as error:
        if not is_rootless():
            raise ConfigError(str(error)) from error


def give_to_code(folder: Path, wanted: str | None) -> None:
    """Let code own a folder that we have made for it, where we are root; raises OSError.

    What we have put into it goes with it, but for files that have a name elsewhere, too.
    """
    if os.getuid() != 0 or folder.lstat().st_uid != 0:
        return
    uid, gid = (UNPRIVILEGED, UNPRIVILEGED) if wanted is None else _numbers_of(wanted)
    if uid is None:
        return
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if found.st_uid == 0 and (name in folders or found.st_nlink == 1):
                os.chown(name, uid, gid or -1, dir_fd=descriptor, follow_symlinks=False)
    os.chown(folder, uid, gid or -1, follow_symlinks=False)


def _numbers_of(user: str) -> tuple[int | None, int | None]:
    """The numbers in "UID:GID", where they are numbers."""
    uid, _, gid = user.partition(":")
    return int(uid) if uid.isdecimal() else None, int(gid) if gid.isdecimal() else None
