"""Ways out of a sandbox, tried one after the other; a script that needs nothing but Python 3.9.

    python escape_attempts.py WORLD

The world is a JSON object that says what there is outside (`escape_victim.py`, `sandboxes.py`).
Each attempt runs in a process of its own: it returns if it did what it must not, and raises
otherwise. What came of each is printed as a JSON object: "done", or why not.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import pty
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

SECRET = b"the-secret-of-others"
W: dict[str, Any] = {}
libc = ctypes.CDLL(None, use_errno=True)
IS_X86 = os.uname().machine == "x86_64"

ATTEMPTS: dict[str, Callable[[], None]] = {}
NEEDS: dict[str, str] = {}


def attempt(needs: str = "") -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Add an attempt.

    Args:
        needs: Where it works without a sandbox: "" everywhere, "host" outside of containers,
            "root" as root outside of containers, "luck" on some machines.
    """

    def add(function: Callable[[], None]) -> Callable[[], None]:
        ATTEMPTS[function.__name__] = function
        NEEDS[function.__name__] = needs
        return function

    return add


def call(x86: int, arm: int, *arguments: object) -> int:
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(libc.syscall(x86 if IS_X86 else arm, *words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def expect(condition: object) -> None:
    if not condition:
        raise PermissionError("it had no effect")


def expect_secret(content: bytes) -> None:
    expect(SECRET in content)


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def outside(name: str) -> str:
    return os.path.join(W["outside"], name)


# Files


@attempt()
def read_a_file() -> None:
    expect_secret(read(outside("secret")))


@attempt()
def read_a_key_in_the_home() -> None:
    expect_secret(read(outside("home/.ssh/id_ed25519")))


@attempt()
def read_the_settings_of_a_project() -> None:
    expect_secret(read(outside("home/taskweaver_config.json")))


@attempt()
def add_to_what_a_login_runs() -> None:
    with open(outside("home/.bashrc"), "a") as file:
        file.write("echo")


@attempt()
def read_through_a_symbolic_link() -> None:
    os.symlink(outside("secret"), "link")
    expect_secret(read("link"))


@attempt()
def read_through_a_link_to_a_folder() -> None:
    os.symlink(W["outside"], "folder_link")
    expect_secret(read("folder_link/secret"))


@attempt("host")
def read_through_a_hard_link() -> None:
    os.link(outside("secret"), "hard_link")
    expect_secret(read("hard_link"))


@attempt()
def read_by_climbing_up() -> None:
    up = "../" * 20
    expect_secret(read(up + outside("secret")))


@attempt()
def list_a_folder() -> None:
    expect("secret" in os.listdir(W["outside"]))


@attempt()
def list_by_descriptor() -> None:
    folder = os.open(W["outside"], os.O_PATH)
    inner = os.open("secret", os.O_RDONLY, dir_fd=folder)
    expect_secret(os.read(inner, 100))


@attempt()
def create_a_file() -> None:
    with open(outside("created"), "x"):
        pass


@attempt()
def overwrite_a_file() -> None:
    with open(outside("overwritten"), "r+b") as file:
        file.write(b"x")


@attempt()
def truncate_a_file() -> None:
    os.truncate(outside("truncated"), 0)
    expect(os.stat(outside("truncated")).st_size == 0)


@attempt()
def truncate_a_readable_file_by_opening() -> None:
    os.close(os.open(os.path.join(W["shared"], "truncated"), os.O_RDONLY | os.O_TRUNC))


@attempt()
def truncate_a_readable_file() -> None:
    os.truncate(os.path.join(W["shared"], "truncated"), 0)


@attempt("host")
def move_a_file_out() -> None:
    with open("moved", "w"):
        pass
    os.rename("moved", outside("moved"))


@attempt("host")
def move_a_file_in() -> None:
    os.rename(outside("to_move"), "moved_in")


@attempt("host")
def exchange_files() -> None:
    with open("mine", "w"):
        pass
    args = (-100, b"mine", -100, os.fsencode(outside("exchanged")), 2)
    call(316, 276, *args)


@attempt()
def remove_a_file() -> None:
    os.unlink(outside("removed"))


@attempt()
def make_a_folder() -> None:
    os.mkdir(outside("made"))


@attempt()
def make_a_link_outside() -> None:
    os.symlink("/", outside("made_link"))


@attempt()
def make_a_socket_outside() -> None:
    socket.socket(socket.AF_UNIX).bind(outside("made_socket"))


@attempt()
def change_a_mode() -> None:
    os.chmod(outside("mode"), 0o712)
    expect(os.stat(outside("mode")).st_mode & 0o777 == 0o712)


@attempt()
def change_a_mode_of_a_readable_file() -> None:
    with open(os.path.join(W["shared"], "mode")) as file:
        os.fchmod(file.fileno(), 0o712)
        expect(os.fstat(file.fileno()).st_mode & 0o777 == 0o712)


@attempt()
def change_times() -> None:
    os.utime(outside("mode"), (1, 1))
    expect(os.stat(outside("mode")).st_mtime == 1)


@attempt()
def change_times_of_a_readable_file() -> None:
    path = os.path.join(W["shared"], "mode")
    os.utime(path, (1, 1))
    expect(os.stat(path).st_mtime == 1)


@attempt("root")
def change_an_owner() -> None:
    os.chown(outside("mode"), 1, 1)
    expect(os.stat(outside("mode")).st_uid == 1)


@attempt("luck")
def set_an_attribute() -> None:
    os.setxattr(os.path.join(W["shared"], "mode"), "user.mark", b"1")


@attempt("luck")
def set_flags_of_a_readable_file() -> None:
    with open(os.path.join(W["shared"], "mode")) as file:
        flags = struct.unpack("l", fcntl.ioctl(file, 0x80086601, bytes(8)))[0]
        fcntl.ioctl(file, 0x40086602, struct.pack("l", flags ^ 0x80))  # FS_NOATIME_FL


@attempt()
def write_where_reading_is_allowed() -> None:
    with open(os.path.join(W["shared"], "created"), "x"):
        pass


@attempt("host")
def write_through_a_hard_link_of_a_readable_file() -> None:
    os.link(os.path.join(W["shared"], "overwritten"), "hard_link_of_shared")
    with open("hard_link_of_shared", "r+b") as file:
        file.write(b"x")


@attempt("host")
def move_a_readable_file() -> None:
    os.rename(os.path.join(W["shared"], "to_move"), "moved_from_shared")


@attempt()
def open_a_readable_file_again_for_writing() -> None:
    descriptor = os.open(os.path.join(W["shared"], "overwritten"), os.O_RDONLY)
    os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)


@attempt()
def watch_a_folder() -> None:
    notices = libc.inotify_init()
    expect(libc.inotify_add_watch(notices, os.fsencode(W["outside"]), 0xFFF) >= 0)


@attempt()
def use_an_inherited_descriptor() -> None:
    expect_secret(os.pread(W["inherited"], 100, 0))


@attempt("root")
def open_by_handle() -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    path = os.fsencode(outside("secret"))
    call(303, 264, -100, path, handle, ctypes.byref(mount), 0)
    folder = os.open("/", os.O_RDONLY)
    expect_secret(os.read(call(304, 265, folder, handle, os.O_RDONLY), 100))


@attempt("root")
def read_password_hashes() -> None:
    read("/etc/shadow")


@attempt("root")
def add_a_cron_job() -> None:
    os.open("/etc", os.O_WRONLY | os.O_TMPFILE)


@attempt("root")
def change_what_is_run_for_crashes() -> None:
    os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attempt("luck")
def reach_the_keys_of_the_kernel() -> None:
    os.open("/proc/sysrq-trigger", os.O_WRONLY)


@attempt("root")
def read_the_log_of_the_kernel() -> None:
    os.open("/dev/kmsg", os.O_RDONLY)


@attempt("luck")
def read_the_disk() -> None:
    os.open(W["disk"], os.O_RDONLY)


@attempt("root")
def make_a_device() -> None:
    os.mknod("device", 0o660 | 0o060000, os.makedev(254, 0))


@attempt("luck")
def leave_the_control_group() -> None:
    os.open(W["group"], os.O_WRONLY)


@attempt()
def read_shared_memory() -> None:
    expect_secret(read(W["shared_memory"]))


@attempt()
def attach_shared_memory() -> None:
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(W["segment"], None, 0o10000)
    expect(address not in (None, ctypes.c_void_p(-1).value))
    expect_secret(ctypes.string_at(address, len(SECRET)))


@attempt("luck")
def open_a_message_queue() -> None:
    name = f"taskweaver-{os.getpid()}".encode()
    call(240, 180, name, os.O_CREAT | os.O_RDWR, 0o600, None)
    call(241, 181, name)


# Other processes


@attempt()
def read_an_environment() -> None:
    expect_secret(read(f"/proc/{W['victim']}/environ"))


@attempt()
def read_an_environment_of_a_thread() -> None:
    expect_secret(read(f"/proc/{W['victim']}/task/{W['victim']}/environ"))


@attempt()
def read_a_command_line() -> None:
    expect_secret(read(f"/proc/{W['victim']}/cmdline"))


@attempt()
def read_a_state() -> None:
    read(f"/proc/{W['victim']}/status")


@attempt()
def read_a_memory_map() -> None:
    expect(read(f"/proc/{W['victim']}/maps"))


@attempt()
def read_memory_by_file() -> None:
    with open(f"/proc/{W['victim']}/mem", "rb", buffering=0) as file:
        file.seek(W["address"])
        expect_secret(file.read(len(SECRET)))


@attempt()
def write_memory_by_file() -> None:
    os.open(f"/proc/{W['victim']}/mem", os.O_RDWR)


@attempt()
def read_through_the_root_of_another() -> None:
    expect_secret(read(f"/proc/{W['victim']}/root{outside('secret')}"))


@attempt()
def read_through_the_folder_of_another() -> None:
    expect_secret(read(f"/proc/{W['victim']}/cwd/secret"))


@attempt()
def read_through_a_descriptor_of_another() -> None:
    expect_secret(read(f"/proc/{W['victim']}/fd/{W['descriptor']}"))


@attempt()
def trace() -> None:
    call(101, 117, 16, W["victim"], 0, 0)  # PTRACE_ATTACH
    os.waitpid(W["victim"], 0x40000000)
    call(101, 117, 17, W["victim"], 0, 0)


@attempt()
def seize() -> None:
    call(101, 117, 0x4206, W["victim"], 0, 0)  # PTRACE_SEIZE


@attempt("host")
def read_memory() -> None:
    _memory_call(310, 270)


def _memory_call(x86: int, arm: int) -> None:
    buffer = ctypes.create_string_buffer(len(SECRET))
    local = struct.pack("PN", ctypes.addressof(buffer), len(SECRET))
    remote = struct.pack("PN", W["address"], len(SECRET))
    call(x86, arm, W["victim"], local, 1, remote, 1, 0)
    expect_secret(buffer.raw)


@attempt("host")
def write_memory() -> None:
    buffer = ctypes.create_string_buffer(SECRET)
    local = struct.pack("PN", ctypes.addressof(buffer), 1)
    call(311, 271, W["victim"], local, 1, struct.pack("PN", W["address"], 1), 1, 0)


@attempt("host")
def take_a_descriptor() -> None:
    process = call(434, 434, W["victim"], 0)
    expect_secret(os.pread(call(438, 438, process, W["descriptor"], 0), 100, 0))


@attempt()
def send_a_signal() -> None:
    os.kill(W["victim"], signal.SIGCONT)


@attempt()
def send_a_signal_to_a_group() -> None:
    os.killpg(os.getpgid(W["victim"]), signal.SIGCONT)


@attempt()
def send_a_signal_to_a_thread() -> None:
    call(234, 131, W["victim"], W["victim"], signal.SIGCONT)


@attempt()
def send_a_signal_by_descriptor() -> None:
    process = call(434, 434, W["victim"], 0)
    call(424, 424, process, signal.SIGCONT, None, 0)


@attempt()
def queue_a_signal() -> None:
    details = struct.pack("iii", signal.SIGCONT, 0, -1) + bytes(116)
    call(129, 138, W["victim"], signal.SIGCONT, details)


@attempt()
def limit_another() -> None:
    resource.prlimit(W["victim"], resource.RLIMIT_CORE, (0, 0))


@attempt("luck")
def slow_all_of_a_user_down() -> None:
    expect(os.getuid() != 0)  # too much would be slow
    os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_PROCESS, 0))


@attempt()
def slow_another_down() -> None:
    os.setpriority(os.PRIO_PROCESS, W["victim"], 19)


@attempt("luck")
def move_another_between_processors() -> None:
    before = os.sched_getaffinity(W["victim"])
    os.sched_setaffinity(W["victim"], {min(before)})
    expect(os.sched_getaffinity(W["victim"]) != before)


# Network and sockets


@attempt()
def connect_by_tcp() -> None:
    socket.create_connection(("127.0.0.1", W["tcp"]), 5).close()


@attempt()
def listen_by_tcp() -> None:
    socket.create_server(("127.0.0.1", 0)).close()


@attempt()
def send_by_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        expect(sender.sendto(b"x", ("127.0.0.1", W["udp"])) == 1)


@attempt("luck")
def send_by_udp_of_version_6() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("::1", W["udp"]))


@attempt("root")
def open_a_raw_socket() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


@attempt("root")
def open_a_packet_socket() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300).close()


@attempt()
def ask_the_kernel_by_netlink() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as route:
        route.bind((0, 0))


@attempt("luck")
def open_a_socket_to_the_host_of_a_machine() -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


@attempt()
def open_a_socket_of_any_family() -> None:
    for family in range(2, 48):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue
            return
    raise PermissionError("none of them")


@attempt()
def open_a_pair_of_any_family() -> None:
    for family in [socket.AF_UNIX, *range(2, 48)]:
        try:
            for one in socket.socketpair(family, socket.SOCK_DGRAM):
                one.sendto(b"x", W["datagrams"])
        except OSError:
            continue
        return
    raise PermissionError("none of them")


@attempt()
def connect_to_a_socket_of_an_agent() -> None:
    socket.socket(socket.AF_UNIX).connect(W["agent"])


@attempt()
def send_to_a_socket_of_a_log() -> None:
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", W["datagrams"])


@attempt()
def connect_to_an_abstract_socket() -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + W["abstract"])


@attempt()
def send_to_an_abstract_socket() -> None:
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "\0" + W["abstract_datagrams"])


# The kernel


@attempt("root")
def mount_a_file_system() -> None:
    os.mkdir("mounted")
    _mount(b"tmpfs", b"mounted", b"tmpfs", 0)
    libc.umount2(b"mounted", 2)


@attempt("root")
def mount_a_folder_elsewhere() -> None:
    os.mkdir("bound")
    _mount(os.fsencode(W["outside"]), b"bound", None, 4096)
    content = read("bound/secret")
    libc.umount2(b"bound", 2)
    expect_secret(content)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    call(165, 40, source, target, kind, flags, None)


@attempt("root")
def clone_a_tree_of_mounts() -> None:
    call(428, 428, -100, b"/", 1)


@attempt("host")
def become_root_in_a_namespace() -> None:
    call(272, 97, 0x10000000)


@attempt("host")
def fork_into_a_namespace() -> None:
    _fork_with(call, 56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)


@attempt("host")
def fork_into_a_namespace_the_new_way() -> None:
    arguments = struct.pack("=11Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, *[0] * 6)
    _fork_with(call, 435, 435, arguments, len(arguments))


def _fork_with(function: Callable[..., int], *arguments: object) -> None:
    child = function(*arguments)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@attempt()
def fork_a_child_of_the_parent() -> None:
    child = call(56, 220, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)


@attempt("root")
def change_the_root() -> None:
    os.chroot(".")


@attempt("root")
def enter_a_namespace() -> None:
    call(308, 268, os.open(f"/proc/{W['victim']}/ns/net", os.O_RDONLY), 0)


@attempt("luck")
def run_a_setuid_program() -> None:
    program = os.path.join(W["shared"], "id_of_root")
    expect(os.getuid() != 0 and subprocess.check_output([program, "-u"]).strip() == b"0")


@attempt()
def run_a_program_from_memory() -> None:
    program = os.memfd_create("program", 0)
    with open("/bin/cat", "rb") as file:
        os.write(program, file.read())
    path = f"/proc/self/fd/{program}"
    run = subprocess.run([path, outside("secret")], pass_fds=[program], capture_output=True)
    assert run.returncode in (0, 1), "the program did not run"
    expect_secret(run.stdout)


@attempt()
def read_by_another_program() -> None:
    expect_secret(subprocess.run(["cat", outside("secret")], capture_output=True).stdout)


@attempt()
def make_a_program_that_runs_as_its_owner() -> None:
    with open("as_owner", "wb"):
        pass
    os.chmod("as_owner", 0o4755)
    expect(os.stat("as_owner").st_mode & 0o4000)


@attempt()
def make_one_by_descriptor() -> None:
    with open("as_owner_2", "wb") as file:
        os.fchmod(file.fileno(), 0o6755)
        expect(os.fstat(file.fileno()).st_mode & 0o6000)


@attempt()
def make_one_at_once() -> None:
    descriptor = os.open("as_owner_3", os.O_CREAT | os.O_WRONLY, 0o4755)
    expect(os.fstat(descriptor).st_mode & 0o4000)


@attempt()
def make_one_that_has_no_name_yet() -> None:
    descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755)
    expect(os.fstat(descriptor).st_mode & 0o4000)


@attempt("host")
def make_one_the_new_way() -> None:
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    descriptor = call(437, 437, -100, b"as_owner_4", how, len(how))
    expect(os.fstat(descriptor).st_mode & 0o4000)


@attempt()
def make_one_as_a_node() -> None:
    os.mknod("as_owner_5", 0o104755)
    expect(os.stat("as_owner_5").st_mode & 0o4000)


@attempt("luck")
def use_io_uring() -> None:
    os.close(call(425, 425, 2, bytes(120)))


@attempt("host")
def store_a_key() -> None:
    call(248, 217, b"user", b"taskweaver-test", b"x", 1, -2)


@attempt("luck")
def load_a_program_into_the_kernel() -> None:
    attributes = struct.pack("IIII", 2, 4, 4, 1) + bytes(100)  # BPF_MAP_CREATE of an array
    os.close(call(321, 280, 0, attributes, len(attributes)))


@attempt("luck")
def measure_others() -> None:
    event = struct.pack("IIQ", 1, 128, 0) + bytes(112)
    os.close(call(298, 241, event, W["victim"], -1, -1, 0))


@attempt("host")
def handle_page_faults() -> None:
    os.close(call(323, 282, 1))


@attempt("host")
def change_personality() -> None:
    call(135, 92, 0x0400000)  # READ_IMPLIES_EXEC


@attempt("root")
def load_a_module() -> None:
    _reaches_the_kernel(313, 273, -1, b"", 0)


@attempt("root")
def replace_the_kernel() -> None:
    _reaches_the_kernel(320, 294, -1, -1, 0, b"", 0)


@attempt("root")
def count_processes() -> None:
    _reaches_the_kernel(163, 89, b"/taskweaver/is/not/there")


@attempt("root")
def swap_to_a_file() -> None:
    _reaches_the_kernel(167, 224, b"/taskweaver/is/not/there", 0)


def _reaches_the_kernel(x86: int, arm: int, *arguments: object) -> None:
    """Make a call with arguments that mean nothing; only who may call hears of that."""
    try:
        call(x86, arm, *arguments)
    except PermissionError:
        raise
    except OSError:
        return


@attempt("root")
def rename_the_machine() -> None:
    name = os.uname().nodename.encode()
    call(170, 161, name, len(name))


@attempt("luck")
def type_for_the_user() -> None:
    _, terminal = pty.openpty()
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    fcntl.ioctl(terminal, termios.TIOCSTI, b"x")


@attempt("luck")
def make_calls_of_another_machine() -> None:
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("53b814000000cd805bc3"))  # getpid as 32-bit programs ask for it
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    expect(IS_X86 and ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid())


@attempt("luck")
def make_calls_of_x32() -> None:
    expect(IS_X86 and libc.syscall(ctypes.c_long(0x40000000 + 101), 16, W["victim"], 0, 0) == 0)


@attempt("root")
def keep_a_capability() -> None:
    expect(any(_capabilities()))


@attempt("root")
def regain_capabilities_by_running_a_program() -> None:
    run = subprocess.run([sys.executable, __file__, "capabilities"], capture_output=True)
    expect(run.stdout.strip() == b"some")


def _capabilities() -> tuple[int, ...]:
    sets = ctypes.create_string_buffer(24)
    call(125, 90, struct.pack("Ii", 0x20080522, 0), sets)
    return struct.unpack("6I", sets.raw)


# Limits


@attempt()
def fork_many_times() -> None:
    children = []
    try:
        for _ in range(W["processes"]):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@attempt()
def take_much_memory() -> None:
    bytearray(W["memory"])


@attempt()
def write_a_large_file() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("large", "wb") as file:
        file.truncate(W["file"])
    os.unlink("large")


@attempt("luck")
def leave_a_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))


def run(function: Callable[[], None]) -> str:
    """Try it in a process of its own."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            function()
            os.write(sender, b"done")
        except BaseException as error:  # noqa: BLE001 - whatever it was, it did not work
            os.write(sender, f"{type(error).__name__}: {error}"[:500].encode())
        os._exit(0)
    os.close(sender)
    with open(receiver, "rb") as file:
        outcome = file.read().decode()
    status = os.waitpid(child, 0)[1]
    return outcome or f"ended by {status}"


def main() -> None:
    """Try all of them, or say whether there are capabilities."""
    if sys.argv[1] == "capabilities":
        print("some" if any(_capabilities()) else "none")  # noqa: T201
        return
    W.update(json.loads(sys.argv[1]))
    print(json.dumps({name: run(function) for name, function in ATTEMPTS.items()}))  # noqa: T201


if __name__ == "__main__":
    main()
