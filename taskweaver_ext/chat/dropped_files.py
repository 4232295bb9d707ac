"""Files whose paths a person has pasted, or a terminal has typed when they were dropped on it."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

_BEGINNINGS = ("/", "~/", "./", "../", "file://")


def dropped_files(line: str) -> list[Path]:
    """Return the files that a line names and nothing else: quoted, escaped, or as `file://`.

    A word alone is none: a request may be one word, and a file may be called like it.
    """
    if not line.lstrip(" '\"").startswith(_BEGINNINGS):
        return []
    # A path with spaces may also come as it is.
    candidates = [[line.strip()]]
    with contextlib.suppress(ValueError):  # a quote that does not end
        candidates.insert(0, shlex.split(line))
    for words in candidates:
        paths = [_path(word) for word in words]
        files = [path for path in paths if path is not None and _is_file(path)]
        if files and len(files) == len(words):
            return files
    return []


def _path(word: str) -> Path | None:
    if not word.startswith(_BEGINNINGS):
        return None
    if word.startswith("file://"):
        parts = urlsplit(word)
        return Path(unquote(parts.path)) if parts.netloc in ("", "localhost") else None
    return Path(word).expanduser()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
