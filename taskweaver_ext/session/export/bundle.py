"""A session as one file that another machine takes back: its journal, records, displays, files.

A bundle is a zip file: `bundle.json` says what it is, and beneath `session/` is what the session's
folder holds. A session that is at work can be bundled: the journal is copied first, and records
only grow.
"""

from __future__ import annotations

import json
import os
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

from taskweaver_ext.ces.execution.events import ArtifactProduced
from taskweaver_ext.ces.execution.files_beneath import (
    list_files,
    open_beneath,
    path_parts,
)
from taskweaver_ext.ces.sessions.snapshot_file import VARIABLES_FILE
from taskweaver_ext.conversation import AttachmentType
from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.journal_lines import JOURNAL
from taskweaver_ext.events.types import RoundEventType, SessionEventType, TaskWeaverEvent
from taskweaver_ext.session.export.source import ExportSource, FileOfSession, plain

FORMAT = 1
DESCRIPTION = "bundle.json"
CONTENT = "session"
_RECORDS = re.compile(r"displays/[^/]+|ces/output/[^/]+|ces/artifacts/.+")
_WORKING = "cwd/"
_CHUNK_BYTES = 1024 * 1024
_MAX_LISTED = 20
_MAX_NAME_CHARS = 300


def belongs_in_bundle(path: str, session_id: str) -> bool:
    """Whether a file beneath a session's folder may be part of a bundle."""
    is_own = (
        says_what_was_said(path, session_id) or path == VARIABLES_FILE or _RECORDS.fullmatch(path)
    )
    return path_parts(path) is not None and bool(is_own or path.startswith(_WORKING))


def says_what_was_said(path: str, session_id: str) -> bool:
    """Whether a file is a session's journal, or a round of it as JSON."""
    is_round = path.startswith(f"{session_id}_") and path.endswith(".json") and "/" not in path
    return path == JOURNAL or is_round


def write_bundle(
    source: ExportSource,
    file: IO[bytes],
    *,
    with_files: bool = False,
    with_variables: bool = False,
) -> tuple[str, ...]:
    """Write a bundle, and return what a person should know about it.

    Variables are loaded elsewhere only by a person who says that they can be trusted.

    Raises:
        SessionError: There is nothing of the session on the disk.
        OSError: It cannot be written.
    """
    folder = source.folder.resolve()
    all_files = sorted(list_files(folder).files)
    listed = [name for name in all_files if belongs_in_bundle(name, source.session_id)]
    own = [name for name in listed if not name.startswith(_WORKING)]
    if not with_variables and VARIABLES_FILE in own:
        own.remove(VARIABLES_FILE)
    if not any(says_what_was_said(name, source.session_id) for name in own):
        raise SessionError(f"Nothing in {folder} could be taken back: there is no journal.")
    named, elsewhere = _named_files(source, with_given=with_files)
    working = [n for n in listed if n.startswith(_WORKING) and (with_files or n in named)]
    own.sort(key=lambda name: name != JOURNAL)
    files = [FileOfSession(folder, name, name) for name in (*own, *working)]
    files += [file for name, file in named.items() if name not in all_files]
    notes = [f"not in the bundle, because it is no file of the session: {p}" for p in elsewhere]
    if with_files and source.working_folder is not None:
        notes.append(
            f"{_shown_name(str(source.working_folder))} is your folder and not packed: only files"
            " that were given to the session, or made known by it, are in the bundle"
        )
    if with_variables and VARIABLES_FILE not in own:
        notes.append("without variables: none were saved; /snapshot in a chat saves them")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        about = {"format": FORMAT, "session_id": source.session_id, "exported_at": time.time()}
        bundle.writestr(DESCRIPTION, json.dumps({**about, "title": source.title}))
        for one in files:
            try:
                _add(bundle, one)
            except FileNotFoundError:  # code removes its files at any time
                notes.append(f"gone before it could be copied: {_shown_name(one.path)}")
            except PermissionError:
                shown = _shown_name(one.path)
                notes.append(f"not in the bundle, because it may not be read: {shown}")
    return tuple(notes)


def _named_files(
    source: ExportSource, *, with_given: bool
) -> tuple[dict[str, FileOfSession], list[str]]:
    """The files that the session names, by their place in a bundle; and those that are not its."""
    named: dict[str, FileOfSession] = {}
    elsewhere: set[str] = set()
    for event in source.read():
        for name in (*_artifact_names(event), *(_given_names(event) if with_given else ())):
            if found := source.find_file(name):
                named.setdefault(found.name, found)
            else:
                elsewhere.add(_shown_name(name))
    listed = sorted(elsewhere)
    more = [f"and {len(listed) - _MAX_LISTED} more"] if len(listed) > _MAX_LISTED else []
    return named, listed[:_MAX_LISTED] + more


def _shown_name(name: str) -> str:
    """A name from a session, which may be anything, fit for one line of a terminal."""
    return " ".join(plain(name).split())[:_MAX_NAME_CHARS]


def _artifact_names(event: TaskWeaverEvent) -> Iterator[str]:
    extra: Mapping[str, object] = event.extra
    said = extra.get("event")
    if isinstance(said, ArtifactProduced) and said.artifact.file_name:
        yield said.artifact.file_name
    elif extra.get("type") is AttachmentType.artifact_paths and isinstance(extra["extra"], list):
        yield from (name for name in extra["extra"] if isinstance(name, str))


def _given_names(event: TaskWeaverEvent) -> Iterator[str]:
    """The names of files that were given to the session."""
    if event.t in (RoundEventType.round_start, SessionEventType.session_files_added):
        given: Mapping[str, Any] = event.extra
        yield from given.get("files", ())


def _add(bundle: zipfile.ZipFile, one: FileOfSession) -> None:
    descriptor = open_beneath(one.root, one.path)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        changed = time.localtime(max(found.st_mtime, 315_619_200))[:6]  # zip knows none before 1980
        entry = zipfile.ZipInfo(f"{CONTENT}/{one.name}", changed)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o100600 << 16
        with bundle.open(entry, "w", force_zip64=True) as target:
            _copy(file, target, found.st_size)


def _copy(file: IO[bytes], target: IO[bytes], size: int) -> None:
    """Copy what was there at the beginning; code may write on for ever."""
    while size > 0 and (data := file.read(min(size, _CHUNK_BYTES))):
        target.write(data)
        size -= len(data)
