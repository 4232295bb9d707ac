"""What is ours alone: a fork of this process lets go of it, and does not tidy it up.

A fork (a worker of `multiprocessing`, of a server) has copies of everything.
Zygotes, orphan killers and kernels end when our end of their line closes, however
that happens: held open by a fork, the lines would outlast us, and everything
behind them would live on. And what we remove at our end is not to be removed
at the end of a fork.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar


class _Line(Protocol):
    def close(self) -> None: ...


_Closable = TypeVar("_Closable", bound=_Line)
_Arguments = ParamSpec("_Arguments")

_lines: weakref.WeakSet[_Line] = weakref.WeakSet()


def closed_in_forks(line: _Closable) -> _Closable:
    """Have every fork of this process close its copy of a line; return the line."""
    _lines.add(line)
    return line


def not_in_forks(function: Callable[_Arguments, object]) -> Callable[_Arguments, None]:
    """Give a function that does what `function` does in this process, and nothing in forks."""
    pid = os.getpid()

    def unless_forked(*args: _Arguments.args, **named: _Arguments.kwargs) -> None:
        if os.getpid() == pid:
            function(*args, **named)

    return unless_forked


def _let_go_in_fork() -> None:
    for line in list(_lines):
        with contextlib.suppress(OSError):
            line.close()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_fork)
