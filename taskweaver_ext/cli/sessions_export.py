"""`taskweaver-ext sessions export` and `import`: a session as a file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from taskweaver_ext.cli.options import project_option, workspace_of

_FORMATS = ("ipynb", "md", "html", "bundle")


@click.command()
@click.argument("session_id", metavar="ID")
@project_option
@click.option("--to", type=click.Choice(_FORMATS), help="The format; else as FILE is called.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Where to; ID with the format's ending by default, - for stdout.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--with-files", is_flag=True, help="bundle: with all files of the session's own folder."
)
@click.option(
    "--with-variables", is_flag=True, help="bundle: with the variables that /snapshot saved."
)
def export(
    session_id: str,
    project: Path | None,
    to: str | None,
    output: Path | None,
    force: bool,
    with_files: bool,
    with_variables: bool,
) -> None:
    """Write a session to a file: notebook, Markdown, web page, or a bundle to be imported.

    Works also while the session is open elsewhere. Large output is shortened in all but a bundle,
    which holds it whole.
    """
    from taskweaver_ext.cli.screen import Screen
    from taskweaver_ext.session.export.export import (
        SUFFIXES,
        ExportFormat,
        export_session,
        format_of,
        text_pieces,
    )
    from taskweaver_ext.session.export.source import ExportSource
    from taskweaver_ext.session.saved import find_session

    if to is None and output in (None, Path("-")):
        raise click.UsageError(f"Say what it is to be: --to {'|'.join(_FORMATS)}, or -o FILE.")
    kind = cast(ExportFormat, to) if to else format_of(output or Path())
    if (with_files or with_variables) and kind != "bundle":
        raise click.UsageError("--with-files and --with-variables are for --to bundle alone.")
    saved = find_session(workspace_of(project), session_id)
    source = ExportSource(
        session_id=saved.session_id,
        folder=saved.folder,
        read=saved.events,
        folders=saved.folders(),
    )
    if output == Path("-"):
        pieces = text_pieces(source, kind)  # refuses a bundle before anything is opened
        screen = Screen()
        for piece in pieces:
            if not screen.write("stdout", piece):
                break
        screen.close()
        screen.say_failure()
        return
    path = output or Path(f"{saved.session_id}{SUFFIXES[kind]}")
    done = export_session(
        source, path, kind, replaces=force, with_files=with_files, with_variables=with_variables
    )
    for note in done.notes:
        click.echo(note, err=True)
    click.echo(str(done.path))


@click.command("import")
@click.argument("bundle", metavar="FILE", type=click.Path(path_type=Path))
@project_option
def import_command(bundle: Path, project: Path | None) -> None:
    """Take a session back from a bundle that `export` made; prints its id."""
    from taskweaver_ext.session.export.import_bundle import import_bundle

    done = import_bundle(bundle, workspace_of(project))
    if done.session_id != done.original_id:
        click.echo(f"there is a session {done.original_id} already: this one is another", err=True)
    click.echo(done.session_id)
