"""Where a process id names the same process: in one pid namespace, until the machine restarts."""

from __future__ import annotations

import os


def pid_namespace() -> str:
    """Return boot id and pid namespace of this process; "" where they cannot be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
