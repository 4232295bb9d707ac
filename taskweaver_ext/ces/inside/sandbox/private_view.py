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


def enter(rules: Rules, devices: tuple[str, ...]) -> None:
    """Leave the file system that everyone sees; raises OSError where that is not allowed."""
    folder = os.getcwd()
    view = _View()
    for path in (*rules.readable, "/proc"):
        view.show(path, is_writable=False)
    for path in (rules.working_folder, rules.temporary_folder, *rules.writable, *devices):
        view.show(path, is_writable=True)
    _unshare()
    trees = [(path, view.clone_tree(path)) for path in view.needed_places()]
    root = os.path.realpath(rules.temporary_folder)  # any folder would do: all is in `trees`
    _mount("tmpfs", root, _NO_SETUID_NO_DEVICES, "mode=0755,size=1m")
    _furnish(root, trees, (rules.memory_bytes or _DEFAULT_BYTES) // 2)
    for link, target in {**view.links, **_LINKS}.items():
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.dirname(root + link), exist_ok=True)
            os.symlink(target, root + link)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)
    call("mount_setattr", _HERE, b"/", 0, _attributes(_READ_ONLY), _SIZE_OF_ATTRIBUTES)
    os.chdir(folder)


def _furnish(root: str, trees: list[tuple[str, int]], bytes_in_memory: int) -> None:
    """Put into an empty file system what is to be seen of the other, and folders of its own."""
    for path in (TEMPORARY, SHARED_MEMORY, TERMINALS):
        os.makedirs(root + path)
    of_its_own = f"mode=1777,size={bytes_in_memory}"
    _mount("tmpfs", root + TEMPORARY, _NO_SETUID_NO_DEVICES, of_its_own)
    for path, tree in trees:
        _attach(tree, root + path)
    _mount("tmpfs", root + SHARED_MEMORY, _NO_SETUID_NO_DEVICES, of_its_own)
    terminals = "newinstance,ptmxmode=0666,mode=0620"
    _mount("devpts", root + TERMINALS, _NO_SETUID_NO_EXECUTION, terminals)


class _View:
    """What is to be seen, under which names."""

    def __init__(self) -> None:
        self.places: dict[str, bool] = {}
        """Real path -> whether it may be written there."""
        self.links: dict[str, str] = {}
        self._real = {"/": "/"}

    def show(self, path: str, *, is_writable: bool) -> None:
        """Add a place that exists, and the links on the way to it."""
        if os.path.exists(path):
            self.places[self._resolve(os.path.normpath(path))] = is_writable

    def _resolve(self, path: str) -> str:
        if path not in self._real:
            folder, name = os.path.split(path)
            real = os.path.join(self._resolve(folder), name)
            if os.path.islink(real):
                self.links[real] = os.readlink(real)
                real = os.path.realpath(real)
            self._real[path] = real
        return self._real[path]

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


def _unshare() -> None:
    user, group = os.geteuid(), os.getegid()
    call("unshare", _NEW_USER_MOUNTS_IPC_AND_NETWORK)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    call("mount", None, b"/", None, _PRIVATE, None)


def _mount(kind: str, path: str, flags: int, options: str) -> None:
    call("mount", kind.encode(), os.fsencode(path), kind.encode(), flags, options.encode())


def _attributes(to_set: int) -> bytes:
    return struct.pack("=4Q", to_set, 0, 0, 0)


def _attach(tree: int, path: str) -> None:
    """Put a tree where its name will be; a place within another one is there already."""
    if not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    call("move_mount", tree, b"", _HERE, os.fsencode(path), _FROM_DESCRIPTOR)
    os.close(tree)
