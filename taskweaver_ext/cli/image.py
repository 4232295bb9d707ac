"""`taskweaver-ext image`: the image that kernels in containers run in."""

from __future__ import annotations

import click

from taskweaver_ext.ces.kernels.container.engine import EngineGoneError, shared_engine
from taskweaver_ext.ces.kernels.container.image import (
    DEFAULT_BASE_IMAGE,
    DEFAULT_IMAGE,
    build_image,
)
from taskweaver_ext.config.loading import find_execution_service
from taskweaver_ext.errors import KernelStartError


@click.group()
def command() -> None:
    """Build the image that kernels in containers run in."""


@command.command()
@click.option("--tag", default=DEFAULT_IMAGE, show_default=True, help="The name of the image.")
@click.option(
    "--base",
    default=DEFAULT_BASE_IMAGE,
    show_default=True,
    help="The image to build on; any that has Python and pip.",
)
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="NAME",
    help="Install this as well, with pip; may be given several times.",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Build on the Python that runs this command; nothing is downloaded.",
)
def build(tag: str, base: str, packages: tuple[str, ...], offline: bool) -> None:
    """Build the image that kernels in containers run in.

    Without a registry that answers, it is built on the Python that runs this command.
    """
    try:
        engine = shared_engine(find_execution_service().engine_url)
    except EngineGoneError as error:
        raise KernelStartError(f"{error}. {error.advice}, then try again.") from error
    build_image(
        engine,
        tag,
        base_image=base,
        packages=packages,
        is_offline=offline,
        say=lambda text: click.echo(text, err=True),
    )
    click.echo(tag)
