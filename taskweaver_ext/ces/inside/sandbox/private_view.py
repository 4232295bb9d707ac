"""A file system of its own for a process: what it may not read does not exist there.

Landlock keeps files from being read and written, but not sockets from being
connected to, nor modes and times from being changed; and shared memory,
terminals and `/tmp` are everyone's. Here they are the process's own, and all
that lies outside is missing or cannot be changed. There is no network either.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct

from .rules import Rules
from .system_calls import call

TEMPORARY, SHARED_MEMORY, TERMINALS = "/tmp", "/dev/shm", "/dev/pts"
ETC, _PROC = "/etc", "/proc"

_NEW_USER_MOUNTS_IPC_AND_NETWORK = 0x10000000 | 0x00020000 | 0x08000000 | 0x40000000
_CLONE_TREE = 1 | os.O_CLOEXEC | 0x8000  # with all that is mounted beneath
_FROM_DESCRIPTOR = 4
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_READ_ONLY, _NO_SETUID = 1, 2
_PRIVATE, _NO_SETUID_NO_DEVICES, _NO_SETUID_NO_EXECUTION = 0x44000, 2 | 4, 2 | 8
_DETACH = 2
_SIZE_OF_ATTRIBUTES = 32
_HERE = -100
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": "pts/ptmx",
}
_DEFAULT_BYTES = 2 << 30
"""How much fits into the two folders that are kept in memory, unless there is a limit for it."""
_LARGEST_COPY = 64 << 10
"""A small file of `/etc` is copied: a mount takes longer, and there are many."""
_ALL_MAY_READ = 0o004


def enter(rules: Rules, devices: tuple[str, ...]) -> list[str]:
    """Leave the file system that everyone sees; raises OSError where that is not allowed.

    Returns the places that are there to be read, but for what is there of processes.
    """
    folder = os.getcwd()
    view = _View()
    for path in (*rules.readable, _PROC):
        view.show(path, is_writable=False)
    for path in (rules.working_folder, rules.temporary_folder, *rules.writable, *devices):
        view.show(path, is_writable=True)
    _unshare()
    places = view.needed_places()
    trees = [(path, view.clone_tree(path)) for path in places]
    root = os.path.realpath(rules.temporary_folder)  # any folder would do: all is in `trees`
    _mount("tmpfs", root, _NO_SETUID_NO_DEVICES, "mode=0755,size=8m")
    _Root(root).furnish(view, trees, (rules.memory_bytes or _DEFAULT_BYTES) // 2)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)
    call("mount_setattr", _HERE, b"/", 0, _attributes(_READ_ONLY), _SIZE_OF_ATTRIBUTES)
    os.chdir(folder)
    shown = [path for path in places if path != _PROC and not view.places[path]]
    return [*shown, ETC]


class _View:
    """What is to be seen, under which names."""

    def __init__(self) -> None:
        self.places: dict[str, bool] = {}
        """Real path -> whether it may be written there."""
        self.copies: dict[str, bytes] = {}
        """Real path -> content, of small files."""
        self.links: dict[str, str] = {}
        self._found = {"/": ("/", os.stat("/"))}
        """Path -> its real path, and what lies there."""

    def show(self, path: str, *, is_writable: bool) -> None:
        """Add a place if it exists, and the links on the way to it."""
        with contextlib.suppress(OSError):  # it may be gone at any moment
            real, found = self._find(os.path.normpath(path))
            if not is_writable and real.startswith(ETC + "/") and _can_be_copied(found):
                self.copies[real] = _read(real)
            else:
                self.places[real] = is_writable

    def _find(self, path: str) -> tuple[str, os.stat_result]:
        if path not in self._found:
            folder, _, name = path.rpartition("/")
            real = f"{self._find(folder or '/')[0].rstrip('/')}/{name}"
            found = os.lstat(real)
            if stat.S_ISLNK(found.st_mode):
                target = os.stat(real)
                self.links[real], real, found = os.readlink(real), os.path.realpath(real), target
            self._found[path] = real, found
        return self._found[path]

    def needed_places(self) -> list[str]:
        """Those that are not part of another one already, outer ones first."""
        needed: list[str] = []
        for path in sorted(self.places):
            around = [outer for outer in needed if path.startswith(outer + "/")]
            if not around:
                needed.append(path)
            elif self.places[around[-1]] != self.places[path]:
                needed += [*self._folders_between(around[-1], path), path]
        return needed

    def _folders_between(self, outer: str, path: str) -> list[str]:
        """Places as well: only they cannot be moved away, with what is protected in them."""
        between = []
        while (path := os.path.dirname(path)) != outer:
            self.places[path] = self.places[outer]
            between.append(path)
        return between[::-1]

    def clone_tree(self, path: str) -> int:
        """Take hold of what lies at a path."""
        tree = call("open_tree", _HERE, os.fsencode(path), _CLONE_TREE)
        attributes = _NO_SETUID if self.places[path] else _NO_SETUID | _READ_ONLY
        flags = _EMPTY_PATH | _RECURSIVE
        call("mount_setattr", tree, b"", flags, _attributes(attributes), _SIZE_OF_ATTRIBUTES)
        return tree


class _Root:
    """The file system that a view is made in."""

    def __init__(self, root: str) -> None:
        """Take an empty folder."""
        self._root = root
        self._folders = {"/"}

    def furnish(self, view: _View, trees: list[tuple[str, int]], bytes_in_memory: int) -> None:
        """Put there what is to be seen of the other one, and folders of its own."""
        temporary, shared_memory, terminals = map(
            self._make_folder, (TEMPORARY, SHARED_MEMORY, TERMINALS)
        )
        of_its_own = f"mode=1777,size={bytes_in_memory}"
        _mount("tmpfs", temporary, _NO_SETUID_NO_DEVICES, of_its_own)
        self._make_folder(ETC)
        for path, content in view.copies.items():
            self._make_folder(os.path.dirname(path))
            _write(self._root + path, content)
        for path, tree in trees:
            self._attach(tree, path)
        _mount("tmpfs", shared_memory, _NO_SETUID_NO_DEVICES, of_its_own)
        options = "newinstance,ptmxmode=0666,mode=0620"
        _mount("devpts", terminals, _NO_SETUID_NO_EXECUTION, options)
        for link, target in {**view.links, **_LINKS}.items():
            self._make_folder(os.path.dirname(link))
            with contextlib.suppress(FileExistsError):
                os.symlink(target, self._root + link)

    def _make_folder(self, path: str) -> str:
        if path not in self._folders:
            self._make_folder(os.path.dirname(path))
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._root + path)
            self._folders.add(path)
        return self._root + path

    def _attach(self, tree: int, path: str) -> None:
        """Put a tree where its name will be; a place within another one is there already."""
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            self._make_folder(path)
        elif not os.path.lexists(self._root + path):
            self._make_folder(os.path.dirname(path))
            _write(self._root + path, b"")
        target = os.fsencode(self._root + path)
        call("move_mount", tree, b"", _HERE, target, _FROM_DESCRIPTOR)
        os.close(tree)


def _unshare() -> None:
    user, group = os.geteuid(), os.getegid()
    call("unshare", _NEW_USER_MOUNTS_IPC_AND_NETWORK)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        _write(f"/proc/self/{name}", text.encode())
    call("mount", None, b"/", None, _PRIVATE, None)


def _mount(kind: str, path: str, flags: int, options: str) -> None:
    call("mount", kind.encode(), os.fsencode(path), kind.encode(), flags, options.encode())


def _attributes(to_set: int) -> bytes:
    return struct.pack("=4Q", to_set, 0, 0, 0)


def _can_be_copied(found: os.stat_result) -> bool:
    is_public = stat.S_ISREG(found.st_mode) and found.st_mode & _ALL_MAY_READ
    return bool(is_public and found.st_size <= _LARGEST_COPY)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _LARGEST_COPY)
    finally:
        os.close(descriptor)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
