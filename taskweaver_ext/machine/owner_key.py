"""A secret of this user on this machine, to know again what was written here."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from taskweaver_ext.machine.private_files import claim_private_folder

KEY_BYTES = 32

_NAME = "owner-key"


def read_owner_key(folder: Path) -> bytes:
    """Return the key in a folder, which is made the first time.

    Raises:
        OSError: It cannot be read or made, is not this user's, or is no key.
    """
    path = folder / _NAME
    try:
        return _read(path)
    except FileNotFoundError:
        claim_private_folder(folder)
        _make(path)
        return _read(path)


def _make(path: Path) -> None:
    """Put a key in its place at once, unless another process was faster."""
    temporary = path.with_name(f".{_NAME}-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _read(path: Path) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise PermissionError(f"{path} is not for this user alone; remove it")
        key = file.read(KEY_BYTES + 1)
    if not stat.S_ISREG(found.st_mode) or len(key) != KEY_BYTES:
        raise OSError(f"{path} is no key; remove it")
    return key
