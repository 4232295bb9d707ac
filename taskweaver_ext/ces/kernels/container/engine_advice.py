"""What to do about a Docker engine that cannot be used, in words. No I/O."""

from __future__ import annotations

import sys
from typing import Literal, TypeAlias

Trouble: TypeAlias = Literal["absent", "denied", "silent"]
"""No engine listens; this user may not use it; it listens and does not answer."""


def advice_about_engine(url: str, trouble: Trouble) -> str:
    """The command that helps, where there is one."""
    if not url.startswith("unix://"):
        return "Start Docker there, or correct DOCKER_HOST"
    if trouble == "denied":
        return "Let this user use it (sudo usermod -aG docker $USER, then log in again)"
    action = "restart" if trouble == "silent" else "start"
    command = f" (sudo systemctl {action} docker)" if sys.platform == "linux" else ""
    return f"{action.title()} Docker{command}"
