"""Output belongs to the execution that caused it, also when another thread writes it.

Threads and pool tasks get a copy of the context they were started in, as
asyncio tasks already do; the execution's key travels in that context.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import functools
import threading
from typing import Any


def install() -> None:
    """Make threads and thread pools inherit the context of whoever starts them."""
    plain_start = threading.Thread.start
    plain_submit = concurrent.futures.ThreadPoolExecutor.submit

    @functools.wraps(plain_start)
    def start(thread: threading.Thread) -> None:
        context, plain_run = contextvars.copy_context(), thread.run

        def run() -> None:
            del thread.__dict__["run"]  # ends the reference cycle
            context.run(plain_run)

        thread.__dict__["run"] = run
        plain_start(thread)

    @functools.wraps(plain_submit)  # type: ignore[arg-type]
    def submit(pool: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        return plain_submit(pool, contextvars.copy_context().run, function, *args, **named)

    threading.Thread.start = start  # type: ignore[assignment, method-assign]
    concurrent.futures.ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
