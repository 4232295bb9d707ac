"""A list of sessions for people: what each was about, and how to call it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from taskweaver_ext.session.saved import SessionSummary
from taskweaver_ext.text.table import aligned, byte_count, duration
from taskweaver_ext.text.terminal import strip_terminal

_INDENT = "    "
_HEADINGS = ("ID", "LAST USE", "ROUNDS", "SIZE", "ABOUT")


def session_table(
    sessions: Sequence[SessionSummary],
    *,
    is_numbered: bool = False,
    current: str = "",
    width: int | None = None,
) -> list[str]:
    """Return lines with the sessions, for a person to choose from if they are numbered.

    Args:
        current: The id of the session in which the person asks.
        width: Of the screen; where it is too narrow for a line, what a session was about stands
            on a line of its own.
    """
    now = time.time()
    rows = [_HEADINGS, *(_row(one, now, current) for one in sessions)]
    if is_numbered:
        rows = [(str(number or ""), *row) for number, row in enumerate(rows)]
    lines = aligned(rows)
    if width is None or max(map(len, lines)) <= width:
        return lines
    short = aligned([row[:-1] for row in rows])
    lines = short[:1]
    for line, row in zip(short[1:], rows[1:], strict=True):
        lines += [line, f"{_INDENT}{row[-1]}"]
    return lines


def _row(session: SessionSummary, now: float, current: str) -> tuple[str, ...]:
    about = session.title or "(nothing was asked)"
    if session.problem:
        about = f"(cannot be read: {session.problem})"
    is_open = bool(session.opened_by)
    if session.session_id == current:
        about += " [this session]"
    elif is_open:
        about += f" [open in {session.opened_by}]"
    return (
        strip_terminal(session.session_id),
        "open now" if is_open else f"{duration(now - session.last_used_at)} ago",
        str(session.round_count),
        byte_count(session.size_bytes),
        strip_terminal(about),
    )
