"""`taskweaver-ext gateway`: the gateway that all processes of this user share."""

from __future__ import annotations

import time

import click

from taskweaver_ext.ces.kernels.gateway.shared_gateway import RunningGateway, SharedGateway


@click.group()
def command() -> None:
    """Look at the gateway that processes on this machine share, start and stop it."""


@command.command()
def status() -> None:
    """Say whether the shared gateway runs; exits with 1 when it does not."""
    running = SharedGateway().status()
    if running is None:
        click.echo("not running")
        raise SystemExit(1)
    click.echo(_describe(running))


@command.command()
def start() -> None:
    """Start the shared gateway, unless it runs already."""
    gateway = SharedGateway()
    gateway.connect()
    running = gateway.status()
    click.echo(_describe(running) if running else "not running")


@command.command()
def stop() -> None:
    """Stop the shared gateway and the kernels behind it."""
    click.echo("stopped" if SharedGateway().stop() else "not running")


def _describe(running: RunningGateway) -> str:
    minutes = (time.time() - running.started_at) / 60
    health = "healthy" if running.is_healthy() else "does not answer"
    return f"{running.url} (pid {running.pid}, {health}, for {minutes:.0f} min)"
