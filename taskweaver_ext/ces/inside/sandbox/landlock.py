"""Landlock: a process gives up files, ports and other processes, without any privilege.

What counts is where a file lies, not what it is called: links lead nowhere.
A process that has given up something can neither trace nor look into one that
has not (`/proc/PID/environ`, `mem`, `fd`, `root`).
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable

from .system_calls import call

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = ((1 << 15) - 1) & ~(_MAKE_CHAR | _MAKE_BLOCK)
USE_DEVICE = READ_FILE | READ_DIR | WRITE_FILE | _TRUNCATE | _IOCTL_DEV

_FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP_AND_CONNECT_TCP = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3
_ASK_FOR_VERSION = 1
_PATH_BENEATH = 1


def version() -> int:
    """Which version of Landlock this machine has; 0 for none.

    2 lets files move between folders, 3 keeps them from being truncated, 4 knows TCP,
    5 devices, 6 signals and abstract sockets.
    """
    try:
        return call("landlock_create_ruleset", None, 0, _ASK_FOR_VERSION)
    except OSError:
        return 0


def restrict_files_and_network(allowed: Iterable[tuple[str, int]]) -> None:
    """Give up all files but these (a path and what may be done beneath it), TCP, and signals."""
    handled = _rights_known(version())
    rules = _create(handled, _BIND_TCP_AND_CONNECT_TCP, _ABSTRACT_SOCKETS_AND_SIGNALS)
    for path, rights in allowed:
        _allow(rules, path, rights & handled)
    _apply(rules)


def restrict_processes() -> None:
    """Give up tracing and signalling what is outside; files and network stay as they are."""
    if version() >= 6:
        _apply(_create(0, 0, _ABSTRACT_SOCKETS_AND_SIGNALS & ~1))
        return
    rules = _create(_REFER if version() >= 2 else _MAKE_BLOCK, 0, 0)
    _allow(rules, "/", _REFER if version() >= 2 else _MAKE_BLOCK)
    _apply(rules)


def _rights_known(abi: int) -> int:
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1


def _create(files: int, network: int, scopes: int) -> int:
    abi = version()
    fields = [files, network if abi >= 4 else 0, scopes if abi >= 6 else 0]
    count = 1 if abi < 4 else 2 if abi < 6 else 3
    attributes = struct.pack(f"={count}Q", *fields[:count])
    return call("landlock_create_ruleset", attributes, len(attributes), 0)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # there is nothing that could be allowed
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FOR_FILES
        if rights:
            beneath = struct.pack("=Qi", rights, descriptor)
            call("landlock_add_rule", rules, _PATH_BENEATH, beneath, 0)
    finally:
        os.close(descriptor)


def _apply(rules: int) -> None:
    try:
        call("landlock_restrict_self", rules, 0)
    finally:
        os.close(rules)
