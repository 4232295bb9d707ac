"""`taskweaver-ext ask`: one request, its answer on standard output, the work on standard error."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from taskweaver_ext.cli.options import cwd_option, kernel_option, project_option
from taskweaver_ext.config.settings import ApprovalMode


@click.command(short_help="Have one request done, and exit.")
@click.argument("request", nargs=-1, required=True)
@project_option
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Give a file to the session; may be repeated.",
)
@kernel_option
@cwd_option("Where code works; here by default, and with --resume where the session did.")
@click.option(
    "--approve",
    type=click.Choice(["ask", "auto", "deny"]),
    default="ask",
    show_default=True,
    help="What the agent may run. ask: what would need a person's word, such as shell code on this"
    " machine, is refused, since nobody is there to give it; auto: all of it; deny: nothing.",
)
@click.option("--resume", metavar="ID", help="Ask in a session that was there before.")
@click.option("--json", "as_json", is_flag=True, help="Write what happens as JSON, a line each.")
def command(
    request: tuple[str, ...],
    project: Path | None,
    files: tuple[Path, ...],
    kernel: str | None,
    cwd: Path | None,
    approve: ApprovalMode,
    resume: str | None,
    as_json: bool,
) -> int:
    """Have one request done, and exit.

    The answer goes to standard output; plan, code and what it prints go to
    standard error as they come. REQUEST may be - for standard input. With
    --json, the events of the session go to standard output, and nothing else.

    Exit codes: 0 done, 1 the task failed, 2 misused, 130 interrupted.
    """
    text = sys.stdin.read() if request == ("-",) else " ".join(request)
    if not text.strip():
        raise click.UsageError("There is nothing to ask.")
    # `--help` does without all this.
    if as_json:
        from taskweaver_ext.cli.json_frontend import ask_as_json as answer_request
    else:
        from taskweaver_ext.cli.answer_request import answer_request

    return answer_request(
        text, project, files=files, kernel=kernel, cwd=cwd, approve=approve, resume=resume
    )
