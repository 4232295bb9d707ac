"""What belongs to this process alone: a fork of it closes its copy, and tidies nothing up.

A fork (a worker of `multiprocessing`, of a server) has copies of everything.
Zygotes, orphan killers and kernels end when our end of a pipe or socket closes,
however that happens: held open by a fork, it would outlast us, and everything
behind it would live on. And what we remove at our end is not to be removed
at the end of a fork.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar


class _Closable(Protocol):
    def close(self) -> None: ...


_Connection = TypeVar("_Connection", bound=_Closable)
_Arguments = ParamSpec("_Arguments")

_connections: weakref.WeakSet[_Closable] = weakref.WeakSet()


def closed_in_forks(connection: _Connection) -> _Connection:
    """Have every fork of this process close its copy of a pipe or socket; return it."""
    _connections.add(connection)
    return connection


def not_in_forks(function: Callable[_Arguments, object]) -> Callable[_Arguments, None]:
    """Give a function that does what `function` does in this process, and nothing in forks."""
    pid = os.getpid()

    def unless_forked(*args: _Arguments.args, **named: _Arguments.kwargs) -> None:
        if os.getpid() == pid:
            function(*args, **named)

    return unless_forked


def _let_go_in_fork() -> None:
    for connection in list(_connections):
        with contextlib.suppress(OSError):
            connection.close()
    _connections.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_fork)
