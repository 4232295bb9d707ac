"""`taskweaver-ext sessions replay`: run a session's code again, and see what differs."""

from __future__ import annotations

from pathlib import Path

import click

from taskweaver_ext.cli.options import cwd_option, kernel_option, project_option


@click.command()
@click.argument("session_id", metavar="ID")
@project_option
@kernel_option
@cwd_option("Where the code works, which may change it; a fresh folder by default.")
@click.option("--until", type=click.IntRange(min=1), metavar="N", help="Run no cell after cell N.")
@click.option(
    "--keep-going/--stop",
    default=True,
    show_default=True,
    help="Go on after a difference, or stop there.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per cell, then a summary.")
@click.option(
    "--snapshot",
    is_flag=True,
    help="Keep one kernel throughout, and save its variables for chat --resume --with-variables.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before the code runs.")
def replay(
    session_id: str,
    project: Path | None,
    kernel: str | None,
    cwd: Path | None,
    until: int | None,
    keep_going: bool,
    as_json: bool,
    snapshot: bool,
    yes: bool,
) -> int:
    """Run the code of a session again, in order, and show where it differs.

    It runs on a fresh kernel and shell, in a fresh working folder with copies of the files that
    were given to the session, also where the session worked in a folder of yours: --cwd names that
    one, if the code needs other files of it. What it does elsewhere (other folders, network,
    databases) it does again. No model is asked; the session itself is not changed.

    Compared are output, values, errors, pictures (by hash), logs and how each cell ended. Times of
    the run, durations, addresses, temporary paths and random ids are not, and are counted. input()
    is answered as it was; passwords are never kept, so you are asked.

    Exit codes: 0 no difference, 1 a difference, 2 misused, 130 interrupted.
    """
    from taskweaver_ext.cli.replay_session import replay_session

    return replay_session(
        session_id,
        project,
        kernel=kernel,
        cwd=cwd,
        until=until,
        keep_going=keep_going,
        as_json=as_json,
        with_snapshot=snapshot,
        is_agreed=yes,
    )
