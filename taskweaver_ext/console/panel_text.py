"""What an execution panel says, in words.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskweaver_ext.console.rows import cell_width

_DOING = {"gen": "writing code", "exec": "running code"}
_COLUMNS = ("filename", "mime", "visibility")


def describe_contract(payload: Mapping[str, Any]) -> str:
    """The files that code promises to make, as a table under their number."""
    files = payload.get("contract") or []
    table = [[str(file.get(name) or "") for name in _COLUMNS] for file in files]
    widths = [max(map(cell_width, column)) for column in zip(*table, strict=True)]
    lines = [f"{len(files)} file{'s' if len(files) != 1 else ''} promised"]
    for cells, file in zip(table, files, strict=True):
        padded = [
            cell + " " * (width - cell_width(cell))
            for cell, width in zip(cells, widths, strict=True)
        ]
        lines.append("  ".join([*padded, str(file.get("description") or "")]).rstrip())
    return "\n".join(lines)


def describe_status(payload: Mapping[str, Any]) -> str:
    """What is being done, if anything is."""
    return _DOING.get(str(payload.get("status")), "")


def describe_timings(payload: Mapping[str, Any]) -> str:
    """How long it took, once it has ended."""
    timings = payload.get("timings") or {}
    if payload.get("status") not in ("done", "error"):
        return ""
    return ", ".join(
        f"{what} in {timings[name] / 1000:.1f} s"
        for name, what in (("codegen", "written"), ("exec", "ran"))
        if timings.get(name) is not None
    )
