"""The files that executions make: where they are kept and which of them are believed.

Messages that announce a file come from code that may lie. A path in them is
followed beneath the folders of the session only, and through no symbolic link.
"""

from __future__ import annotations

import base64
import mimetypes
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from taskweaver_ext.ces.execution.files_beneath import regular_file_beneath
from taskweaver_ext.ces.execution.results import ExecutionArtifact, ExecutionId
from taskweaver_ext.machine.private_files import make_private_folder, open_private

IMAGE_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif",
                  "image/webp": ".webp", "image/svg+xml": ".svg"}  # fmt: skip
MAX_CONTENT_BYTES = 64 << 20
"""Of a file that code announces with its content; a larger one is not kept."""

INCOMPLETE: Literal["incomplete"] = "incomplete"
"""Stands for a file of which more is to come."""

_MAX_INCOMPLETE = 16
_MAX_TEXT_CHARACTERS = 1000
"""Of a name or a preview; the contents are in the file."""


class ArtifactStore:
    """Keep the artifacts of one session."""

    def __init__(self, folder: Path, working_directory: Path) -> None:
        self._folder = folder
        self._working_directory = working_directory
        self._incomplete: dict[str, int] = {}
        """How many bytes have come of each file of which more is to come."""

    def save_images(
        self,
        execution_id: ExecutionId,
        number: int,
        bundle: Mapping[str, Any],
        files: Mapping[str, Path] = MappingProxyType({}),
    ) -> list[ExecutionArtifact]:
        """Save the images of a display bundle, of which the large ones are files already."""
        artifacts = []
        for mime_type, suffix in IMAGE_SUFFIXES.items():
            name = f"{execution_id}-{number}{suffix}"
            content: bytes | Path
            if mime_type in files:
                content = files[mime_type]
            elif isinstance(value := bundle.get(mime_type), str):
                try:
                    content = value.encode() if suffix == ".svg" else base64.b64decode(value)
                except ValueError:
                    continue
            else:
                continue
            artifacts.append(
                ExecutionArtifact(
                    name=name,
                    type="svg" if suffix == ".svg" else "image",
                    mime_type=mime_type,
                    original_name=name,
                    file_name=str(
                        self._copy(name, content)
                        if isinstance(content, Path)
                        else self._write(name, content)
                    ),
                    preview=_short(bundle.get("text/plain")),
                )
            )
        return artifacts

    def accept(
        self, announcement: Mapping[str, Any]
    ) -> ExecutionArtifact | Literal["incomplete"] | None:
        """Believe the announcement of a file if the file is one of the session's; else None.

        A content comes in pieces, in order; all but the last are INCOMPLETE.
        """
        name = _short(announcement.get("original_name") or announcement.get("name") or "artifact")
        if "content" in announcement:
            path = self._keep_content(str(announcement.get("id", "artifact")), name, announcement)
        else:
            path = regular_file_beneath(self._working_directory, str(announcement.get("path", "")))
        if path is None or path == INCOMPLETE:
            return path
        return ExecutionArtifact(
            name=_short(announcement.get("name")),
            type=_short(announcement.get("type", "file")),
            mime_type=mimetypes.guess_type(name)[0] or "",
            original_name=name,
            file_name=str(path),
            preview=_short(announcement.get("preview")),
        )

    def _keep_content(
        self, file_id: str, name: str, announcement: Mapping[str, Any]
    ) -> Path | Literal["incomplete"] | None:
        file_name = f"{_plain(file_id)}_{_plain(name)}"
        try:
            content = base64.b64decode(str(announcement["content"]), validate=True)
        except ValueError:
            return None
        offset, size = announcement.get("offset", 0), announcement.get("size", len(content))
        if type(offset) is not int or type(size) is not int or size > MAX_CONTENT_BYTES:
            return None
        end = offset + len(content)
        if offset != self._incomplete.pop(file_name, 0) or end > size:
            return None
        path = self._write(file_name, content, os.O_APPEND if offset else os.O_TRUNC)
        if end == size:
            return path
        if len(self._incomplete) >= _MAX_INCOMPLETE:
            return None
        self._incomplete[file_name] = end
        return INCOMPLETE

    def _copy(self, name: str, source: Path) -> Path:
        """Have another name for a file, or where that cannot be, a copy."""
        make_private_folder(self._folder)
        path = self._folder / name
        path.unlink(missing_ok=True)
        try:
            os.link(source, path)
        except OSError:
            shutil.copyfile(source, path)
        return path

    def _write(self, name: str, content: bytes, flag: int = os.O_TRUNC) -> Path:
        make_private_folder(self._folder)
        path = self._folder / name
        with open(open_private(path, os.O_WRONLY | flag), "wb") as file:
            file.write(content)
        return path


def _short(text: object) -> str:
    return "" if text is None else str(text)[:_MAX_TEXT_CHARACTERS]


def _plain(name: str) -> str:
    """A file name without anything that means something to a path."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in os.path.basename(name)) or "_"
