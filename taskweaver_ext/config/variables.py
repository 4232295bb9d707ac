"""What our own environment variables say, beside the settings of a project.

Read at the doors (`Environment`, tools, commands) and handed down from there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from taskweaver_ext.config.state_folder import user_folder
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """What is logged of kernels, to look for a fault."""

    messages: bool = False
    """Every message to and from them."""
    stages: bool = False
    """The stages of their starts."""


def wants_color() -> bool:
    """Whether colours may be shown on a terminal."""
    return not os.environ.get("NO_COLOR") and not has_simple_terminal()


def has_simple_terminal() -> bool:
    """Whether our terminal, should we have one, can only print lines, or is not known."""
    return os.environ.get("TERM", "") in ("", "dumb", "unknown")


def color_depth() -> Literal["none", "256", "true"]:
    """How many colours our terminal says that it has; none: too few for pictures."""
    if not wants_color():
        return "none"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "true"
    return "256" if "256color" in os.environ.get("TERM", "") else "none"


def may_be_asked() -> bool:
    """Whether our terminal can be asked what it shows; not where another is in between."""
    names = ("screen", "tmux", "linux", "vt")
    is_between = bool(os.environ.get("TMUX") or os.environ.get("STY"))
    is_simple = os.environ.get("TERM", "").startswith(names) or has_simple_terminal()
    # This one prints what it does not understand.
    return not is_between and not is_simple and os.environ.get("TERM_PROGRAM") != "Apple_Terminal"


def started_as() -> str:
    """What a person typed to start us, if a script did it for them and says so."""
    return os.environ.get("TASKWEAVER_STARTED_AS", "")


def can_copy() -> bool:
    """Whether our terminal may take text for the clipboard; some are known not to."""
    name = os.environ.get("TERM", "")
    is_known_not_to = name == "linux" or name.startswith(("vt", "screen"))
    is_tmux = bool(os.environ.get("TMUX"))
    is_apple = os.environ.get("TERM_PROGRAM") == "Apple_Terminal"
    return not has_simple_terminal() and not is_apple and (is_tmux or not is_known_not_to)


def editor() -> str:
    """The command of the person's editor."""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"


def cache_home() -> Path | None:
    """Where the user keeps what can be had again, if the environment says so."""
    path = os.environ.get("XDG_CACHE_HOME", "")
    return Path(path) if os.path.isabs(path) else None


def key_folder() -> Path:
    """Where the key is with which we know again what this user has written."""
    return user_folder(os.environ)


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


def tracing() -> Tracing:
    """What of kernels is to be logged."""
    return Tracing(
        messages=_is_set("TASKWEAVER_PYTHON_IPC_TRACE"), stages=_is_set("TASKWEAVER_DEBUG_STARTUP")
    )


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() not in ("", "0", "false", "no", "off")
