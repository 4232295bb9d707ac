"""The command line: finds the command, runs it, and turns what happens into an exit code.

A command is a module beside this one with a click command named `command`. It is
imported only when it is run; its line of help is in the table below, so that
`--help` costs next to nothing.
"""

from __future__ import annotations

import difflib
import errno
import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

import click

from taskweaver_ext.chat.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MISUSED
from taskweaver_ext.errors import ConfigError, TaskWeaverError

PROGRAM = "taskweaver-ext"

COMMANDS = {
    "chat": "Talk to the agent, run Python and shell, and watch it all (the default).",
    "ask": "Have one request done, and exit.",
    "serve": "Serve the sessions to a browser and to other programs.",
    "sessions": "List, show, export, import, replay and delete the sessions of a project.",
    "run": "Run Python code and show its output as it happens.",
    "exec": "Run one program in any language and pass on what it writes.",
    "init": "Make a project folder that works.",
    "model": "Bring a model to this machine.",
    "kernels": "List the kernels that live on this machine.",
    "image": "Build the image that kernels in containers run in.",
    "gateway": "Look at the gateway that processes on this machine share, start and stop it.",
    "doctor": "Check this machine and say what to do about what is missing.",
}
"""Each is a module of this package; in the order that `--help` shows."""

DEFAULT_COMMAND = "chat"
"""Runs when no command is given."""

_OWN_OPTIONS = ("-h", "--help", "--version", "--debug")

_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _Commands(click.Group):
    """Commands that are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, without importing anything."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"taskweaver_ext.cli.{cmd_name}").command
        _let_interrupts_be_raised()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant, or say which one might be."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            similar = difflib.get_close_matches(args[0], COMMANDS, 1)
            advice = f" Did you mean {similar[0]!r}?" if similar else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{advice}", ctx)
        return super().resolve_command(ctx, args)


def _let_interrupts_be_raised() -> None:
    """From now on there may be something to clean up when Ctrl-C is pressed."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _show_version(ctx: click.Context, _parameter: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        click.echo(f"{PROGRAM} {version('taskweaver_ext')}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run code for agents and show, live, what it does.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error, and the log.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def _program(debug: bool) -> None:
    from taskweaver_ext.machine.child_environment import hide_what_is_not_passed_on

    hide_what_is_not_passed_on()  # from the programs that we are about to start
    if sys.platform == "linux":
        from taskweaver_ext.ces.inside.sandbox.privileges import hide_memory

        hide_memory()
    _set_up_logging(is_debugging=debug)


def _set_up_logging(*, is_debugging: bool) -> None:
    """Show mistakes in settings; all else that is logged is for debugging."""
    import logging

    from taskweaver_ext.config import variables

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger = logging.getLogger("taskweaver_ext")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if is_debugging else logging.CRITICAL)
    logging.getLogger("taskweaver_ext.config").setLevel(logging.WARNING)
    if variables.tracing() != variables.Tracing():
        logging.getLogger("taskweaver_ext.ces.kernels.client.tracing").setLevel(logging.INFO)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    _open_missing_streams()
    _gate_terminals()
    arguments = sys.argv[1:] if arguments is None else arguments
    is_debugging = arguments[:1] == ["--debug"]
    try:
        result = _program.main(_with_command(arguments), PROGRAM, standalone_mode=False)
    except click.Abort as error:
        sys.exit(EXIT_INTERRUPTED if isinstance(error.__context__, KeyboardInterrupt) else 1)
    except click.UsageError as error:
        _show_error(error.format_message(), _hint_for(error))
        sys.exit(EXIT_MISUSED)
    except click.ClickException as error:
        _show_error(error.format_message(), getattr(error, "hint", ""))
        sys.exit(error.exit_code)
    except TaskWeaverError as error:
        if is_debugging:
            raise
        _show_error(str(error), getattr(error, "hint", ""))
        sys.exit(EXIT_MISUSED if isinstance(error, ConfigError) else EXIT_FAILED)
    except Exception as error:  # whatever it is, a person is to read it
        if isinstance(error.__cause__, KeyboardInterrupt):  # it came while a class was made
            sys.exit(EXIT_INTERRUPTED)
        if is_debugging:
            raise
        _show_error(*_explain(error, arguments))
        sys.exit(EXIT_FAILED)
    sys.exit(result if isinstance(result, int) else 0)


def _open_missing_streams() -> None:
    """Let nothing that is opened later be taken for a standard stream that we were not given."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as we live


def _gate_terminals() -> None:
    """Let no message, whoever wrote it, drive a terminal."""
    if sys.stdout.isatty() or sys.stderr.isatty():
        from taskweaver_ext.cli.gated_streams import gate_terminals

        gate_terminals()


def _with_command(arguments: list[str]) -> list[str]:
    """Put the default command before arguments that name none."""
    at = 1 if arguments[:1] == ["--debug"] else 0
    rest = arguments[at:]
    names_none = not rest or (rest[0].startswith("-") and rest[0] not in _OWN_OPTIONS)
    return [*arguments[:at], DEFAULT_COMMAND, *rest] if names_none else arguments


def _hint_for(error: click.UsageError) -> str:
    """Where to read how it is meant."""
    if isinstance(error, click.NoSuchOption) and error.option_name == "--debug":
        return f"it goes before the command: {PROGRAM} --debug ..."
    return f"see {error.ctx.command_path if error.ctx else PROGRAM} --help"


def _explain(error: Exception, arguments: list[str]) -> tuple[str, str]:
    """What happened unexpectedly, and what can be done about it."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _CANNOT_WRITE:
        # What is left in the buffer must go somewhere, or Python fails at it when we exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return f"there is no room to write: {error.strerror}", "make room, or write elsewhere"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return what, f"{PROGRAM} --debug {' '.join(arguments[:1])} ... shows where"


def _show_error(message: str, hint: str) -> None:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
