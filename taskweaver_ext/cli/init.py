"""`taskweaver-ext init`: make a project folder that works."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import click

from taskweaver_ext.config.folders import FILE_NAME
from taskweaver_ext.errors import ConfigError
from taskweaver_ext.machine.private_files import write_private

_DISTRIBUTION = "taskweaver_ext"
_PLACE_IN_WHEEL = "share/taskweaver-ext/project"


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
    template = find_template()
    names = list(_files_in(template))
    if not force:
        _refuse_to_overwrite(target, names)
    try:
        for name in names:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name == FILE_NAME:  # will hold keys
                write_private(path.resolve(), (template / name).read_text(encoding="utf-8"))
            else:
                shutil.copyfile(template / name, path)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from error
    click.echo(f"Made a project in {target}.")
    click.echo(f"Next: taskweaver-ext chat -p {target}")


def _refuse_to_overwrite(target: Path, names: Sequence[str]) -> None:
    if (target / FILE_NAME).exists():
        raise click.UsageError(f"{target} is a project already; --force puts its files back.")
    if there := [name for name in names if os.path.lexists(target / name)]:
        raise click.UsageError(
            f"{target} has {', '.join(there)} already; --force puts ours in their place."
        )


def find_template() -> Path:
    """Return the folder that new projects are copies of.

    It is in the data of the installed wheel, or beside the package in a checkout.

    Raises:
        ConfigError: The installation lacks it.
    """
    for folder in _places():
        if (folder / FILE_NAME).is_file():
            return folder
    raise ConfigError("The installation lacks its project template. Install it again.")


def _places() -> Iterator[Path]:
    beside_package = Path(__file__).parent.parent.parent
    with contextlib.suppress(PackageNotFoundError):
        for file in files(_DISTRIBUTION) or ():
            if file.as_posix().endswith(f"{_PLACE_IN_WHEEL}/{FILE_NAME}"):
                yield Path(str(file.locate())).parent
    yield beside_package / _PLACE_IN_WHEEL  # `pip install --target`
    yield beside_package / "project"


def _files_in(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix()
