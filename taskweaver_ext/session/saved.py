"""Sessions on the disk: found, listed, and read as the events that they had.

Reading works for everybody and at any time, also while another process is at work in a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.errors import SessionError, TaskWeaverError
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import RoundEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.session.blocks import OWN_FOLDER, folder_of
from taskweaver_ext.session.continued import close_open_ends
from taskweaver_ext.session.folders import last_used, remove_folder, session_folders, size_of
from taskweaver_ext.session.old_rounds import changed_at, events_of_rounds, round_files
from taskweaver_ext.session.open_folder import OpenFolder
from taskweaver_ext.session.ownership import owner_of

MAX_TITLE_CHARS = 60
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """What a list of sessions says of one."""

    session_id: str
    title: str
    """What a person calls it, or else the first words of the first request."""
    created_at: float
    last_used_at: float
    round_count: int
    size_bytes: int
    """Of everything in its folder."""
    opened_by: str
    """Which process works in it now, if one does."""
    problem: str = ""
    """Why its conversation cannot be read, if it cannot."""


class SavedSession:
    """A session's folder, to be read: with a journal, or with rounds as JSON."""

    def __init__(self, folder: Path) -> None:
        """Look into a folder.

        Raises:
            SessionError: No session has left anything there, or its journal cannot be read.
        """
        self.folder = folder
        self.session_id = folder.name
        self.created_at = 0.0
        """When the session began, in seconds since 1970."""
        try:
            self._has_journal = (folder / JOURNAL).exists()
        except OSError as error:
            raise SessionError(f"{folder} cannot be read: {error.strerror}.") from error
        if self._has_journal:
            with JournalReader(folder) as reader:
                self.created_at = reader.created_at
        elif files := round_files(folder):
            self.created_at = changed_at(files[0])
        else:
            raise SessionError(f"In {folder} there is no session that could be read.")

    def events(self, after: int = 0, *, with_output: bool = True) -> Iterator[TaskWeaverEvent]:
        """All that the session said after the event number `after`, oldest first.

        Args:
            with_output: Whether what code wrote is wanted, which may be much.
        """
        if not self._has_journal:
            yield from (event for event in events_of_rounds(self.folder) if event.seq > after)
            return
        with JournalReader(self.folder) as reader:
            yield from reader.events(after, with_output=with_output)

    def folders(self) -> list[Path | None]:
        """Where its code has worked, one folder after the other; None: in the session's own."""
        kind = SessionEventType.session_folder
        if not self._has_journal:
            return [None]
        with JournalReader(self.folder) as reader:
            return [None, *map(folder_of, reader.events_of(kind))]

    @property
    def working_folder(self) -> Path:
        """Where its code works, if that is still there."""
        return self.folders()[-1] or self.folder / OWN_FOLDER

    def round_starts(self) -> list[int]:
        """The numbers of the events that began a round, oldest first."""
        kind = RoundEventType.round_start
        if self._has_journal:
            with JournalReader(self.folder) as reader:
                return reader.numbers_of(kind)
        return [event.seq for event in self.events() if event.t is kind]

    def last_seq(self) -> int:
        """The number of the newest event, 0 before the first."""
        if self._has_journal:
            with JournalReader(self.folder) as reader:
                return reader.last_seq
        return max((event.seq for event in self.events()), default=0)

    def title(self) -> str:
        """What a person calls it, or else the first words of the first request."""
        if given := self._given_title():
            return given
        for start in self.round_starts()[:1]:
            for event in self.events(after=start - 1):
                if event.t is RoundEventType.round_start and "user_query" in event.extra:
                    return _first_words(event.extra["user_query"])
        return ""

    def _given_title(self) -> str:
        if not self._has_journal:
            return ""
        with JournalReader(self.folder) as reader:
            for number in reversed(reader.numbers_of(SessionEventType.session_renamed)):
                for event in reader.read(number - 1, 1):
                    return event.msg
        return ""


def summarise(folder: Path) -> SessionSummary:
    """Return what a list says of a session, also of one that cannot be read."""
    title, created_at, round_count, problem = "", 0.0, 0, ""
    try:
        saved = SavedSession(folder)
        title, created_at, round_count = saved.title(), saved.created_at, len(saved.round_starts())
    except (TaskWeaverError, OSError) as error:
        problem = str(error)
    used_at = last_used(folder)
    return SessionSummary(
        session_id=folder.name,
        title=title,
        created_at=created_at or used_at,
        last_used_at=used_at,
        round_count=round_count,
        size_bytes=size_of(folder),
        opened_by=str(owner_of(folder) or ""),
        problem=problem,
    )


def list_sessions(workspace: Path) -> list[SessionSummary]:
    """Return all sessions of a workspace, the one that was used last first."""
    found = [(folder, summarise(folder)) for folder in session_folders(workspace)]
    # Another process may delete one meanwhile.
    there = [summary for folder, summary in found if folder.is_dir()]
    return sorted(there, key=lambda one: one.last_used_at, reverse=True)


def find_folder(workspace: Path, id_or_prefix: str) -> Path:
    """Return the folder of the session with that id, or whose id alone begins so.

    Raises:
        SessionError: There is none, or more than one; the message names what there is.
    """
    folders = session_folders(workspace)
    found = [folder for folder in folders if folder.name == id_or_prefix]
    found = found or [folder for folder in folders if folder.name.startswith(id_or_prefix or "\0")]
    if len(found) == 1:
        return found[0]
    if found:
        raise SessionError(
            f"{len(found)} sessions begin with {id_or_prefix!r}: {_names(found)}. Type more of it."
        )
    there = f"There are: {_names(folders)}" if folders else "There are none"
    raise SessionError(f"There is no session {id_or_prefix!r} in {workspace}. {there}.")


def find_session(workspace: Path, id_or_prefix: str) -> SavedSession:
    """Open the session with that id, or whose id alone begins so.

    Raises:
        SessionError: There is none, more than one, or it cannot be read.
    """
    return SavedSession(find_folder(workspace, id_or_prefix))


def rename_session(folder: Path, title: str) -> None:
    """Give a session that no process has open a title; an empty one takes it back.

    Raises:
        SessionError: A process works in it, or its journal cannot be written.
    """
    problems: list[str] = []
    with OpenFolder(folder, folder.name, project="", on_failure=problems.append) as opened:
        emitter = SessionEventEmitter(opened.journal)
        emitter.emit_session_event(SessionEventType.session_renamed, title_line(title))
    if problems:
        raise SessionError(f"Session {folder.name} cannot be renamed: {problems[0]}")


def end_cut_off_round(folder: Path) -> None:
    """Have a session say how a round ended whose process was killed, so that no reader waits on.

    Raises:
        SessionError: A process works in it, or its journal cannot be used.
    """
    with JournalReader(folder) as reader:
        if not reader.has_open_round:
            return
    problems: list[str] = []
    with OpenFolder(folder, folder.name, project="", on_failure=problems.append) as opened:
        close_open_ends(opened.past, SessionEventEmitter(opened.journal))


def title_line(title: str) -> str:
    """Return a title as one line that is not too long."""
    return _first_words(title)


def delete_session(folder: Path) -> None:
    """Remove a session for good, with everything in its folder.

    Raises:
        SessionError: A process works in it, or something cannot be removed.
    """
    if owner := owner_of(folder):
        raise SessionError(f"Session {folder.name} is open in {owner}. End it there first.")
    if not remove_folder(folder) or folder.exists():
        raise SessionError(
            f"Session {folder.name} cannot be removed: its folder {folder} is in use, or not yours."
        )


def _first_words(text: str) -> str:
    line = " ".join(text[: 10 * MAX_TITLE_CHARS].split())
    return line if len(line) <= MAX_TITLE_CHARS else f"{line[: MAX_TITLE_CHARS - 1]}…"


def _names(folders: list[Path]) -> str:
    """The newest of them; their names begin with the time."""
    names = sorted((folder.name for folder in folders), reverse=True)
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
