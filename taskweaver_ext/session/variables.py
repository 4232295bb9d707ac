"""The Python variables of a session: saved, brought back or lost, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from taskweaver_ext.ces.sessions.snapshot_file import VARIABLES_FILE
from taskweaver_ext.ces.sessions.variables import RestoredVariables, SavedVariables
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.roles.code_interpreter.code_executor import CodeExecutor
from taskweaver_ext.session.memory import SessionMemory
from taskweaver_ext.session.rebuilt import FRESH_KERNEL, VARIABLES_LOST
from taskweaver_ext.session.turns import SessionTurns
from taskweaver_ext.text.table import byte_count

_MAX_NAMED = 20


class SessionVariables:
    """Saves and restores the variables of one session; listeners and the agent hear of it.

    Threads:
        For any thread; while a round is under way, it is refused with a SessionError.
    """

    def __init__(
        self,
        session_dir: Path,
        executor: CodeExecutor,
        turns: SessionTurns,
        memory: SessionMemory,
        emitter: SessionEventEmitter,
    ) -> None:
        self._usual_file = session_dir / VARIABLES_FILE
        self._executor = executor
        self._turns = turns
        self._memory = memory
        self._emitter = emitter

    def save(self, path: str | Path | None) -> SavedVariables:
        """Save them to a file, by default the one in the session's folder."""
        with self._turns.claimed():
            saved = self._executor.snapshot(Path(path or self._usual_file))
            self._emitter.emit_notice(describe_saved(saved), "variables_saved")
            return saved

    def restore(self, path: str | Path | None, *, trust: bool) -> RestoredVariables:
        """Bring those of a file back, by default of the one in the session's folder."""
        with self._turns.claimed():
            restored = self._executor.restore_variables(Path(path or self._usual_file), trust=trust)
            is_continued = VARIABLES_LOST in self._memory.context_blocks
            self._tell_agent(describe_to_agent(restored, is_continued=is_continued))
            self._emitter.emit_notice(describe_restored(restored), "variables_restored")
            return restored

    def tell_that_they_are_lost(self) -> None:
        """Say that the session goes on in a new process, without those of the one before."""
        self._tell_agent(VARIABLES_LOST)
        self._emitter.emit_notice(FRESH_KERNEL, "fresh_kernel")

    def _tell_agent(self, note: str) -> None:
        self._turns.require_open()
        self._memory.replace_note(VARIABLES_LOST, note)


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
