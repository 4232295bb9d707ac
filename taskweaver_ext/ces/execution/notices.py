"""What the place where code runs has to say about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class HostNotice:
    """Something the host has to say about the kernel: paused, resumed, a limit, lost output."""

    status: Literal["paused", "resumed", "limit", "output_lost"]
    message: str
