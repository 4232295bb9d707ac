"""Finds out which session a person wants to continue."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from taskweaver_ext.chat.session_table import session_table
from taskweaver_ext.errors import SessionError
from taskweaver_ext.session.saved import list_sessions

MAX_LISTED = 20


def choose_session(workspace: Path) -> str:
    """Return the id of the session that a person chooses; the only one without asking.

    Raises:
        SessionError: There is none, or none can be chosen.
    """
    sessions = [one for one in list_sessions(workspace) if one.round_count][:MAX_LISTED]
    if not sessions:
        raise SessionError(f"There is no session to continue in {workspace}.")
    if len(sessions) == 1:
        return sessions[0].session_id
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SessionError(
            f"There are {len(sessions)} sessions to continue. Say which: --resume ID;"
            " taskweaver-ext sessions list shows them."
        )
    for line in session_table(sessions, is_numbered=True):
        click.echo(line, err=True)
    numbers = [str(number) for number in range(1, len(sessions) + 1)]
    while (chosen := click.prompt("Which one?", default="1", err=True).strip()) not in numbers:
        click.echo(f"Type a number from 1 to {len(sessions)}; Ctrl-C leaves.", err=True)
    return sessions[int(chosen) - 1].session_id
