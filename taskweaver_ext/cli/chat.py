"""`taskweaver-ext chat`: talk to the agent, run Python and shell, and watch it all."""

from __future__ import annotations

from pathlib import Path

import click

from taskweaver_ext.cli.options import cwd_option, kernel_option, project_option


@click.command(short_help="Talk to the agent, run Python and shell, and watch it all.")
@project_option
@kernel_option
@cwd_option("Where code works; here by default, and with --resume where the session did.")
@click.option(
    "--resume",
    metavar="[ID]",
    is_flag=False,
    flag_value="",
    help="Continue a session; without ID, the one you choose from a list.",
)
@click.option("--with-variables", is_flag=True, help="With --resume: with what /snapshot saved.")
@click.option(
    "--trust",
    is_flag=True,
    help="Load these variables also if you have not saved them on this machine; code in them runs.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Be driven by a program: commands in, events out."
)
def command(
    project: Path | None,
    kernel: str | None,
    cwd: Path | None,
    resume: str | None,
    with_variables: bool,
    trust: bool,
    as_json: bool,
) -> int:
    """Talk to the agent, run Python (> code) and shell (! command), and watch it all.

    /help in the chat shows what it can do. Without a terminal, each line of
    standard input is a request. With --json, each line is a command, and each
    line of standard output an event or a reply, in JSON; the docstring of
    taskweaver_ext/chat/protocol.py has all of it on one page.

    Exit codes: 0 done, 1 a request failed, 2 misused, 130 interrupted.
    """
    if with_variables and resume is None:
        raise click.UsageError("--with-variables is for --resume.")
    if trust and not with_variables:
        raise click.UsageError("--trust is for --with-variables.")
    # `--help` does without all this.
    if as_json:
        from taskweaver_ext.cli.json_frontend import chat_as_json

        if resume == "":
            raise click.UsageError("With --json, --resume needs the ID of a session.")
        if with_variables:
            raise click.UsageError("--with-variables does not go with --json.")
        return chat_as_json(project, kernel, resume, cwd)
    from taskweaver_ext.cli.open_chat import open_chat

    return open_chat(project, kernel, resume, cwd=cwd, with_variables=with_variables, trust=trust)
