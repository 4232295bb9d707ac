"""The folder in which a session's code works: the person's, or one of the session's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.config.settings import FolderPlace
from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.session.blocks import OWN_FOLDER

CHOOSE_ANOTHER = (
    "Start in another folder, name one with --cwd (`cwd=` in a program), or set session.cwd to"
    " session to have a folder per session."
)


@dataclass(frozen=True, slots=True)
class FolderWish:
    """Where a session is to work."""

    cwd: Path | None = None
    """The folder that was asked for; it is used, or the session is refused."""
    here: Path | None = None
    """The folder for a new session for which none was asked for; None: one of its own."""
    check: Callable[[Path], None] = lambda _cwd: None
    """Raises TaskWeaverError for a folder that code in the session's mode may not be given."""


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """The folder that was chosen."""

    path: Path
    place: FolderPlace = "here"
    problem: str = ""
    """Why it is not the one that a person expects, and what can be done about it."""


def choose_working_folder(
    session_dir: Path, wish: FolderWish, *, is_new: bool, before: Path | None
) -> WorkingFolder:
    """Decide where a session works: as asked for, else as before, else where new ones do.

    Args:
        before: The person's folder in which it worked so far; None: its own.

    Raises:
        ConfigError: A folder that was asked for, or that a new session would use, cannot be used.
        SessionError: One that was asked for holds the session's records, within reach of code
            that is confined to it.
    """
    own = WorkingFolder(session_dir / OWN_FOLDER, "session")
    if wish.cwd is not None:
        path = wish.cwd.absolute()
        _check(path, wish)
        return own if path == own.path else WorkingFolder(path)
    path_by_default = wish.here if is_new else before
    if path_by_default is None:
        return own
    try:
        _check(path_by_default, wish)
    except ConfigError as error:
        if is_new:
            raise
        reason = str(error).removesuffix(f" {CHOOSE_ANOTHER}")
        advice = "--cwd FOLDER continues it in another"
    except SessionError as error:  # it holds the sessions, as projects of TaskWeaver do
        reason, advice = str(error), "workspace.workspace_path can name a place elsewhere"
    else:
        return WorkingFolder(path_by_default)
    works = f"The session works in a folder of its own, {own.path}, instead; {advice}."
    return WorkingFolder(own.path, "session", f"{reason} {works}")


def _check(path: Path, wish: FolderWish) -> None:
    """Raise ConfigError or SessionError for a folder that cannot be used."""
    try:
        is_folder = path.is_dir()
        if not is_folder:
            reason = "is no folder" if path.exists() else "is not there"
        else:
            reason = "" if os.access(path, os.R_OK | os.X_OK) else "may not be entered by this user"
    except (OSError, ValueError) as error:
        reason = f"is no path that can be used ({error})"
    if reason:
        raise ConfigError(f"The working folder {path} {reason}. {CHOOSE_ANOTHER}")
    try:
        wish.check(path)
    except ConfigError as error:
        raise ConfigError(f"{error} {CHOOSE_ANOTHER}") from error
