"""What the system knows of processes: memory and descent."""

from __future__ import annotations

import os
from pathlib import Path

_RESET_PEAK = "5"
_KIB = 1024


def _kib_of(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(f"{path} does not say {name}")


def proportional_bytes(pid: int) -> int:
    """Memory of a process in which what it shares counts in part (PSS)."""
    return _kib_of(Path(f"/proc/{pid}/smaps_rollup"), "Pss") * _KIB


def resident_bytes(pid: int) -> int:
    """Memory that a process holds now."""
    return _kib_of(Path(f"/proc/{pid}/status"), "VmRSS") * _KIB


def peak_resident_bytes(pid: int) -> int:
    """The most it has held since `reset_peak`."""
    return _kib_of(Path(f"/proc/{pid}/status"), "VmHWM") * _KIB


def context_switches(pid: int) -> int:
    """How often threads of a process were woken up, or had to wait for others."""
    return sum(
        int(line.split()[1])
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for line in (thread / "status").read_text().splitlines()
        if "ctxt_switches" in line
    )


def reset_peak(pid: int) -> None:
    """Let a process's peak begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def descendants() -> set[int]:
    """All processes that this one has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                # The name in parentheses may hold anything, parentheses included.
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has just ended
            children.setdefault(parent, []).append(int(folder.name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return found
