"""What an export is made of: the events of a session, and the files that they refer to."""

from __future__ import annotations

import base64
import binascii
import json
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from taskweaver_ext.ces.execution.files_beneath import open_beneath, regular_file_beneath
from taskweaver_ext.ces.execution.results import ExecutionArtifact
from taskweaver_ext.events.types import RoundEventType, TaskWeaverEvent
from taskweaver_ext.session.blocks import (
    OWN_FOLDER,
    Block,
    Cell,
    DisplayOutput,
    LeftOut,
    QuestionOutput,
    SessionNotice,
    read_blocks,
)
from taskweaver_ext.text.terminal import strip_terminal
from taskweaver_ext.text.truncation import left_out_marker

MAX_TITLE_CHARS = 80
MAX_CELL_CHARS = 40_000
"""How much of a cell's output is in a document: about a thousand lines."""
MAX_DISPLAY_BYTES = 16 * 1024 * 1024
"""A larger part of a display stays where it is, which the export says."""

ENCODED_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
"""What bundles hold in base64."""
PICTURE_TYPES = ("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")


class FileOfSession(NamedTuple):
    """A file that a session names, where it is there."""

    root: Path
    path: str
    """From there."""
    name: str
    """Its place in the folder of a session that has all its files in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSource:
    """A session that is to be exported."""

    session_id: str
    folder: Path
    """Where its displays and records are."""
    read: Callable[[], Iterable[TaskWeaverEvent]]
    """Returns its events from the first on, anew each time."""
    folders: Sequence[Path | None] = (None,)
    """Where its code has worked, the folder of now last; None: in the session's own."""

    @property
    def working_folder(self) -> Path | None:
        """The person's folder in which it works now; None: its own.

        What events name is looked for there, too. A folder of earlier days is not: in a session
        that was brought from elsewhere it could be any, such as one with keys.
        """
        return self.folders[-1]

    def find_file(self, name: str) -> FileOfSession | None:
        """Find a file that an event names, in the session's folder or where it works now."""
        for folder in (None, *self.folders):
            inside = name if folder is None else _beneath(folder, name)
            if inside and (found := file_in_session(self.folder, inside)):
                return FileOfSession(self.folder, found, found)
        if self.working_folder is not None:
            root = self.working_folder.resolve()
            if found_here := regular_file_beneath(root, name):
                path = found_here.relative_to(root).as_posix()
                return FileOfSession(root, path, f"{OWN_FOLDER}/{path}")
        return None

    @property
    def title(self) -> str:
        """The first words of the first request; empty before there is one."""
        for event in self.read():
            if event.t is RoundEventType.round_start and "user_query" in event.extra:
                words = str(event.extra["user_query"])[: 10 * MAX_TITLE_CHARS]
                return textwrap.shorten(words, MAX_TITLE_CHARS, placeholder="…")
        return ""

    @property
    def began_at(self) -> float:
        """When the session began, in seconds since 1970; 0 before that."""
        return next((event.at for event in self.read() if event.at), 0.0)

    def blocks(self) -> Iterator[Block]:
        """The session, read back."""
        return read_blocks(self.read, max_chars=MAX_CELL_CHARS)

    def bundle_of(self, display: DisplayOutput) -> dict[str, Any]:
        """Everything a display has to show, by MIME type, files included where they are there."""
        bundle = {kind: value for kind, value in display.bundle.items() if _is_ours_to_show(kind)}
        for kind, name in display.files.items():
            if not _is_ours_to_show(kind):
                continue
            content = _content(self.folder, name)
            if content is None:
                place = f"[{kind}: {name} in the session's folder]"
                bundle["text/plain"] = f"{bundle.get('text/plain', '')}\n{place}".strip()
            else:
                bundle[kind] = bundle_value(kind, content)
        return bundle

    def picture_of(self, artifact: ExecutionArtifact, cell: Cell) -> tuple[str, bytes] | None:
        """The picture that an artifact is, with its MIME type; None when it is none, or is shown.

        A figure that code shows is an artifact and a display.
        """
        kind = artifact.mime_type or {"svg": "image/svg+xml"}.get(artifact.type, "")
        if kind not in PICTURE_TYPES:
            return None
        content = self._content_of(artifact)
        if content is None or content in self._pictures_shown(cell, kind):
            return None
        return kind, content

    def artifact_text(self, artifact: ExecutionArtifact) -> str:
        """A file that code made, in a line; one of the session's by its place in its folder."""
        place = artifact.file_name or artifact.original_name
        found = self.find_file(place)
        if found is not None:
            place = found.path
        return f"File made: {artifact.name} ({artifact.type}): {place}"

    def _content_of(self, artifact: ExecutionArtifact) -> bytes | None:
        if artifact.file_content:
            if artifact.file_content_encoding == "base64":
                return _decoded(artifact.file_content)
            return artifact.file_content.encode("utf-8", "replace")
        found = self.find_file(artifact.file_name)
        return _content(found.root, found.path) if found else None

    def _pictures_shown(self, cell: Cell, kind: str) -> Iterator[bytes | None]:
        for output in cell.outputs:
            if isinstance(output, DisplayOutput) and kind in {*output.bundle, *output.files}:
                yield picture_bytes(kind, self.bundle_of(output).get(kind))


def file_in_session(folder: Path, name: str) -> str | None:
    """Where a file that an event names is beneath the session's folder, if it is there.

    A session that was brought from another machine names its files as they were called there.
    """
    root = folder.resolve()
    tails = [name, f"{OWN_FOLDER}/{name}"]
    parts = PurePosixPath(name.replace("\\", "/")).parts
    for top in (OWN_FOLDER, "ces"):
        if top in parts:
            last = len(parts) - 1 - parts[::-1].index(top)
            tails.append("/".join(parts[last:]))
    for tail in tails:
        if found := regular_file_beneath(root, tail):
            return found.relative_to(root).as_posix()
    return None


def _beneath(folder: Path, name: str) -> str:
    """The path of a file from the folder that it was in on whichever machine; else nothing."""
    try:
        return PurePosixPath(name).relative_to(folder.as_posix()).as_posix()
    except ValueError:
        return ""


def _content(root: Path, name: str) -> bytes | None:
    """Return what a file beneath a folder holds, unless it is too large, or not there."""
    try:
        descriptor = open_beneath(root.resolve(), name)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > MAX_DISPLAY_BYTES:
            return None
        return file.read(MAX_DISPLAY_BYTES)


def picture_bytes(kind: str, value: object) -> bytes | None:
    """Return the picture that a bundle holds under a MIME type; None when it makes no sense."""
    if not isinstance(value, str) or kind not in PICTURE_TYPES:
        return None
    if kind == "image/svg+xml":
        return value.encode("utf-8", "replace")
    return _decoded(value)


def bundle_value(kind: str, content: bytes) -> object:
    """Turn the content of a file into what a bundle holds: the inverse of writing it."""
    if kind in ENCODED_TYPES or kind.startswith(("audio/", "video/")):
        return base64.b64encode(content).decode("ascii")
    text = content.decode("utf-8", "replace")
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def label_of(cell: Cell) -> str:
    """A cell's state in a few words: who wrote it, how it ended, how long it took."""
    who = "you" if cell.by == "person" else "agent"
    ends = {
        "success": "ok",
        "error": "failed",
        "timeout": "timed out",
        "cancelled": "cancelled",
        "died": "kernel died",
        "paused": "paused",
        "running": "still running",
        "lost": "lost with its process",
        "refused": "not allowed to run",
        "not_run": "did not run",
    }
    parts = [cell.language, who, ends[cell.status]]
    if cell.duration_seconds is not None and cell.has_run:
        parts.append(seconds_text(cell.duration_seconds))
    if cell.is_edited:
        parts.append("edited by you")
    return " · ".join(parts)


def seconds_text(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def time_text(at: float) -> str:
    """A moment as people write it, in the time of this machine; empty when it is not known."""
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}" if at else ""


def gap_text(gap: LeftOut) -> str:
    """What stands for output that is left out: how much, and where the whole is."""
    where = ", ".join(gap.paths.values())
    marker = left_out_marker(gap.characters, gap.lines, where=f"{where} in the session's folder")
    return f"{marker}\n" + (f"[... {gap.others} displays left out ...]\n" if gap.others else "")


def question_text(question: QuestionOutput) -> str:
    """What a person was asked, and what the answer was."""
    outcome = question.outcome or "never answered"
    if question.kind == "approval":
        why = " ".join(question.reasons)
        return f"[{question.prompt} {why}] {outcome}".strip()
    if question.kind == "password" and outcome == "answered":
        return f"{question.prompt}[hidden]"
    return f"{question.prompt}{question.answer if outcome == 'answered' else f'[{outcome}]'}"


def notice_label(notice: SessionNotice) -> str:
    """What kind of notice it is, in a word."""
    return {"summary": "Earlier rounds, summarised"}.get(notice.kind, notice.kind.capitalize())


def plain(text: str) -> str:
    """A text that any file can hold, without anything that could drive a terminal."""
    return whole_characters(strip_terminal(text))


def whole_characters(text: str) -> str:
    """Replace what is half a character: such a text cannot be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def json_text(value: object) -> str:
    """A JSON value as people read it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _is_ours_to_show(kind: str) -> bool:
    return not kind.startswith("application/vnd.taskweaver.")


def _decoded(value: str) -> bytes | None:
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
