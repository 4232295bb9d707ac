"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

from taskweaver_ext.config.settings import EnvMode

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


def workspace_of(project: Path | None) -> Path:
    """Where the sessions of a project are; raises ConfigError."""
    from taskweaver_ext.config import settings

    return settings.load(project).workspace.workspace_path
