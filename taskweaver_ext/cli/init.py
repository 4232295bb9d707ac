"""`taskweaver-ext init`: make a project folder that works."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import click

import taskweaver_ext
from taskweaver_ext.config import FILE_NAME
from taskweaver_ext.errors import ConfigError

_DISTRIBUTION = "taskweaver_ext"
_PLACE_IN_WHEEL = "share/taskweaver-ext/project/"


@click.command(short_help="Make a project folder that works.")
@click.argument(
    "folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), default=Path(".")
)
@click.option(
    "-p",
    "--project",
    type=click.Path(file_okay=False, path_type=Path),
    help="The same as DIR.",
)
@click.option("--force", is_flag=True, help="Put back files that are there already.")
def command(folder: Path, project: Path | None, force: bool) -> None:
    """Make a project folder that works: settings, plugins and examples."""
    target = (project or folder).expanduser().absolute()
    if (target / FILE_NAME).exists() and not force:
        raise click.UsageError(f"{target} is a project already; --force puts its files back.")
    template = find_template()
    for name, source in template.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
    click.echo(f"Made a project in {target} ({len(template)} files).")
    click.echo(f"Next: taskweaver-ext chat -p {target}")


def find_template() -> dict[str, Path]:
    """Return the files of the template by their name in a project.

    They are in the data of the installed wheel, or beside the package in a checkout.

    Raises:
        ConfigError: The installation lacks them.
    """
    found = _in_wheel() or _in_checkout()
    if FILE_NAME not in found:
        raise ConfigError("The installation lacks its project template. Install it again.")
    return found


def _in_wheel() -> dict[str, Path]:
    try:
        installed = files(_DISTRIBUTION) or []
    except PackageNotFoundError:
        return {}
    found: dict[str, Path] = {}
    for file in installed:
        _, place, name = file.as_posix().partition(_PLACE_IN_WHEEL)
        if place and "__pycache__" not in name:
            found[name] = Path(str(file.locate()))
    return found


def _in_checkout() -> dict[str, Path]:
    folder = Path(taskweaver_ext.__file__).parent.parent / "project"
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
