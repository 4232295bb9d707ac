"""The folder of a session that is open: locked by this process, with its journal."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.machine.private_files import claim_private_folder
from taskweaver_ext.session.continued import open_journal
from taskweaver_ext.session.ownership import SessionLock
from taskweaver_ext.session.working_folder import (
    FolderWish,
    WorkingFolder,
    choose_working_folder,
)

_logger = logging.getLogger(__name__)


class OpenFolder(Closeable):
    """What a session has of its folder from its first event until after its last."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        *,
        project: str,
        on_failure: Callable[[str], None],
    ) -> None:
        """Make the folder if it is missing, and claim it.

        Args:
            on_failure: Told if the journal cannot be written; not called in here.

        Raises:
            ConfigError: The folder cannot be made.
            SessionError: Another process has the session open, or what is there cannot be
                continued.
        """
        self.path = path
        self.problem = ""
        """What a person should know of the folder."""
        self._is_made_now = not path.exists()
        _make(path)
        self._lock = self._claimed()
        try:
            self.journal, self.past = open_journal(
                path, session_id=session_id, project=project, on_failure=on_failure
            )
            """What is written from now on, and what an earlier process has left."""
        except BaseException:
            self._unlock()
            raise

    def choose_working_folder(self, wish: FolderWish) -> WorkingFolder:
        """Return where code works; if it cannot where it is to, let go of the session's folder.

        Raises:
            ConfigError: The folder that was asked for cannot be used.
            SessionError: It holds the session's records, within reach of confined code.
        """
        is_new = self.journal.last_seq == 0
        try:
            chosen = choose_working_folder(
                self.path, wish, is_new=is_new, before=self.past.folders[-1]
            )
            if chosen.place == "session":
                _make(chosen.path)
        except BaseException:
            self.close()
            if self._is_made_now:  # nothing has been said in it
                shutil.rmtree(self.path, ignore_errors=True)
            raise
        return chosen

    def close(self) -> None:
        """Leave the folder to others."""
        self.journal.close()
        self._unlock()

    def _claimed(self) -> SessionLock | None:
        try:
            lock = SessionLock(self.path)
            self.problem = lock.problem
        except OSError as error:  # a full disk: a session can do without
            lock = None
            self.problem = (
                f"The folder {self.path} cannot be marked as used ({error.strerror}): nothing keeps"
                " another process from opening this session at the same time."
            )
        if self.problem:
            _logger.warning("%s", self.problem)
        return lock

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()


def _make(folder: Path) -> None:
    try:
        claim_private_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"The session's folder {folder} cannot be made ({error.strerror}). Start"
            " in a folder that can be written, or set workspace.workspace_path (or the variable"
            " WORKSPACE_WORKSPACE_PATH) to one."
        ) from error
