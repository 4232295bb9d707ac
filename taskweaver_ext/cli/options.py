"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from taskweaver_ext.config.settings import EnvMode

_Command = TypeVar("_Command", bound=Callable[..., Any])

project_option = click.option(
    "-p",
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project's folder; by default the nearest one upwards.",
)

kernel_option = click.option(
    "--kernel",
    type=click.Choice([mode.value for mode in EnvMode]),
    help="Where code runs; as the project says by default.",
)


def cwd_option(help_text: str) -> Callable[[_Command], _Command]:
    """The folder in which code works, which has to be one that can be entered."""
    return click.option(
        "--cwd",
        metavar="FOLDER",
        type=click.Path(exists=True, file_okay=False, readable=True, path_type=Path),
        help=help_text,
    )


def workspace_of(project: Path | None) -> Path:
    """Where the sessions of a project are; raises ConfigError."""
    from taskweaver_ext.config.loading import load

    return load(project).workspace.workspace_path
