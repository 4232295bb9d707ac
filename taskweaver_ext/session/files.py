"""Give files to a session: copied into its working directory, whatever stands there already."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

from taskweaver_ext.errors import SessionError

SessionFile: TypeAlias = str | Path | Mapping[str, Any]
"""A path, or TaskWeaver's mapping: `name` with `path` or `content`."""


def copy_into(folder: Path, file: SessionFile) -> str:
    """Copy a file into a folder, and return its name there.

    Raises:
        SessionError: It has no name, is no ordinary file, or cannot be copied.
    """
    given: Mapping[str, Any] = file if isinstance(file, Mapping) else {"path": file}
    name = Path(str(given.get("name") or given.get("path") or "")).name
    if not name or name in (".", ".."):
        raise SessionError(f"A file needs a name: {given.get('name')!r} is none.")
    # Code may have put a link where the file shall be: it is replaced, never followed.
    temporary = folder / f".{secrets.token_hex(8)}.part"
    try:
        with temporary.open("xb") as target:
            _write(given, target)
            if os.name == "posix" and os.getuid() == 0:  # code may run as another user
                owner = folder.stat()
                os.fchown(target.fileno(), owner.st_uid, owner.st_gid)
        os.replace(temporary, folder / name)
    except (OSError, ValueError, TypeError) as error:  # also of names that cannot be a path
        temporary.unlink(missing_ok=True)
        raise SessionError(f"The file {name!r} cannot be copied: {error}") from error
    return name


def _write(given: Mapping[str, Any], target: IO[bytes]) -> None:
    source = given.get("path")
    if source is None:
        content = given.get("content") or b""
        target.write(content.encode() if isinstance(content, str) else content)
        return
    # Opening a pipe would wait for another process to write, and a device may never end.
    if not stat.S_ISREG(os.stat(source).st_mode):
        raise OSError("it is a folder, a pipe or a device, and no ordinary file")
    with open(source, "rb") as opened:
        shutil.copyfileobj(opened, target)
