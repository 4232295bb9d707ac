"""`taskweaver-ext chat`: talk to the agent, run Python and shell, and watch it all."""

from __future__ import annotations

from pathlib import Path

import click

from taskweaver_ext.config.settings import EnvMode


@click.command(short_help="Talk to the agent, run Python and shell, and watch it all.")
@click.option(
    "-p",
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project's folder; by default the nearest one upwards.",
)
@click.option(
    "--kernel",
    type=click.Choice([mode.value for mode in EnvMode]),
    help="Where code runs; as the project says by default.",
)
def command(project: Path | None, kernel: str | None) -> int:
    """Talk to the agent, run Python (> code) and shell (! command), and watch it all.

    /help in the chat shows what it can do. Without a terminal, each line of
    standard input is a request.

    Exit codes: 0 done, 1 a request failed, 2 misused, 130 interrupted.
    """
    from taskweaver_ext.cli.open_chat import open_chat  # `--help` does without all this

    return open_chat(project, kernel)
