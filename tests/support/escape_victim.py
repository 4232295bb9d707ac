"""What is outside of a sandbox: a process with secrets, and sockets that answer. A script.

    python escape_victim.py FOLDER [anything]

Prints where to find what as a JSON object, and ends with its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys

SECRET = b"the-secret-of-others"


def main() -> None:
    """Offer everything until the input ends."""
    folder = sys.argv[1]
    os.chdir(folder)
    memory = ctypes.create_string_buffer(SECRET)
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(0, 4096, 0o1600)
    ctypes.memmove(libc.shmat(segment, None, 0), SECRET, len(SECRET))
    shared = f"/dev/shm/taskweaver-{os.getpid()}"
    with open(shared, "wb") as file:
        file.write(SECRET)
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    names = {
        "agent": f"{folder}/agent",
        "datagrams": f"{folder}/datagrams",
        "abstract": f"taskweaver-{os.getpid()}",
        "abstract_datagrams": f"taskweaver-{os.getpid()}-d",
    }
    sockets = []
    for name, address in names.items():
        kind = socket.SOCK_DGRAM if "datagrams" in name else socket.SOCK_STREAM
        sockets.append(socket.socket(socket.AF_UNIX, kind))
        sockets[-1].bind("\0" + address if "abstract" in name else address)
        if kind == socket.SOCK_STREAM:
            sockets[-1].listen(16)
    secret = open("secret", "rb")  # noqa: SIM115 - it is to stay open
    try:
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # let any process trace us (Yama)
        print(  # noqa: T201
            json.dumps(
                {
                    "victim": os.getpid(),
                    "address": ctypes.addressof(memory),
                    "segment": segment,
                    "shared_memory": shared,
                    "descriptor": secret.fileno(),
                    "tcp": tcp.getsockname()[1],
                    "udp": udp.getsockname()[1],
                    **names,
                }
            ),
            flush=True,
        )
        sys.stdin.read()
    finally:
        libc.shmctl(segment, 0, None)
        os.unlink(shared)


if __name__ == "__main__":
    main()
