"""`taskweaver-ext sessions`: what earlier chats left, to be listed, shown and deleted."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from pathlib import Path

import click

from taskweaver_ext.cli.options import project_option, workspace_of
from taskweaver_ext.cli.sessions_export import export, import_command
from taskweaver_ext.cli.sessions_replay import replay

_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_DEFAULT_LAST = 10


def _read_age(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """Return an age such as 30d in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([hdw])", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no age; write 12h, 30d or 8w.")
    return float(match[1]) * _SECONDS[match[2]]


@click.group(short_help="List, show, export, import, replay and delete the sessions of a project.")
def command() -> None:
    """List, show, export, import, replay and delete the sessions of a project.

    `chat --resume` and `ask --resume` continue one. ID may be the beginning of an id.
    """


@command.command("list")
@project_option
@click.option("--json", "as_json", is_flag=True, help="One JSON array, for programs.")
def list_command(project: Path | None, as_json: bool) -> None:
    """List the sessions, the one that was used last first."""
    from taskweaver_ext.chat.session_table import session_table
    from taskweaver_ext.session.saved import list_sessions

    workspace = workspace_of(project)
    sessions = list_sessions(workspace)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in sessions], indent=2))
    elif not sessions:
        click.echo(f"no sessions in {workspace}", err=True)
    else:
        for line in session_table(sessions):
            click.echo(line)


@command.command()
@click.argument("session_id", metavar="ID")
@project_option
@click.option("--json", "as_json", is_flag=True, help="Its events, one JSON object per line.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    help=f"Show the last N requests; {_DEFAULT_LAST} by default, with --json all.",
)
def show(session_id: str, project: Path | None, as_json: bool, last: int | None) -> None:
    """Show the conversation of a session as it was seen."""
    from taskweaver_ext.cli.show_session import print_events, print_session
    from taskweaver_ext.session.saved import find_session

    saved = find_session(workspace_of(project), session_id)
    if as_json:
        print_events(saved, last)
    else:
        print_session(saved, last or _DEFAULT_LAST)


@command.command()
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
@project_option
@click.option(
    "--older-than", callback=_read_age, metavar="AGE", help="All not used for 12h, 30d, 8w."
)
def delete(session_ids: tuple[str, ...], project: Path | None, older_than: float | None) -> int:
    """Delete sessions for good, with the files that code made in their folders.

    Exit codes: 0 done, 1 one of them cannot be deleted, 2 misused.
    """
    from taskweaver_ext.errors import SessionError
    from taskweaver_ext.session.saved import delete_session, find_folder, list_sessions

    if bool(session_ids) == (older_than is not None):
        raise click.UsageError("Say which: ID..., or --older-than AGE.")
    workspace = workspace_of(project)
    if older_than is None:
        folders = [find_folder(workspace, one) for one in session_ids]
    else:
        limit = time.time() - older_than
        sessions = workspace / "sessions"
        folders = [
            sessions / one.session_id
            for one in list_sessions(workspace)
            if one.last_used_at < limit and not one.opened_by
        ]
    exit_code = 0
    for folder in dict.fromkeys(folders):
        try:
            delete_session(folder)
            click.echo(f"deleted {folder.name}")
        except SessionError as error:
            click.echo(f"error: {error}", err=True)
            exit_code = 1
    return exit_code


command.add_command(export)
command.add_command(import_command)
command.add_command(replay)
