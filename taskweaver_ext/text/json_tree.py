"""A JSON value as an indented tree that people and models read at a glance.

Pure, and bounded: what is too deep, too long or too much is cut with a note that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MAX_LINES = 200
MAX_DEPTH = 8
MAX_TEXT = 200


def json_tree(value: object, *, max_lines: int = MAX_LINES) -> str:
    """Return the value with one line for each key and item."""
    lines: list[str] = []
    for line in _lines(value, "", 0):
        if len(lines) == max_lines:
            lines.append("…")
            break
        lines.append(line)
    return "\n".join(lines)


def _lines(value: object, label: str, depth: int) -> Iterator[str]:
    """The lines of a value, whose first begins with its label."""
    indentation = "  " * depth
    prefix = f"{indentation}{label}: " if label else indentation
    if not isinstance(value, dict | list) or not value:
        yield prefix + _leaf(value)
        return
    yield f"{prefix}{_size(value)}"
    if depth >= MAX_DEPTH:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from _lines(item, key if isinstance(key, str) else f"[{key}]", depth + 1)


def _size(value: dict[str, Any] | list[Any]) -> str:
    if isinstance(value, dict):
        return f"{{{len(value)} {'key' if len(value) == 1 else 'keys'}}}"
    return f"[{len(value)} {'item' if len(value) == 1 else 'items'}]"


def _leaf(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
