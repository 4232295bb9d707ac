"""Give up, for good, all that a process does not need. Call it before there are threads.

Every step either holds or raises OSError: who asked for less decided that
before (`ces/sandbox/sandbox.py`).
"""

from __future__ import annotations

import errno
import os
import resource

from . import landlock, private_view, privileges, seccomp
from .rules import Rules
from .system_calls import MACHINE, NUMBERS, call

DEVICES = tuple(f"/dev/{name}" for name in "null zero full random urandom".split())

_OF_THE_SYSTEM = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "swaps", "sys", "uptime", "version"),
    "vmstat",
)
"""What may be read in `/proc` besides what is there about the process itself."""

_LAST_DESCRIPTOR = (1 << 32) - 1


def restrict(rules: Rules) -> None:
    """Leave to this process, and all that it starts, what the rules say."""
    _refuse_threads()
    _close_descriptors(rules.descriptors)
    for path in rules.group_files:
        with open(path, "w", encoding="utf-8") as file:
            file.write("0")
    readable = [*rules.readable]
    if rules.has_private_view:
        readable = private_view.enter(rules, DEVICES)
    _limit(rules)  # in a view of its own, a user's processes are counted anew
    privileges.give_up_new_privileges()
    privileges.give_up_capabilities()
    _restrict_files(rules, readable)
    seccomp.restrict(has_private_view=rules.has_private_view)


def guard() -> None:
    """Leave this process, and all that it starts, everything but other processes.

    As far as the machine can: what it cannot has been said (`ces/sandbox/sandbox.py`).
    """
    _refuse_threads()
    privileges.give_up_new_privileges()
    if MACHINE not in NUMBERS:
        return
    privileges.give_up_capabilities(privileges.LOOKING_INTO_PROCESSES)
    if landlock.version():
        landlock.restrict_processes()
    seccomp.restrict_processes()


def _refuse_threads() -> None:
    """Only the thread that asks is restricted; the others would stay free."""
    if len(os.listdir("/proc/self/task")) > 1:
        raise OSError(errno.EBUSY, "a process that has threads cannot be restricted")


def _restrict_files(rules: Rules, readable: list[str]) -> None:
    # Stays open: the kernel makes entries anew that nobody holds, and those are not allowed.
    os.open("/proc/self", os.O_PATH | os.O_CLOEXEC)
    read = [*readable, *(f"/proc/{name}" for name in _OF_THE_SYSTEM), "/proc/self"]
    write = [rules.working_folder, rules.temporary_folder, *rules.writable]
    use = [*DEVICES]
    if rules.has_private_view:
        write += [private_view.TEMPORARY, private_view.SHARED_MEMORY]
        use.append(private_view.TERMINALS)
    landlock.restrict_files_and_network(
        [
            *((path, landlock.READ) for path in read),
            *((path, landlock.WRITE) for path in write),
            *((path, landlock.USE_DEVICE) for path in use),
        ]
    )


def _close_descriptors(kept: tuple[int, ...]) -> None:
    """An open file is not looked at again: what was inherited would stay usable."""
    first = 3
    for descriptor in sorted(kept):
        if descriptor > first:
            call("close_range", first, descriptor - 1, 0)
        first = max(first, descriptor + 1)
    call("close_range", first, _LAST_DESCRIPTOR, 0)


def _limit(rules: Rules) -> None:
    """Never above what holds already."""
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, rules.memory_bytes),
        (resource.RLIMIT_NPROC, rules.process_count),
        (resource.RLIMIT_CPU, rules.cpu_seconds),
        (resource.RLIMIT_FSIZE, rules.file_bytes),
    ):
        hard = resource.getrlimit(kind)[1]
        if limit is not None and (hard == resource.RLIM_INFINITY or limit < hard):
            resource.setrlimit(kind, (limit, limit))
