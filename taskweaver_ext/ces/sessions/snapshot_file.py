"""The file that keeps the variables of a kernel, and whether it may be loaded.

Loading it runs code that is in it. Therefore it is for its owner alone and sealed with
a key that only the owner has: a file that came from elsewhere, or was changed, is not
loaded unless the caller says that it can be trusted.

    taskweaver-ext variables 1
    <HMAC-SHA256 of all that follows, in hexadecimal>
    <SnapshotHeader as JSON, in one line>
    <pickles, one after another>
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import itertools
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from taskweaver_ext.errors import SessionError

VARIABLES_FILE = "variables.snapshot"
"""What the snapshot of a session is called in its folder."""

_MAGIC = b"taskweaver-ext variables 1\n"
_SEAL_BYTES = 64
_MAX_HEADER_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPart:
    """One pickle: a variable, or several that share an object."""

    names: tuple[str, ...]
    size: int
    has_code: bool

    @staticmethod
    def from_json(said: dict[str, Any]) -> SnapshotPart:
        """Read one; raises ValueError, TypeError or KeyError for anything else."""
        names = tuple(str(name) for name in said["names"])
        part = SnapshotPart(names=names, size=int(said["size"]), has_code=bool(said["has_code"]))
        if part.size < 0:
            raise ValueError("a size below zero")
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """What is in a snapshot."""

    session_id: str
    mode: str
    """Where its kernel ran: what comes out of a sandbox is not loaded outside of one."""
    created_at: float
    python: str
    """Whose bytecode functions and classes are."""
    parts: tuple[SnapshotPart, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    """Variables that could not be saved, and why."""

    @property
    def size(self) -> int:
        """How many bytes follow the header."""
        return sum(part.size for part in self.parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables in it."""
        return tuple(name for part in self.parts for name in part.names)

    @staticmethod
    def from_json(text: bytes) -> SnapshotHeader:
        """Read one; raises ValueError, TypeError or KeyError for anything else."""
        said = json.loads(text)
        return SnapshotHeader(
            session_id=str(said["session_id"]),
            mode=str(said["mode"]),
            created_at=float(said["created_at"]),
            python=str(said["python"]),
            parts=tuple(map(SnapshotPart.from_json, said["parts"])),
            left_out={str(name): str(why) for name, why in dict(said["left_out"]).items()},
        )


def write_snapshot(path: Path, header: SnapshotHeader, pieces: Iterable[bytes], key: bytes) -> int:
    """Put a snapshot in the place of what is there, whole or not at all; return its size.

    Raises:
        OSError: It cannot be written; nothing has changed then.
    """
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            seal = hmac.new(key, digestmod=hashlib.sha256)
            file.write(_MAGIC + b"0" * _SEAL_BYTES + b"\n")
            first_line = json.dumps(asdict(header)).encode() + b"\n"
            for piece in itertools.chain([first_line], pieces):
                seal.update(piece)
                file.write(piece)
            size = file.tell()
            file.seek(len(_MAGIC))
            file.write(seal.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return size


class OpenedSnapshot:
    """A snapshot that may be loaded: a copy that nobody can change any more."""

    def __init__(self, header: SnapshotHeader, pickles: IO[bytes]) -> None:
        self.header = header
        self._pickles = pickles

    def pieces(self, size: int) -> Iterator[bytes]:
        """The pickles, one after another, in pieces of this size."""
        left = self.header.size
        while left and (piece := self._pickles.read(min(size, left))):
            left -= len(piece)
            yield piece


@contextlib.contextmanager
def opened_snapshot(
    path: Path, key: bytes, *, trust: bool, max_bytes: int, folder: Path
) -> Iterator[OpenedSnapshot]:
    """Open a snapshot if it may be loaded.

    Args:
        trust: Load it whoever has written it.
        folder: Where a copy is kept meanwhile, out of reach of code.

    Raises:
        SessionError: It is not there, is no snapshot or incomplete, is larger than `max_bytes`,
            or cannot be trusted.
    """
    try:
        with _opened(path, trust=trust) as source, tempfile.TemporaryFile(dir=folder) as copy:
            size = os.fstat(source.fileno()).st_size
            if size > max_bytes + _MAX_HEADER_BYTES:
                raise SessionError(
                    f"{path} has {size:,} bytes, and the limit is {max_bytes:,}. Nothing was"
                    " loaded; allow more with max_bytes."
                )
            seal = _copy_what_is_sealed(source, copy, path, key)
            if not trust and not seal:
                raise SessionError(
                    f"{path} was not written by you on this machine, or was changed since. Loading"
                    " it would run code that is in it, so nothing was loaded. If you know where it"
                    " comes from, say that you trust it (--trust, or trust=True)."
                )
            copy.seek(0)
            header = _read_header(copy, path)
            if copy.tell() + header.size != os.fstat(copy.fileno()).st_size:
                raise _no_snapshot(path, "it is incomplete")
            yield OpenedSnapshot(header, copy)
    except FileNotFoundError as error:
        raise SessionError(
            f"There are no saved variables: {path} does not exist. A snapshot saves them"
            " (/snapshot in a chat)."
        ) from error
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {error.strerror or error}.") from error


def _opened(path: Path, *, trust: bool) -> IO[bytes]:
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    file = open(os.open(path, flags), "rb")  # noqa: SIM115  closed by the caller
    found = os.fstat(file.fileno())
    problem = ""
    if not stat.S_ISREG(found.st_mode):
        problem = "it is no regular file"
    elif os.name == "posix" and not trust:
        if found.st_uid != os.geteuid():
            problem = "it belongs to another user"
        elif found.st_mode & 0o022:
            problem = "other users may write to it"
    if problem:
        file.close()
        raise SessionError(
            f"{path} is not loaded, because {problem}. If you know where it comes from, copy it,"
            " and say that you trust it (--trust, or trust=True)."
        )
    return file


def _copy_what_is_sealed(source: IO[bytes], copy: IO[bytes], path: Path, key: bytes) -> bool:
    """Copy header and pickles; return whether they are as the owner of the key wrote them."""
    if source.readline(len(_MAGIC)) != _MAGIC:
        raise _no_snapshot(path, "it does not begin like one")
    written = source.read(_SEAL_BYTES + 1)
    seal = hmac.new(key, digestmod=hashlib.sha256)
    while piece := source.read(_PIECE_BYTES):
        seal.update(piece)
        copy.write(piece)
    return hmac.compare_digest(seal.hexdigest().encode() + b"\n", written)


def _read_header(copy: IO[bytes], path: Path) -> SnapshotHeader:
    try:
        return SnapshotHeader.from_json(copy.readline(_MAX_HEADER_BYTES))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _no_snapshot(path, "its first lines make no sense") from error


def _no_snapshot(path: Path, why: str) -> SessionError:
    return SessionError(
        f"{path} is no snapshot of variables that can be read here: {why}. Nothing was loaded."
    )
