"""Take a bundle back: checked, bounded, for its owner alone, and whole or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from taskweaver_ext.ces.execution.files_beneath import path_parts
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.journal import Journal
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.events.journal_reader import JournalReader
from taskweaver_ext.events.types import EventScope, SessionEventType, TaskWeaverEvent
from taskweaver_ext.machine.owned_folders import disown_folder, make_owned_folder
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.session.blocks import OWN_FOLDER, folder_of
from taskweaver_ext.session.export.bundle import CONTENT, DESCRIPTION, FORMAT, belongs_in_bundle

MAX_FILES = 100_000
MAX_BYTES = 8 * 1024**3
"""How much a bundle may come to on the disk."""
_MAX_DESCRIPTION_BYTES = 64 * 1024
_CHUNK_BYTES = 1024 * 1024
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_IS_ENCRYPTED = 0x1
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, LookupError)
"""What reading a broken archive raises; the last two are of names that are empty or no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """What an import has made."""

    session_id: str
    folder: Path
    original_id: str
    """The id in the bundle; another one than `session_id` if that was taken here."""


def import_bundle(
    path: Path, workspace: Path, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES
) -> ImportedSession:
    """Make a session of a workspace from a bundle.

    Raises:
        SessionError: It is no bundle, broken, hostile or too large; nothing is left behind.
    """
    staging: Path | None = None
    try:
        with zipfile.ZipFile(path) as bundle:
            original_id = _read_description(bundle)
            entries = _checked_entries(bundle, original_id, max_bytes, max_files)
            make_private_folder(workspace)
            # The next process removes what is left of this one, should it be killed.
            staging = make_owned_folder("import", workspace)
            _unpack(bundle, entries, staging, max_bytes)
        session_id, folder = _moved(staging, workspace / "sessions", original_id)
        disown_folder(folder)
    except _BROKEN as error:
        raise SessionError(f"{path} is no bundle, or a broken one: {error}") from error
    except FileNotFoundError as error:
        raise SessionError(f"There is no file {path} to import.") from error
    except OSError as error:
        raise SessionError(f"{path} cannot be imported: {error.strerror or error}") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
    return ImportedSession(session_id=session_id, folder=folder, original_id=original_id)


def _checked_entries(
    bundle: zipfile.ZipFile, session_id: str, max_bytes: int, max_files: int
) -> dict[str, zipfile.ZipInfo]:
    """The files of a bundle by their path beneath the session's folder."""
    found: dict[str, zipfile.ZipInfo] = {}
    infos = bundle.infolist()
    if len(infos) > max_files:
        raise SessionError(f"The bundle holds {len(infos):,} files; {max_files:,} are allowed.")
    if (size := sum(info.file_size for info in infos)) > max_bytes:
        raise SessionError(_too_large(size, max_bytes))
    for info in infos:
        if info.filename == DESCRIPTION:
            continue
        top, _, name = info.filename.partition("/")
        if info.is_dir() and path_parts(info.filename.rstrip("/")) is not None:
            continue
        if top != CONTENT or not belongs_in_bundle(name, session_id) or _is_special(info):
            raise SessionError(
                f"The bundle holds {info.filename!r:.200}, which no session has. It was not made"
                " by `sessions export`; nothing was imported."
            )
        if name in found:
            raise SessionError(f"The bundle holds {name!r:.200} twice; nothing was imported.")
        found[name] = info
    return found


def _is_special(info: zipfile.ZipInfo) -> bool:
    """Whether an entry is no ordinary file that we can read: a link, a device, encrypted."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_readable = info.compress_type in _METHODS and not info.flag_bits & _IS_ENCRYPTED
    return kind not in (0, stat.S_IFREG) or not is_readable


def _read_description(bundle: zipfile.ZipFile) -> str:
    """Read what the bundle says of itself; return the session's id."""
    try:
        with bundle.open(DESCRIPTION) as file:
            about: Any = json.loads(file.read(_MAX_DESCRIPTION_BYTES))
        session_id, version = about["session_id"], about["format"]
    except (KeyError, TypeError, ValueError, RecursionError, RuntimeError) as error:
        raise SessionError(f"It is no bundle: it has no {DESCRIPTION} that says so.") from error
    if not isinstance(version, int) or version > FORMAT:
        raise SessionError(
            f"The bundle has format {version!r:.20}; this version reads up to {FORMAT}."
            " Bring taskweaver-ext up to date."
        )
    if not isinstance(session_id, str) or not _SESSION_ID.fullmatch(session_id):
        raise SessionError(f"The bundle's session has an impossible id: {session_id!r:.100}.")
    return session_id


def _unpack(
    bundle: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], staging: Path, max_bytes: int
) -> None:
    room = max_bytes
    for name, info in entries.items():
        target = staging.joinpath(*(path_parts(name) or ()))
        make_private_folder(target.parent)
        descriptor = open_private(target, os.O_WRONLY | os.O_EXCL)
        with open(descriptor, "wb") as file, bundle.open(info) as content:
            room -= _copy(content, file, room, max_bytes)
        os.utime(target, (_time_of(info),) * 2)


def _copy(content: IO[bytes], file: IO[bytes], room: int, max_bytes: int) -> int:
    """Copy a file as far as there is room, whatever its header says of its size."""
    size = 0
    while data := content.read(_CHUNK_BYTES):
        size += len(data)
        if size > room:
            raise SessionError(_too_large(size, max_bytes))
        file.write(data)
    return size


def _moved(staging: Path, sessions: Path, original_id: str) -> tuple[str, Path]:
    """Give what was unpacked its place among the sessions, under an id that is free."""
    session_id = original_id
    make_private_folder(sessions)
    while (sessions / session_id).exists():
        session_id = f"{original_id[:80]}-{secrets.token_hex(3)}"
    _rename_rounds(staging, original_id, session_id)
    journal = staging / JOURNAL
    if journal.exists():
        _adopt_journal(journal, session_id)
        _leave_folder_behind(staging, session_id, sessions / session_id / OWN_FOLDER)
    elif not _rounds_in(staging):
        raise SessionError("The bundle holds no journal and no rounds; nothing was imported.")
    make_private_folder(staging / OWN_FOLDER)
    folder = sessions / session_id
    os.rename(staging, folder)
    return session_id, folder


def _rename_rounds(staging: Path, original_id: str, session_id: str) -> None:
    for path in _rounds_in(staging) if session_id != original_id else ():
        path.rename(path.with_name(session_id + path.name.removeprefix(original_id)))


def _rounds_in(staging: Path) -> list[Path]:
    return list(staging.glob("*.json"))  # no others were let in


def _adopt_journal(journal: Path, session_id: str) -> None:
    """Let the header of a journal name the session that it belongs to now."""
    with open(journal, "rb") as file:
        line = file.readline(_MAX_DESCRIPTION_BYTES)
        try:
            header = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SessionError("The bundle's journal has no header; nothing was imported.") from (
                error
            )
        if not isinstance(header, dict) or header.get("session_id") == session_id:
            return
        adopted = journal.with_name(f"{JOURNAL}.new")
        with open(open_private(adopted, os.O_WRONLY | os.O_EXCL), "wb") as target:
            new_line = json.dumps({**header, "session_id": session_id}, separators=(",", ":"))
            target.write(new_line.encode() + b"\n")
            shutil.copyfileobj(file, target, _CHUNK_BYTES)
    os.replace(adopted, journal)


def _leave_folder_behind(staging: Path, session_id: str, folder: Path) -> None:
    """Let a session that worked in a folder of its person go on in one of its own.

    Raises:
        SessionError: Its journal cannot be read.
    """
    with JournalReader(staging) as reader:
        folders = [folder_of(event) for event in reader.events_of(SessionEventType.session_folder)]
    if not folders or folders[-1] is None:
        return
    failures: list[str] = []
    journal = Journal(staging, session_id=session_id, project="", on_failure=failures.append)
    event = TaskWeaverEvent(
        EventScope.session,
        SessionEventType.session_folder,
        None,
        None,
        str(folder),
        {"place": "session"},
        seq=journal.last_seq + 1,
        at=time.time(),
    )
    journal.append(event)
    journal.close()
    if failures:
        raise SessionError(f"{failures[0]} Nothing was imported.")


def _time_of(info: zipfile.ZipInfo) -> float:
    try:
        return time.mktime((*info.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return time.time()


def _too_large(size: int, max_bytes: int) -> str:
    return (
        f"The bundle would take {size:,} bytes or more on the disk; {max_bytes:,} are allowed."
        " Nothing was imported."
    )
