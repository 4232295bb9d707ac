"""A filter for system calls, for what Landlock knows nothing of.

The filter is a small program that the kernel runs for each call that is not
always allowed. It sees numbers only, no paths and no addresses. So what must
be told apart by them (sockets, modes of files) is refused altogether where
there is no private view of the file system in which all of it is harmless.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import struct
from collections.abc import Iterable, Mapping, Sequence

from .system_calls import HIGHEST_KNOWN, MACHINE, NUMBERS, call

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_FILTER = 1
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FIRST_OF_X32 = 0x40000000
"""On x86_64 the same calls exist a second time, above this number."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_GREATER, _IF_ANY_BIT = 0x15, 0x25, 0x45
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _KIND_OF_SOCKET = 1, 1, 5, 0xF
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW*: user, mount, pid, network, IPC, UTS, cgroup, time
_CHILD_OF_THE_PARENT = 0x8000
_TIME_OF_REAL_TIME_PROCESSES = 15
"""The limit by which processes are known to those who end them; no program needs it."""
_AS_ANOTHER_USER = 0o6000
"""The bits of a mode that let whoever runs a file have the rights of its owner or group."""
_MAKES_A_FILE = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_MODE_OF_NEW_FILES = {"creat": 1, "mknod": 1, "mknodat": 2}
_NEW_MODE = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""Calls, and which of their arguments is the mode."""
_PERSONALITIES = (0, 0xFFFFFFFF)  # Linux, and the question which one it is
_IOCTLS = (
    *(0x5412, 0x541C, 0x5423),  # TIOCSTI, TIOCLINUX, TIOCSETD: type for the user of a terminal
    *(0x40086602, 0x401C5820, 0x40087602),  # flags, attributes and version of a file
    *(0x40806685, 0x800C6613),  # seal or encrypt a file
)

_OTHER_PROCESSES = "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd"

REFUSED = f"""
    {_OTHER_PROCESSES} process_mrelease migrate_pages move_pages
    add_key request_key keyctl bpf perf_event_open userfaultfd fanotify_init
    mount umount2 pivot_root chroot mount_setattr move_mount open_tree open_tree_attr fsopen
    fsconfig fsmount fspick statmount listmount setns open_by_handle_at name_to_handle_at
    kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct
    syslog quotactl quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname
    setdomainname iopl ioperm vhangup modify_ldt uselib lsm_set_self_attr file_setattr
    shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
    mq_open mq_unlink chown fchown lchown fchownat
"""
ABSENT = "io_uring_setup io_uring_enter io_uring_register clone3 openat2 memfd_secret"
"""As if the kernel were too old for them: libraries then do without."""
ATTRIBUTES = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
MODES_AND_TIMES = "chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat"
_OF_ONESELF: dict[str, dict[int, tuple[int, ...]]] = {
    "setpriority": {0: (0, 1), 1: (0,)},  # a process or a group, not all that a user has
    "ioprio_set": {0: (1, 2), 1: (0,)},
}
"""What may be changed of oneself only: which arguments say so, by their place."""
_SCHEDULING = "sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
"""The same, for the thread that calls; of others it is said to be done, though it is not. Threads
call themselves by their numbers here, and ZeroMQ ends a process in which that fails."""


def prepare() -> None:
    """Make the programs once for all processes that are forked from this one."""
    if MACHINE in NUMBERS:
        for has_private_view in (False, True):
            sandbox_filter(MACHINE, has_private_view=has_private_view)


def restrict(*, has_private_view: bool) -> None:
    """Refuse what leads out of a sandbox."""
    _apply(sandbox_filter(MACHINE, has_private_view=has_private_view))


def restrict_processes() -> None:
    """Refuse what leads into other processes."""
    _apply(guard_filter(MACHINE))


@functools.cache
def sandbox_filter(machine: str, *, has_private_view: bool) -> bytes:
    """The program for a sandbox."""
    filter_ = _Filter(machine)
    filter_.refuse(REFUSED.split(), errno.EPERM)
    filter_.refuse(ABSENT.split(), errno.ENOSYS)
    filter_.refuse(ATTRIBUTES.split(), errno.ENOTSUP)
    filter_.refuse_bits("unshare", 0, _NEW_NAMESPACES)
    filter_.refuse_bits("clone", 0, _NEW_NAMESPACES | _CHILD_OF_THE_PARENT)
    for name, arguments in _OF_ONESELF.items():
        filter_.refuse_unless(name, arguments)
    for name in _SCHEDULING.split():
        filter_.refuse_unless(name, {0: (0,)}, 0)
    filter_.refuse_unless("personality", {0: _PERSONALITIES})
    filter_.refuse_if("ioctl", 1, _IOCTLS)
    filter_.refuse_if("setrlimit", 0, [_TIME_OF_REAL_TIME_PROCESSES])
    filter_.keep_limit("prlimit64", _TIME_OF_REAL_TIME_PROCESSES)
    for name, mode in _MODE_OF_NEW_FILES.items():
        filter_.refuse_bits(name, mode, _AS_ANOTHER_USER)
    for name, flags in {"open": 1, "openat": 2}.items():
        filter_.refuse_bits(name, flags + 1, _AS_ANOTHER_USER, unless_without=_MAKES_A_FILE)
    for name in ("socket", "socketpair"):
        filter_.allow_sockets(name, connected_only=not has_private_view)
    if has_private_view:
        for name, mode in _NEW_MODE.items():
            filter_.refuse_bits(name, mode, _AS_ANOTHER_USER)
    else:
        filter_.refuse(["connect", "inotify_add_watch"], errno.EACCES)
        # It cannot be seen whose file it is. Most programs that copy files would fail here, and
        # do well without: they are told that it was done.
        filter_.refuse(MODES_AND_TIMES.split(), 0)
    return filter_.assembled()


def guard_filter(machine: str) -> bytes:
    """The program that protects other processes only."""
    filter_ = _Filter(machine)
    filter_.refuse(_OTHER_PROCESSES.split(), errno.EPERM)
    filter_.refuse_unless("prlimit64", {0: (0,)})
    return filter_.assembled()


class _Filter:
    """Rules about calls, one after the other; what none of them matches is allowed."""

    def __init__(self, machine: str) -> None:
        self._numbers = NUMBERS[machine]
        self._code = [
            (_LOAD, 0, 0, _ARCHITECTURE_AT),
            (_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]),
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),  # programs for another machine
            (_LOAD, 0, 0, _NUMBER_AT),
            (_IF_GREATER, 0, 1, HIGHEST_KNOWN),  # those of x32 are greater still
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        ]

    def refuse(self, names: Iterable[str], error: int) -> None:
        """Fail whatever the arguments are; 0 says that it was done."""
        for name in names:
            self._add(name, [(_RETURN, 0, 0, _ERRNO | error)])

    def refuse_bits(
        self, name: str, argument: int, bits: int, *, unless_without: int | None = None
    ) -> None:
        """Fail if an argument has any of these bits.

        Args:
            unless_without: The argument means nothing if the one before has none of these.
        """
        code = [self._load(argument), (_IF_ANY_BIT, 0, 1, bits), *_EPERM, *_ALLOWED]
        if unless_without is not None:
            needed = [self._load(argument - 1), (_IF_ANY_BIT, 1, 0, unless_without), *_ALLOWED]
            code = [*needed, *code]
        self._add(name, code)

    def refuse_if(self, name: str, argument: int, values: Iterable[int]) -> None:
        """Fail if an argument is one of these."""
        tests = [step for value in values for step in ((_IF_EQUAL, 0, 1, value), *_EPERM)]
        self._add(name, [self._load(argument), *tests, *_ALLOWED])

    def refuse_unless(
        self, name: str, arguments: Mapping[int, Sequence[int]], error: int = errno.EPERM
    ) -> None:
        """Fail if one of the arguments is not what it may be."""
        code = []
        for argument, values in arguments.items():
            code.append(self._load(argument))
            for position, value in enumerate(values):
                behind_the_refusal = len(values) - position
                code.append((_IF_EQUAL, behind_the_refusal, 0, value))
            code.append((_RETURN, 0, 0, _ERRNO | error))
        self._add(name, [*code, *_ALLOWED])

    def keep_limit(self, name: str, limit: int) -> None:
        """Fail for other processes, and if this limit is to be changed, not just read."""
        code = [self._load(0), (_IF_EQUAL, 1, 0, 0), *_EPERM]
        code += [self._load(1), (_IF_EQUAL, 1, 0, limit), *_ALLOWED]
        for half in (0, 4):  # of the address where the new one is
            code += [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * 2 + half), (_IF_EQUAL, 1, 0, 0), *_EPERM]
        self._add(name, [*code, *_ALLOWED])

    def allow_sockets(self, name: str, *, connected_only: bool) -> None:
        """Fail for all families but Unix's, and for datagrams, which need not connect to send."""
        refused = (_RETURN, 0, 0, _ERRNO | errno.EACCES)
        code = [self._load(0), (_IF_EQUAL, 1, 0, _AF_UNIX), refused]
        if connected_only:
            code += [self._load(1), (_AND, 0, 0, _KIND_OF_SOCKET)]
            code += [(_IF_EQUAL, 2, 0, _SOCK_STREAM), (_IF_EQUAL, 1, 0, _SOCK_SEQPACKET), refused]
        self._add(name, [*code, *_ALLOWED])

    def assembled(self) -> bytes:
        """The program as the kernel reads it."""
        return b"".join(struct.pack("=HBBI", *step) for step in [*self._code, *_ALLOWED])

    def _add(self, name: str, code: list[tuple[int, int, int, int]]) -> None:
        """Let a call be decided by code, which returns; it may load something else."""
        number = self._numbers.get(name)
        if number is not None:
            self._code += [(_IF_EQUAL, 0, len(code), number), *code]

    def _load(self, argument: int) -> tuple[int, int, int, int]:
        """The lower half: all that is looked at is an `int` for the kernel."""
        return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)


_EPERM = ((_RETURN, 0, 0, _ERRNO | errno.EPERM),)
_ALLOWED = ((_RETURN, 0, 0, _ALLOW),)


def _apply(program: bytes) -> None:
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    call("seccomp", _SET_FILTER, 0, header)
