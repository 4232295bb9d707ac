"""Where a project's sessions, log and chat history are kept: in the user's state folder.

Never in the project itself, where code works. What a project already has at the places that
earlier versions, and TaskWeaver, use is found there and stays in use, so that nothing is split.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

OLD_WORKSPACE = "workspace"
OLD_LOGS = "logs"
OLD_HISTORY = ".taskweaver_history"

_PROGRAM = "taskweaver-ext"
_MAX_NAME_CHARS = 40


def state_folder(project: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder for what belongs to one project, and to no other of the same name."""
    home = environ.get("XDG_STATE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state"
    place = project.resolve()
    name = re.sub(r"[^\w.-]+", "-", place.name)[:_MAX_NAME_CHARS].lstrip(".-") or "project"
    mark = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    return base / _PROGRAM / f"{name}-{mark}"


def default_places(project: Path, state_dir: Path, *, names_workspace: bool) -> dict[str, object]:
    """Return the settings that say where sessions and log are, for those that are not given.

    Args:
        names_workspace: Whether it is given where sessions are.
    """
    old_workspace, old_logs = project / OLD_WORKSPACE, project / OLD_LOGS
    places: dict[str, object] = {
        "workspace.workspace_path": state_dir,
        "logging.log_folder": old_logs if old_logs.is_dir() else state_dir / "logs",
    }
    if not names_workspace and (old_workspace / "sessions").is_dir():
        places["workspace.workspace_path"] = old_workspace
        places["workspace.keep_days"] = 0  # nobody has said that anything there may go
    return places


def history_file(project: Path, state_dir: Path) -> Path:
    """Where what is typed in chats is kept."""
    old = project / OLD_HISTORY
    return old if old.exists() else state_dir / "history"
