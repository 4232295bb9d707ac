"""Make system calls that Python has no function for; their numbers, for the machines we know."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

MACHINE = {"amd64": "x86_64"}.get(platform.machine(), platform.machine())
if sys.platform != "linux":
    MACHINE = sys.platform  # whose calls have other numbers

_NUMBERS = """
    open 2 - | creat 85 - | mknod 133 - | openat 257 56 | mknodat 259 33 | openat2 437 437
    ioctl 16 29 | shmget 29 194 | shmat 30 196 | shmctl 31 195 | socket 41 198 | connect 42 203
    socketpair 53 199 | clone 56 220 | semget 64 190 | semop 65 193 | semctl 66 191 | shmdt 67 197
    msgget 68 186 | msgsnd 69 189 | msgrcv 70 188 | msgctl 71 187 | chmod 90 - | fchmod 91 52
    chown 92 - | fchown 93 55 | lchown 94 - | ptrace 101 117 | syslog 103 116 | capget 125 90
    capset 126 91 | utime 132 - | uselib 134 - | personality 135 92 | setpriority 141 140
    sched_setparam 142 118 | sched_setscheduler 144 119 | vhangup 153 58 | modify_ldt 154 -
    pivot_root 155 41 | adjtimex 159 171 | setrlimit 160 164 | chroot 161 51 | acct 163 89
    settimeofday 164 170 | mount 165 40 | umount2 166 39 | swapon 167 224 | swapoff 168 225
    reboot 169 142 | sethostname 170 161 | setdomainname 171 162 | iopl 172 - | ioperm 173 -
    init_module 175 105 | delete_module 176 106 | inotify_add_watch 254 27
    quotactl 179 60 | setxattr 188 5 | lsetxattr 189 6 | fsetxattr 190 7 | removexattr 197 14
    lremovexattr 198 15 | fremovexattr 199 16 | sched_setaffinity 203 122 | semtimedop 220 192
    clock_settime 227 112 | utimes 235 - | mq_open 240 180 | mq_unlink 241 181 | kexec_load 246 104
    add_key 248 217 | request_key 249 218 | keyctl 250 219 | ioprio_set 251 30
    migrate_pages 256 238 | fchownat 260 54 | futimesat 261 - | fchmodat 268 53 | unshare 272 97
    move_pages 279 239 | utimensat 280 88 | perf_event_open 298 241 | fanotify_init 300 262
    prlimit64 302 261 | name_to_handle_at 303 264 | open_by_handle_at 304 265
    clock_adjtime 305 266 | setns 308 268 | process_vm_readv 310 270 | process_vm_writev 311 271
    kcmp 312 272 | finit_module 313 273 | sched_setattr 314 274 | seccomp 317 277
    kexec_file_load 320 294 | bpf 321 280 | userfaultfd 323 282 | io_uring_setup 425 425
    io_uring_enter 426 426 | io_uring_register 427 427 | open_tree 428 428 | move_mount 429 429
    fsopen 430 430 | fsconfig 431 431 | fsmount 432 432 | fspick 433 433 | clone3 435 435
    close_range 436 436 | pidfd_getfd 438 438 | process_madvise 440 440 | mount_setattr 442 442
    quotactl_fd 443 443 | landlock_create_ruleset 444 444 | landlock_add_rule 445 445
    landlock_restrict_self 446 446 | memfd_secret 447 447 | process_mrelease 448 448
    fchmodat2 452 452 | statmount 457 457 | listmount 458 458 | lsm_set_self_attr 460 460
    setxattrat 463 463 | removexattrat 466 466 | open_tree_attr 467 467 | file_setattr 469 469
"""
"""Each name with its number on x86_64 and on aarch64, which never had some of the oldest."""

HIGHEST_KNOWN = 469
"""The last call that has been thought about (Linux 6.18): a newer one may do anything."""

_libc = ctypes.CDLL(None, use_errno=True)
if sys.platform == "linux":
    _libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def _numbers(machine: str) -> dict[str, int]:
    column = {"x86_64": 1, "aarch64": 2}.get(machine)
    if column is None:
        return {}
    words = _NUMBERS.replace("|", " ").split()
    rows = (words[start : start + 3] for start in range(0, len(words), 3))
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


NUMBERS = {machine: _numbers(machine) for machine in ("x86_64", "aarch64")}


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call; raises OSError when it fails, or when the machine is not known."""
    number = NUMBERS.get(MACHINE, {}).get(name)
    if number is None:
        raise OSError(f"the number of {name} on {MACHINE} is not known")
    return _checked(_libc.syscall(number, *map(_word, arguments)), name)


def prctl(option: int, *arguments: int) -> int:
    """Change or ask something about this process; raises OSError."""
    return _checked(_libc.prctl(option, *[*arguments, 0, 0, 0, 0][:4]), "prctl")


def _word(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
