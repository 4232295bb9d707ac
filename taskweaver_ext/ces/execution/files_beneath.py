"""Files beneath a folder, reached without trusting the code that named them or made them.

A path is walked from the folder downwards, one part at a time, through no symbolic
link, and only regular files are opened, listed or believed to be there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_PATH_LENGTH = 1024
MAX_LISTED_FILES = 10_000
MAX_LISTED_DEPTH = 32

# No control characters, no backslash (it separates on Windows), nothing that cannot be encoded.
_PATH_CHARACTERS = re.compile(r"[^\x00-\x1f\x7f\\\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The regular files beneath a folder at one moment."""

    files: Mapping[str, tuple[int, int]]
    """Path to time of the last change (nanoseconds) and size."""
    is_complete: bool
    """False when there were more than `MAX_LISTED_FILES`."""


def path_parts(path: str) -> tuple[str, ...] | None:
    """Split a path into its parts, or return None when it does not stay beneath its folder."""
    if not _PATH_CHARACTERS.fullmatch(path) or len(path) > MAX_PATH_LENGTH:
        return None
    has_drive = re.match("[A-Za-z]:", path)
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if path.endswith("/") or path.startswith("/") or has_drive or not parts or ".." in parts:
        return None
    return parts


def open_beneath(folder: Path, path: str) -> int:
    """Open a regular file beneath a folder for reading, and return its descriptor.

    Nothing can be exchanged between check and use: every part is opened
    relative to the one before it. On Windows, which cannot do that, the
    resolved path is compared, and a moment remains.

    Raises:
        FileNotFoundError: There is nothing at the path.
        OSError: What is there is a link, a folder or a device, or leads outside.
    """
    parts = path_parts(path)
    if parts is None:
        raise OSError(errno.EINVAL, "The path is not one beneath the folder", path)
    if os.open not in os.supports_dir_fd:
        return _open_resolved(folder.resolve(), parts)
    with opened_folder(folder, parts[:-1], path) as directory:
        # Looked at before opening, because opening a device can have effects of its own.
        _refuse_special(os.stat(parts[-1], dir_fd=directory, follow_symlinks=False), path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(parts[-1], flags, dir_fd=directory)
    return _only_regular(descriptor, path)


def regular_file_beneath(folder: Path, path: str) -> Path | None:
    """Give the place of a regular file beneath a folder, whether it may be read or not; else None.

    The path may be absolute, and have `..` in it, as long as it stays beneath the folder.
    """
    root = folder.resolve()
    try:
        parts = Path(os.path.normpath(root / path)).relative_to(root).parts
        with opened_folder(root, parts[:-1], path) as directory:
            found = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
    except (ValueError, OSError, IndexError):  # it is elsewhere, not there, or the folder itself
        return None
    return root.joinpath(*parts) if stat.S_ISREG(found.st_mode) else None


def list_files(folder: Path) -> FolderListing:
    """List the regular files beneath a folder, following no links."""
    files: dict[str, tuple[int, int]] = {}
    for path, status in _walk(folder):
        if len(files) == MAX_LISTED_FILES:
            return FolderListing(files, is_complete=False)
        files[path] = (status.st_mtime_ns, status.st_size)
    return FolderListing(files, is_complete=True)


@contextlib.contextmanager
def opened_folder(folder: Path, parts: Sequence[str], path: str = "") -> Iterator[int]:
    """Open the folder that these parts lead to, each relative to the one before it.

    Raises:
        OSError: One of them is not there, no folder, or a link; then it names `path`.
    """
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts:
            _refuse_link(os.stat(part, dir_fd=directory, follow_symlinks=False), path)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            below = os.open(part, flags, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory
    finally:
        os.close(directory)


def _refuse_link(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "The path leads through a symbolic link", path)


def _refuse_special(status: os.stat_result, path: str) -> None:
    _refuse_link(status, path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "There is no regular file at the path", path)


def _only_regular(descriptor: int, path: str) -> int:
    try:
        _refuse_special(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open_resolved(root: Path, parts: Sequence[str]) -> int:
    path = root.joinpath(*parts)
    if path.resolve() != path:
        raise OSError(errno.ELOOP, "The path leads through a link", str(path))
    _refuse_special(os.stat(path), str(path))
    return _only_regular(os.open(path, os.O_RDONLY), str(path))


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    if os.scandir not in os.supports_fd:
        return
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    yield from _walk_opened(root, "", MAX_LISTED_DEPTH)


def _walk_opened(directory: int, prefix: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of an opened folder, and close it."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and depth > 0:
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                        below = os.open(entry.name, flags, dir_fd=directory)
                    else:
                        below = None
                except OSError:
                    continue  # gone meanwhile, or not ours to read
                if below is not None:
                    yield from _walk_opened(below, f"{prefix}{entry.name}/", depth - 1)
                elif stat.S_ISREG(status.st_mode):
                    yield prefix + entry.name, status
    finally:
        os.close(directory)
