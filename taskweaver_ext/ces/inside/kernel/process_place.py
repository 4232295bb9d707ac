"""Where process ids mean the same: within one start of one machine, and one namespace of it."""

from __future__ import annotations

import os


def process_place() -> str:
    """Name the place; "" where that cannot be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
