"""A program of a person's that has their terminal: what it starts with, and how it ended.

The frontend that owns the terminal runs it; the session says where, and keeps what was run and
how that ended, never what was on the screen.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus, Notice
from taskweaver_ext.ces.inside.spawner.process_tree import MARK
from taskweaver_ext.ces.programs.shell_completion import ShellKnowledge
from taskweaver_ext.config.settings import ExecutionServiceConfig
from taskweaver_ext.machine.child_environment import (
    child_environment,
    rules_of,
    variables_passed_on,
)

_NOT_FOUND = 127
_OF_THE_SHELL_ALONE = (MARK, "_", "SHLVL")


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalCommand:
    """What a frontend is to run on its terminal."""

    command: str
    """For bash."""
    cwd: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalEnd:
    """What became of it."""

    exit_code: int | None = None
    """As a shell has it: of a signal, 128 and its number. None: it has not ended."""
    error: str = ""
    """Why it could not be started."""
    stopped: str = ""
    """What a person is told about a program that was stopped with Ctrl-Z."""


UseTerminal: TypeAlias = Callable[[TerminalCommand], TerminalEnd]
"""Gives a command the terminal until it ends or is stopped."""


def place_of(
    command: str, shell: ShellKnowledge | None, cwd: Path, service: ExecutionServiceConfig
) -> TerminalCommand:
    """Say where a command runs: where the shell is, with all but secrets and what it exports.

    Args:
        shell: None where it cannot be asked; then the session's folder and our variables count.
        service: Says which variables are passed on besides, or not.
    """
    environment = variables_passed_on(rules_of(service, is_for_person=True))
    if shell is not None:
        given = child_environment(rules=rules_of(service))
        unset = given.keys() - shell.environment.keys()
        environment = {name: text for name, text in environment.items() if name not in unset}
        exported = shell.environment.items()
        environment |= {name: text for name, text in exported if name not in _OF_THE_SHELL_ALONE}
        cwd = shell.cwd
    return TerminalCommand(command=command, cwd=cwd, environment=environment)


def judge(result: ExecutionResult, end: TerminalEnd) -> None:
    """Note in a result how a command ended."""
    result.exit_code = end.exit_code
    result.status = ExecutionStatus.SUCCESS
    if end.error:
        result.status, result.error = ExecutionStatus.ERROR, end.error
    elif end.stopped:
        result.status = ExecutionStatus.PAUSED
        result.notices.append(Notice(kind="host", message=end.stopped))
    elif end.exit_code == 128 + signal.SIGINT:
        result.status = ExecutionStatus.CANCELLED
    elif end.exit_code:
        result.status = ExecutionStatus.ERROR
        result.error = f"The command ended with exit code {end.exit_code}."
        if end.exit_code == _NOT_FOUND:
            result.error += (
                " `!!` knows programs, and what the shell has exported; its aliases and functions"
                " are for `!`."
            )
