"""Where a session lives: its folder and journal, where its code works, and what it says there."""

from __future__ import annotations

import re
from pathlib import Path

from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import FolderExtra
from taskweaver_ext.events.types import SessionEventType
from taskweaver_ext.session.blocks import BlockNumbers
from taskweaver_ext.session.code_blocks import CodeBlocks
from taskweaver_ext.session.continued import close_open_ends
from taskweaver_ext.session.export.source import ExportSource
from taskweaver_ext.session.open_folder import OpenFolder
from taskweaver_ext.session.parts import SessionParts
from taskweaver_ext.session.working_folder import FolderWish

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Workplace(Closeable):
    """What a session has on the disk, and the events that go there before anybody hears them."""

    def __init__(self, session_id: str, parts: SessionParts, wish: FolderWish) -> None:
        """Open the folder of a session, new or old; nothing is said yet.

        Args:
            wish: Where code is to work.

        Raises:
            ConfigError: The id cannot be the name of a folder, the folder cannot be made, or code
                cannot work in the one that was asked for.
            SessionError: Another process has the session open, or what is there cannot be
                continued.
        """
        if not _SESSION_ID.fullmatch(session_id):
            raise ConfigError(f"A session cannot be called {session_id!r}: letters, digits, -_. .")
        self._session_id = session_id
        self._folder = OpenFolder(
            parts.config.workspace.workspace_path / "sessions" / session_id,
            session_id,
            project=str(parts.config.app_base_dir),
            on_failure=lambda problem: self.emitter.emit_notice(problem),
        )
        self.path: Path = self._folder.path
        self.past = self._folder.past
        """What an earlier process has left."""
        self.epoch = self._folder.journal.epoch
        self.working = self._folder.choose_working_folder(wish)
        """Where code works."""
        numbers = BlockNumbers(self.past.block_count)
        self.emitter = SessionEventEmitter(
            self._folder.journal,
            announce=numbers.announce,
            max_kept_bytes=parts.kept_event_bytes,
        )
        self.code_blocks = CodeBlocks(self.path, numbers, self.emitter.events)

    def announce(self) -> None:
        """Say that the session began, and where, and how that ended which was cut off before."""
        self.emitter.emit_session_event(SessionEventType.session_start, "Session started")
        folders, working = self.past.folders, self.working
        folder = working.path if working.place == "here" else None
        if folder != folders[-1]:
            folders.append(folder)
            details: FolderExtra = {"place": working.place}
            self.emitter.emit_session_event(
                SessionEventType.session_folder, str(working.path), details
            )
        for problem in filter(None, (self._folder.problem, working.problem)):
            self.emitter.emit_notice(problem)
        close_open_ends(self.past, self.emitter)

    def export_source(self) -> ExportSource:
        """What an export reads: all that was said so far."""
        return ExportSource(
            session_id=self._session_id,
            folder=self.path,
            read=self.emitter.events,
            folders=tuple(self.past.folders),
        )

    def close(self) -> None:
        """Leave the folder to others."""
        self._folder.close()
