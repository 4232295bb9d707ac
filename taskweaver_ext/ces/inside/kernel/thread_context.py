"""Threads and pool tasks get a copy of the context they were started in, as asyncio tasks do.

The execution is in that context: so output belongs to the execution that caused it,
also when another thread writes it.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any

_copy_context = contextvars.copy_context

_WAYS_TO_START = (
    (_thread, "start_new_thread"),
    (threading, "_start_new_thread"),
    (threading, "_start_joinable_thread"),
)
"""What starts a thread, under the names that some version of Python has for it."""


def install() -> None:
    """Make threads and thread pools inherit the context of the thread that starts them."""
    for module, name in _WAYS_TO_START:
        if hasattr(module, name):
            setattr(module, name, _inheriting(getattr(module, name)))
    if "_context" in threading.Thread().__dict__:  # Python 3.14 has a context for each
        _give_threads_a_context()
    plain_submit = concurrent.futures.ThreadPoolExecutor.submit

    @functools.wraps(plain_submit)  # type: ignore[arg-type]
    def submit(pool: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        return plain_submit(pool, _copy_context().run, function, *args, **named)

    concurrent.futures.ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]


def _inheriting(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def start(function: Callable[..., object], *args: Any, **named: Any) -> Any:
        # No function of ours: users would meet it in the traceback of a thread that failed.
        return plain(functools.partial(_copy_context().run, function), *args, **named)

    return start


def _give_threads_a_context() -> None:
    plain_start = threading.Thread.start

    @functools.wraps(plain_start)
    def start(thread: Any) -> None:
        thread._context = thread._context or _copy_context()
        plain_start(thread)

    threading.Thread.start = start  # type: ignore[assignment, method-assign]
