"""The files of a session: those that a person has given it, and those that its code has made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taskweaver_ext.ces.execution.files_beneath import regular_file_beneath
from taskweaver_ext.conversation import AttachmentType
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.session.files import SessionFile, describe_place, place_file
from taskweaver_ext.session.memory import SessionMemory
from taskweaver_ext.session.rounds import describe_files
from taskweaver_ext.session.turns import SessionTurns


class SessionFiles:
    """Puts files into the working folder of one session, and finds what is new there."""

    def __init__(
        self,
        folder: Path,
        turns: SessionTurns,
        memory: SessionMemory,
        emitter: SessionEventEmitter,
    ) -> None:
        self._folder = folder
        self._turns = turns
        self._memory = memory
        self._emitter = emitter

    def place(self, files: Sequence[SessionFile]) -> list[str]:
        """Have files in the folder, and return their names there; nothing is told.

        Raises:
            SessionError: One cannot be copied; those before it are there.
        """
        return [place_file(self._folder, file) for file in files]

    def add(self, files: Sequence[SessionFile]) -> list[str]:
        """The same, and tell listeners at once and the agent with the next message.

        Raises:
            SessionError: The session was stopped, or a file cannot be copied; those before it are
                there, and told.
        """
        self._turns.require_open()
        names: list[str] = []
        try:
            for file in files:
                names += self.place([file])
        finally:
            if names:
                self._tell(names, files)
        return names

    def made(self) -> list[Path]:
        """The files that code has made known, and that are there."""
        attachments = (
            attachment
            for one in self._memory.rounds
            for post in one.post_list
            for attachment in post.get_attachment(AttachmentType.artifact_paths)
        )
        names = (name for attachment in attachments for name in attachment.extra or ())
        found = (regular_file_beneath(self._folder, name) for name in dict.fromkeys(names))
        return [path for path in found if path is not None]

    def _tell(self, names: list[str], files: Sequence[SessionFile]) -> None:
        self._emitter.emit_session_event(
            SessionEventType.session_files_added,
            f"Code can open: {', '.join(map(describe_place, names, files))}",
            {"files": names},
        )
        self._turns.require_open()
        self._memory.share([*self._memory.context_blocks, describe_files(names)])
