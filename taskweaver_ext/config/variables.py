"""What our own environment variables say, beside the settings of a project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

from taskweaver_ext.errors import ConfigError

ToolMode: TypeAlias = Literal["python", "bash", "both"]

_TOOL_MODES: dict[str, ToolMode] = {
    "0": "bash",
    "bash": "bash",
    "1": "python",
    "py": "python",
    "python": "python",
    "mix": "both",
    "both": "both",
}
"""What TASKWEAVER_PY may say."""


def wants_color() -> bool:
    """Whether colours may be shown on a terminal."""
    return not os.environ.get("NO_COLOR") and not has_simple_terminal()


def has_simple_terminal() -> bool:
    """Whether our terminal, should we have one, can only print lines, or nobody says what it is."""
    return os.environ.get("TERM", "") in ("", "dumb", "unknown")


def docker_host() -> str:
    """The address of the Docker engine."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def gateway_url() -> str:
    """The address of the gateway to use; empty: the one that processes of this user share."""
    return os.environ.get("TASKWEAVER_GATEWAY_URL", "")


def gateway_token() -> str:
    """What lets us in there."""
    return os.environ.get("TASKWEAVER_GATEWAY_TOKEN", "")


def gateway_ca_file() -> Path | None:
    """Certificates to trust there instead of the system's, if the environment names some."""
    path = os.environ.get("TASKWEAVER_GATEWAY_CA_FILE", "")
    return Path(path).expanduser() if path else None


def gateway_kernel() -> str:
    """The gateway's kernelspec to use."""
    return os.environ.get("TASKWEAVER_GATEWAY_KERNEL") or "python3"


def home_folder() -> Path:
    """Where a user keeps what belongs to all projects: extension modules, an environment."""
    return Path.home() / ".taskweaver"


def cache_home() -> Path | None:
    """Where the user keeps what can be had again, if the environment says so."""
    path = os.environ.get("XDG_CACHE_HOME", "")
    return Path(path) if os.path.isabs(path) else None


def tool_mode() -> ToolMode | None:
    """Which tools an agent is to be given, if the environment says so."""
    value = os.environ.get("TASKWEAVER_PY", "").lower()
    if value and value not in _TOOL_MODES:
        known = ", ".join(_TOOL_MODES)
        raise ConfigError(f"TASKWEAVER_PY is {value!r}; it must be one of {known}.")
    return _TOOL_MODES.get(value)


def skips_python_check() -> bool:
    """Whether an interpreter is believed to run kernels without trying it."""
    return _is_set("TASKWEAVER_PYTHON_SKIP_CHECK")


def traces_messages() -> bool:
    """Whether every message to and from kernels is to be logged."""
    return _is_set("TASKWEAVER_PYTHON_IPC_TRACE")


def debugs_startup() -> bool:
    """Whether the stages of a kernel's start are to be logged."""
    return _is_set("TASKWEAVER_DEBUG_STARTUP")


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() not in ("", "0", "false", "no", "off")
