"""`taskweaver-ext serve`: the sessions of a project in a browser, and for other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taskweaver_ext.cli.options import cwd_option, kernel_option, project_option

if TYPE_CHECKING:
    from taskweaver_ext.app import TaskWeaverApp
    from taskweaver_ext.server.serving import Address

_STUCK_SECONDS = 4.5
"""How long the end may take after a signal, before it is made without a word."""
_KEPT_EVENT_BYTES = 1 << 20
"""Of each session: the server keeps the newest events of all of them together."""
_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 4096
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Serve the sessions to a browser and to other programs.")
@project_option
@kernel_option
@cwd_option("Where code of new sessions works; by default in a folder of each.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8765, show_default=True, help="0 takes a free one.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the token is; made there if it is missing. By default a new one each time.",
)
@click.option("--no-token", is_flag=True, help="Let every program on this machine in.")
@click.option("--tls-cert", type=_FILE, help="A certificate, for https.")
@click.option("--tls-key", type=_FILE, help="Its key.")
def command(
    project: Path | None,
    kernel: str | None,
    cwd: Path | None,
    host: str,
    port: int,
    token_file: Path | None,
    no_token: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> int:
    """Serve the sessions of a project: a web page, and an API for other programs.

    When it is ready, the address is printed on standard output, with a token;
    open it in a browser. Everything else goes to standard error. The sessions go
    on when the browser is closed; Ctrl-C ends the server and its kernels.

    Whoever has the token can run code here. The docstring of
    taskweaver_ext/server/api.py has the API on one page.

    Exit codes: 0 ended by a signal, 1 failed, 2 misused.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together.")
    if no_token and token_file is not None:
        raise click.UsageError("--no-token and --token-file exclude each other.")
    try:
        from taskweaver_ext.server.serving import Address
    except ImportError as error:
        failure = click.ClickException(f"serve needs {error.name}, which is not installed")
        failure.hint = "pip install 'taskweaver_ext[serve]'"  # type: ignore[attr-defined]  # ours
        raise failure from error
    from taskweaver_ext.app import TaskWeaverApp
    from taskweaver_ext.cli.kernel_place import say_where_code_runs
    from taskweaver_ext.cli.project_log import logging_to_project

    address = Address(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
    token = "" if no_token else _token(token_file)
    with (
        TaskWeaverApp(
            project,
            arguments={"execution_service.kernel_mode": kernel},
            kept_event_bytes=_KEPT_EVENT_BYTES,
        ) as app,
        logging_to_project(app.config.logging, lambda: app.redactor),
    ):
        say_where_code_runs(app.config)
        return _serve(app, address, token, cwd)


def _serve(app: TaskWeaverApp, address: Address, token: str, cwd: Path | None) -> int:
    from taskweaver_ext.cli.screen import Screen
    from taskweaver_ext.cli.signal_watch import SignalWatch
    from taskweaver_ext.server.serving import Serving

    screen = Screen()
    with SignalWatch() as signals:
        serving = Serving(app, address, token, cwd)
        for line in serving.exposure:
            screen.say(line)
        signals.pass_to(lambda _number: serving.end_soon(), _end_at_once, _STUCK_SECONDS)
        query = f"?token={token}" if token else ""
        serving.run(lambda: click.echo(f"{serving.url}{query}"))
    return 0


def _token(path: Path | None) -> str:
    from taskweaver_ext.errors import ConfigError
    from taskweaver_ext.machine.private_files import open_private
    from taskweaver_ext.server.access import make_token

    if path is None:
        return make_token()
    try:
        if not path.exists():
            with open(open_private(path, os.O_WRONLY | os.O_EXCL), "w") as file:
                file.write(f"{make_token()}\n")
        with path.open(encoding="utf-8") as file:
            token = file.read(_LONGEST_TOKEN).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The token in {path} cannot be had: {error}.") from error
    if len(token) < _SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"The token in {path} is too easy to guess, or more than one word. Remove the file to"
            " have a new one made."
        )
    return token


def _end_at_once() -> None:
    """End without waiting for anything; kernels notice and end too."""
    os._exit(0)
