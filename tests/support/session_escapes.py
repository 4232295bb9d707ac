"""Ways out of a session's sandbox, besides those out of any; a script as `escape_attempts.py` is.

python session_escapes.py WORLD OUTCOMES
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support import escape_attempts
    from tests.support.escape_attempts import ATTEMPTS, W, attempt, expect, expect_secret, read
else:  # it lies beside this one
    import escape_attempts
    from escape_attempts import ATTEMPTS, W, attempt, expect, expect_secret, read


@attempt()
def read_what_the_session_keeps() -> None:
    expect_secret(read(os.path.join(W["session"], "ces/kept")))


@attempt()
def list_what_the_session_keeps() -> None:
    os.listdir(W["session"])


@attempt()
def write_to_what_the_session_keeps() -> None:
    with open(os.path.join(W["session"], "ces/forged"), "x"):
        pass


@attempt()
def link_to_what_the_session_keeps() -> None:
    os.symlink(os.path.join(W["session"], "ces"), "records")
    expect_secret(read("records/kept"))


@attempt()
def read_the_environment_of_the_owner() -> None:
    expect_secret(read(f"/proc/{W['owner']}/environ"))


@attempt()
def read_the_environment_of_what_forks_kernels() -> None:
    expect(read(f"/proc/{W['zygote']}/environ"))


@attempt()
def read_the_memory_of_the_owner() -> None:
    os.open(f"/proc/{W['owner']}/mem", os.O_RDONLY)


@attempt()
def signal_the_owner() -> None:
    os.kill(W["owner"], signal.SIGCONT)


@attempt()
def read_the_key_of_another_kernel() -> None:
    expect(b"key" in read(os.path.join(W["other"], "connection.json")))


@attempt()
def connect_to_another_kernel() -> None:
    socket.socket(socket.AF_UNIX).connect(os.path.join(W["other"], "channel-1"))


@attempt()
def change_the_python_that_runs_it() -> None:
    with open(os.path.join(os.path.dirname(json.__file__), "escape.py"), "w"):
        pass


@attempt()
def change_the_python_by_its_prefix() -> None:
    with open(os.path.join(sys.prefix, "escape"), "w"):
        pass


@attempt()
def keep_a_descriptor_of_a_file_outside() -> None:
    """Look for what was left open and can be written, or leads to a folder elsewhere."""
    own = (os.getcwd(), os.environ["TMPDIR"], "/dev/", "/proc/self")
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else range(3, 1024):
        try:
            kind = os.fstat(int(number)).st_mode
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        is_file = stat.S_ISREG(kind) or stat.S_ISDIR(kind)
        if is_file and path.startswith("/") and not path.startswith(own):
            flags = os.O_RDONLY
            inner = os.open(".", flags, dir_fd=int(number)) if stat.S_ISDIR(kind) else int(number)
            if stat.S_ISDIR(kind):
                os.listdir(inner)
                return
            os.write(inner, b"x")
            return
    raise PermissionError("there is none")


@attempt()
def climb_from_an_open_folder() -> None:
    folder = os.open(".", os.O_RDONLY)
    for _ in range(30):
        folder = os.open("..", os.O_PATH, dir_fd=folder)
    inner = os.open(W["outside"].lstrip("/") + "/secret", os.O_RDONLY, dir_fd=folder)
    expect_secret(os.read(inner, 100))


@attempt()
def take_the_tag_off() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_RTTIME, (1, resource.RLIM_INFINITY))


@attempt()
def reach_an_engine() -> None:
    for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
        if os.path.exists(path):
            socket.socket(socket.AF_UNIX).connect(path)
            return
    raise PermissionError("there is none")


@attempt()
def reach_the_bus_of_the_system() -> None:
    for path in ("/run/dbus/system_bus_socket", "/run/systemd/private"):
        socket.socket(socket.AF_UNIX).connect(path)


@attempt()
def count_the_processes_of_others() -> None:
    names = [name for name in os.listdir("/proc") if name.isdecimal()]
    expect(names)


@attempt()
def see_others_by_a_program() -> None:
    shown = subprocess.run(["ps", "aux"], capture_output=True, text=True).stdout
    expect(str(W["owner"]) in shown.split())


@attempt()
def see_the_network() -> None:
    expect(b":" in read("/proc/net/tcp").replace(b"sl  local_address", b""))


@attempt()
def outlive_the_sandbox() -> None:
    """Leave a process that nothing connects with this one; the test looks for it afterwards."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            subprocess.Popen(
                ["env", "-i", "bash", "-c", f"exec -a {W['survivor']} sleep 1000"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        os._exit(0)
    time.sleep(0.2)
    raise PermissionError("it remains to be seen")


def try_all(world: str, outcomes: str) -> None:
    """Make all attempts in a folder of their own; write what came of each to a file."""
    W.update(json.loads(world))
    folder = os.getcwd()
    os.makedirs(outcomes + "-attempts")
    os.chdir(outcomes + "-attempts")
    found = {name: escape_attempts.run(function) for name, function in ATTEMPTS.items()}
    os.chdir(folder)
    with open(outcomes, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    try_all(*sys.argv[1:])
