"""Large parts of displays as files of the session, so that events stay small.

A picture of ten megabytes travels as a path; readers that want it fetch it.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import logging
import mimetypes
import os
from dataclasses import replace
from pathlib import Path

from taskweaver_ext.ces.execution.events import DisplayProduced, DisplayUpdated
from taskweaver_ext.machine.private_files import make_private_folder, open_private

MAX_BUNDLE_CHARACTERS = 64 * 1024
_FOLDER = "displays"
_ENCODED = ("image/", "application/pdf", "audio/", "video/")
"""What bundles hold in base64; SVG, which is text, does not decode and stays text."""

_logger = logging.getLogger(__name__)


class DisplayFiles:
    """Writes the large displays of one execution beneath the session's folder."""

    def __init__(self, session_dir: Path) -> None:
        self._session_dir = session_dir
        self._numbers = itertools.count(1)

    def store(self, event: DisplayProduced | DisplayUpdated) -> DisplayProduced | DisplayUpdated:
        """Return the event with its largest parts in files, until the rest is small."""
        sizes = {kind: _size(value) for kind, value in event.bundle.items()}
        too_much = sum(sizes.values()) - MAX_BUNDLE_CHARACTERS
        bundle = dict(event.bundle)
        event = replace(event, files={k: self._beneath(path) for k, path in event.files.items()})
        files = dict(event.files)
        for kind in sorted(sizes, key=lambda one: sizes[one], reverse=True):
            if too_much <= 0:
                break
            name = f"{_FOLDER}/{event.execution_id}-{next(self._numbers)}{_suffix(kind)}"
            try:
                self._write(name, content_of(kind, bundle[kind]))
            except OSError as error:  # a full disk: it travels whole
                _logger.warning("A display cannot be kept in %s: %s", name, error)
                return event
            files[kind] = name
            del bundle[kind]
            too_much -= sizes[kind]
        return replace(event, bundle=bundle, files=files)

    def _beneath(self, path: str) -> str:
        return Path(path).relative_to(self._session_dir).as_posix()

    def _write(self, name: str, content: bytes) -> None:
        path = self._session_dir / name
        make_private_folder(path.parent)
        with open(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(content)


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))


def _suffix(kind: str) -> str:
    return mimetypes.guess_extension(kind.partition(";")[0]) or ".bin"


def content_of(kind: str, value: object) -> bytes:
    """Return what a bundle holds under a MIME type as the content of a file."""
    if not isinstance(value, str):
        return json.dumps(value, default=str).encode()
    if kind.startswith(_ENCODED):
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError):
            pass  # it was text after all
    return value.encode("utf-8", "surrogatepass")
