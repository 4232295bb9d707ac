"""The folders in which a session's code has worked, from what its events say."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from taskweaver_ext.events.extras import FolderExtra
from taskweaver_ext.events.types import TaskWeaverEvent

OWN_FOLDER = "cwd"
"""The name of a session's own working folder in the session's folder."""


def folder_of(event: TaskWeaverEvent) -> Path | None:
    """The person's folder that a `session_folder` names; None: it is the session's own."""
    is_own = cast(FolderExtra, event.extra)["place"] == "session"
    return None if is_own else Path(event.msg)
