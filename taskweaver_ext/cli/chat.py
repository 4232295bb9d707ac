"""`taskweaver-ext chat`: talk to the agent, run Python and shell, and watch it all."""

from __future__ import annotations

from pathlib import Path

import click

from taskweaver_ext.cli.options import kernel_option, project_option


@click.command(short_help="Talk to the agent, run Python and shell, and watch it all.")
@project_option
@kernel_option
@click.option(
    "--resume",
    metavar="[ID]",
    is_flag=False,
    flag_value="",
    help="Continue a session; without ID, the one you choose from a list.",
)
def command(project: Path | None, kernel: str | None, resume: str | None) -> int:
    """Talk to the agent, run Python (> code) and shell (! command), and watch it all.

    /help in the chat shows what it can do. Without a terminal, each line of
    standard input is a request.

    Exit codes: 0 done, 1 a request failed, 2 misused, 130 interrupted.
    """
    from taskweaver_ext.cli.open_chat import open_chat  # `--help` does without all this

    return open_chat(project, kernel, resume)
