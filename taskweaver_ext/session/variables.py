"""What people and agents are told of the snapshot of a session's variables."""

from __future__ import annotations

from collections.abc import Mapping

from taskweaver_ext.ces.sessions.variables import RestoredVariables, SavedVariables
from taskweaver_ext.text.table import byte_count

_MAX_NAMED = 20


def describe_saved(saved: SavedVariables) -> str:
    """Say what was saved, and what was not and why."""
    size = byte_count(saved.size_bytes)
    text = f"Variables are saved: {len(saved.names)} of them ({size}) to {saved.path}."
    return text + _listed(" Not saved", saved.left_out)


def describe_restored(restored: RestoredVariables) -> str:
    """Say what came back, and what did not and why."""
    named = ", ".join(restored.names[:_MAX_NAMED])
    more = len(restored.names) - _MAX_NAMED
    names = f"{named} and {more} more" if more > 0 else named
    text = f"Variables are back: {names if restored.names else 'none'}."
    return text + _listed(" Not restored", restored.left_out)


def describe_to_agent(restored: RestoredVariables, *, is_continued: bool) -> str:
    """Say to an agent what it can use of earlier code.

    Args:
        is_continued: Whether the session goes on in a new process, which it does not know yet.
    """
    missing = ", ".join(list(restored.left_out)[:_MAX_NAMED])
    if not is_continued:
        but = f" except {missing}" if missing else ""
        return (
            "[Note: the Python variables were set back to what they were when they were saved"
            f"{but}. The shell and files are as they are.]"
        )
    lost = f" except {missing}, which are lost" if missing else ""
    return (
        "[Note: this session goes on in a new process. The Python variables of earlier code were"
        f" restored{lost}; the state of the shell is lost. Files are still there.]"
    )


def _listed(what: str, left_out: Mapping[str, str]) -> str:
    if not left_out:
        return ""
    named = [f"{name} ({why})" for name, why in list(left_out.items())[:_MAX_NAMED]]
    more = len(left_out) - _MAX_NAMED
    return f"{what}: {'; '.join(named)}{f'; and {more} more' if more > 0 else ''}."
