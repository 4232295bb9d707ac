"""Files of data that a project brings, read within bounds: the bytes, and JSON.

A file may come from elsewhere: neither its size nor its depth may cost more than a file that
somebody wrote by hand. `yaml_files` reads YAML under the same rules.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from taskweaver_ext.text.json_depth import is_nested_deeper

MOST_BYTES = 1 << 20
MOST_DEPTH = 100

_NONBLOCKING = 0 if os.name == "nt" else os.O_NONBLOCK


class DataFileError(ValueError):
    """The content cannot be used; the message says why, and not which file it was."""


def read_text(path: Path) -> str:
    """Return the text of an ordinary file of ordinary size.

    Raises:
        OSError: It cannot be read.
        DataFileError: It is something else, too large, or no UTF-8.
    """
    # A pipe would be waited for until somebody writes to it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NONBLOCKING)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataFileError("it is no ordinary file")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise DataFileError(f"it has more than {MOST_BYTES:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataFileError(str(error)) from error


def read_json(path: Path) -> Any:  # noqa: ANN401  what the file holds
    """Return what a JSON file holds.

    Raises:
        OSError: It cannot be read.
        DataFileError: It is not JSON, or too much of it.
    """
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:  # noqa: ANN401  what the text holds
    """Return what a JSON text holds.

    Raises:
        DataFileError: It is not JSON, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise DataFileError(str(error)) from error
    if is_nested_deeper(value, MOST_DEPTH):
        raise too_deep()
    return value


def too_deep() -> DataFileError:
    """Return what to raise for content that is nested more than `MOST_DEPTH` levels deep."""
    return DataFileError(f"it is nested more than {MOST_DEPTH} levels deep")
