"""What commands have in common: how their arguments are read, and how misuse is told."""

from __future__ import annotations

import shlex


class UsageError(Exception):
    """A command was called in a way that makes no sense; the message says how it is meant."""


def words_of(arguments: str) -> list[str]:
    """Split the arguments of a command as a shell does.

    Raises:
        UsageError: A quotation mark is missing.
    """
    try:
        return shlex.split(arguments)
    except ValueError as error:
        raise UsageError(f"{arguments}: {error}.") from error
