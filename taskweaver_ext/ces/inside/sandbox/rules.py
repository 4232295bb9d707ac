"""What a process that restricts itself may still do."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is left to a process and all that it starts; it is sent as JSON (`dataclasses.asdict`).

    Paths are absolute. Those that do not exist are passed over: no machine has all of them.
    """

    working_folder: str
    """May be written."""
    temporary_folder: str
    """May be written, and is nobody else's."""
    readable: tuple[str, ...] = ()
    """Files and folders that may be read and executed, with all that is beneath them."""
    writable: tuple[str, ...] = ()
    """More that may be written, as the user has said."""
    has_private_view: bool = False
    """Whether the process gets a file system of its own, where only what it may read exists.

    There it has `/tmp`, shared memory, terminals and sockets of its own, and may change modes
    and times of files. Without it, it has none of these: they cannot be told apart from others'.
    """
    group_files: tuple[str, ...] = ()
    """`cgroup.procs` of the control groups to join."""
    memory_bytes: int | None = None
    """For each process; what is to hold for the tree is the control group's."""
    process_count: int | None = None
    """For the user; what is to hold for the tree is the control group's, or the private view's."""
    cpu_seconds: int | None = None
    """For each process."""
    file_bytes: int | None = None
    """For each file."""
    descriptors: tuple[int, ...] = ()
    """What stays open besides the standard streams."""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Rules:
        """Read what `dataclasses.asdict` and JSON made of rules."""
        tuples = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return cls(**{**fields, **tuples})
