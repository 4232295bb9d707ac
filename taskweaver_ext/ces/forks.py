"""What a fork of this process must let go of: it has copies of all our descriptors.

Zygotes, guardians and kernels end when our end of their line closes, however
that happens. Held open by a fork (a worker of `multiprocessing`, of a server)
the lines would outlast us, and everything behind them would live on.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol, TypeVar


class _Line(Protocol):
    def close(self) -> None: ...


_Closable = TypeVar("_Closable", bound=_Line)

_lines: weakref.WeakSet[_Line] = weakref.WeakSet()


def closed_in_forks(line: _Closable) -> _Closable:
    """Have every fork of this process close its copy of a line; return the line."""
    _lines.add(line)
    return line


def _let_go_in_fork() -> None:
    for line in list(_lines):
        with contextlib.suppress(OSError):
            line.close()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_fork)
