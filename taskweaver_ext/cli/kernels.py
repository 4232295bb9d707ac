"""`taskweaver-ext kernels`: which kernels live on this machine, and whose they are."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click

from taskweaver_ext.ces.sessions.session_info import SessionInfo, sessions_of_this_user
from taskweaver_ext.machine.owned_folders import remove_abandoned_folders
from taskweaver_ext.text.table import aligned, duration

_HEADINGS = ("SESSION", "HOST", "STATE", "PID", "MEMORY", "AGE", "LAST USE", "OWNER", "FOLDER")
_MEBIBYTE = 1 << 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array, for programs.")
@click.option("--clean", is_flag=True, help="First remove what stale ones left on the disk.")
def command(as_json: bool, clean: bool) -> None:
    """List the kernels of all your processes on this machine.

    A stale one is what a program left behind that was killed; its kernel has ended with it.
    """
    if clean:
        click.echo(f"removed: {len(remove_abandoned_folders())}", err=True)
    sessions = sessions_of_this_user()
    if as_json:
        click.echo(json.dumps([asdict(session) for session in sessions], indent=2))
    elif not sessions:
        click.echo("no kernels", err=True)
    else:
        now = time.time()
        for line in aligned([_HEADINGS, *(_row(session, now) for session in sessions)]):
            click.echo(line)


def _row(session: SessionInfo, now: float) -> tuple[str, ...]:
    memory = session.memory_bytes
    return (
        session.session_id,
        session.mode,
        session.state,
        str(session.pid or "-"),
        "-" if memory is None else f"{memory // _MEBIBYTE} MiB",
        duration(now - session.created_at),
        "now" if session.state == "busy" else f"{duration(now - session.last_used_at)} ago",
        str(session.owner_pid),
        session.cwd,
    )
