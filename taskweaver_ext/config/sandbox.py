"""Settings of sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from taskweaver_ext.errors import ConfigError

Protection: TypeAlias = Literal["files", "network", "processes", "process_count"]
"""What can be required of a sandbox: that code reaches no files, no network and no processes but
its own, and that there is a limit to how many processes it starts."""
PROTECTIONS: tuple[Protection, ...] = get_args(Protection)

_LIMITS = ("memory_bytes", "process_count", "cpu_seconds", "file_bytes", "disk_bytes", "disk_files")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """What sandboxed code may reach and use; None and 0: as much as there is."""

    require: tuple[str, ...] = PROTECTIONS
    """What the machine must be able to enforce; without one of these nothing is run."""
    readable: tuple[str, ...] = ()
    """Files and folders that code may read besides the system and its Python."""
    writable: tuple[str, ...] = ()
    """Those it may change besides its working folder."""
    memory_bytes: int | None = 4 << 30
    """For all processes together, where the machine lets us; else for each."""
    process_count: int | None = 512
    cpu_seconds: int | None = None
    """For all processes together, where the machine lets us; else for each."""
    file_bytes: int | None = 8 << 30
    """For each file."""
    disk_bytes: int | None = 16 << 30
    """What may be added to the working folder and to temporary files."""
    disk_files: int | None = 500_000
    """How many files and folders may be added to each of the two."""

    def __post_init__(self) -> None:
        """Refuse names of protections that do not exist, and limits below 0.

        Raises:
            ConfigError: There is such a name or limit.
        """
        if unknown := [name for name in self.require if name not in PROTECTIONS]:
            raise ConfigError(
                f"sandbox.require names {', '.join(unknown)}; there is: {', '.join(PROTECTIONS)}."
            )
        for name in _LIMITS:
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"sandbox.{name} is {getattr(self, name)}; it must be above 0.")
            if getattr(self, name) == 0:  # as a settings file says "no limit"
                object.__setattr__(self, name, None)
