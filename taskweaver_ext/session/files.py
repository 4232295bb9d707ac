"""Give files to a session: code finds them in its working folder, and nothing there is replaced.

That folder may be the person's own, and code may have put anything at a name, such as a link: what
is there already stays, and a different file comes under another name, which is told.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

from taskweaver_ext.ces.execution.files_beneath import open_beneath, regular_file_beneath
from taskweaver_ext.errors import SessionError

SessionFile: TypeAlias = str | Path | Mapping[str, Any]
"""A path, or TaskWeaver's mapping: `name` with `path` or `content`."""

_CHUNK_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def place_file(folder: Path, file: SessionFile) -> str:
    """Have a file in a folder, and return the path from there: where it is, or where its copy is.

    Raises:
        SessionError: It has no name, is no ordinary file, or cannot be copied.
    """
    given: Mapping[str, Any] = file if isinstance(file, Mapping) else {"path": file}
    name = _wanted_name(file)
    if not name or name in (".", ".."):
        raise SessionError(f"A file needs a name: {given.get('name')!r} is none.")
    try:
        if there := _place_within(folder, given, name):
            return there
        return _copy(folder, given, name)
    except (OSError, ValueError, TypeError) as error:  # also of names that cannot be a path
        raise SessionError(f"The file {name!r} cannot be copied: {error}") from error


def describe_place(name: str, file: SessionFile) -> str:
    """The name that a file has in the working folder, and why, where it is not the file's own."""
    wanted = _wanted_name(file)
    has_own = name.rpartition("/")[2] == wanted
    return name if has_own else f"{name} (there is another {wanted} already)"


def _wanted_name(file: SessionFile) -> str:
    given: Mapping[str, Any] = file if isinstance(file, Mapping) else {"path": file}
    return Path(str(given.get("name") or given.get("path") or "")).name


def _place_within(folder: Path, given: Mapping[str, Any], name: str) -> str:
    """The path of a file that lies in the folder already, and has the name it is to have."""
    source = given.get("path")
    if source is None:
        return ""
    path = Path(os.path.abspath(source))
    root = folder.resolve()
    found = regular_file_beneath(root, str(path.parent.resolve() / path.name))
    return found.relative_to(root).as_posix() if found and found.name == name else ""


def _copy(folder: Path, given: Mapping[str, Any], name: str) -> str:
    temporary = folder / f".{secrets.token_hex(8)}.part"
    try:
        with open(os.open(temporary, _NEW_FILE, _permissions(given)), "wb") as target:
            _write(given, target)
            if os.name == "posix" and os.getuid() == 0:  # code may run as another user
                owner = folder.stat()
                os.fchown(target.fileno(), owner.st_uid, owner.st_gid)
        for free_name in _names_like(name):
            if _give_name(temporary, folder / free_name) or _is_same(folder, free_name, temporary):
                return free_name
        raise AssertionError("names never end")
    finally:
        temporary.unlink(missing_ok=True)


def _permissions(given: Mapping[str, Any]) -> int:
    """Who may read and change a copy: whoever may read and change the file; raises OSError."""
    source = given.get("path")
    return 0o666 if source is None else os.stat(source).st_mode & 0o777 | 0o600


def _names_like(name: str) -> Iterator[str]:
    """A name, and others for when it is taken: `data.csv`, `data-2.csv`, `data-3.csv`, ..."""
    yield name
    path = Path(name)
    for number in itertools.count(2):
        yield f"{path.stem}-{number}{path.suffix}"


def _give_name(temporary: Path, target: Path) -> bool:
    """Have a file under a name, if nothing has that name; in one step, whatever code does."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if os.path.lexists(target):
            return False
        os.rename(temporary, target)
    return True


def _is_same(folder: Path, name: str, copy: Path) -> bool:
    """Whether an ordinary file of that name holds the same already."""
    try:
        descriptor = open_beneath(folder, name)
    except OSError:  # a link, a folder, or not ours to read
        return False
    with open(descriptor, "rb") as there, open(copy, "rb") as new:
        if os.fstat(descriptor).st_size != os.fstat(new.fileno()).st_size:
            return False
        while (data := new.read(_CHUNK_BYTES)) == there.read(_CHUNK_BYTES):
            if not data:
                return True
    return False


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
