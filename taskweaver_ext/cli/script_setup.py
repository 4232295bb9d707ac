"""Makes a kernel treat its next cell as `python FILE` treats the file. Sent to it as source.

Nothing of this stays among the script's own names. It runs in the kernel's
Python (3.9 or newer), where this package need not be installed.
"""

from __future__ import annotations

import atexit
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Optional


def behave_like_a_script(
    shell: Any,  # noqa: ANN401 - IPython's, which has no types
    name: str,
    path: Optional[str],  # noqa: UP045 - Python 3.9
    folder: Optional[str],  # noqa: UP045
    arguments: list[str],
) -> None:
    """Prepare the kernel for the one cell that is the script."""
    sys.argv[:] = arguments
    if folder is not None:
        sys.path.insert(0, folder)
    if path is not None:
        shell.user_ns["__file__"] = path
    # No echo of the last expression, and tracebacks that name the file instead of a cell.
    shell.ast_node_interactivity = "none"
    shell.compile.get_code_name = lambda *_: name
    shell.compile.format_code_name = lambda _: None
    shell.events.register("pre_run_cell", lambda _: _prepare_end(shell))


def _prepare_end(shell: Any) -> None:  # noqa: ANN401 - IPython's
    """Called when the script starts, and not for the cell that sets this up."""
    exit_handlers = _ExitHandlers()
    shell.events.register("post_run_cell", lambda result: _finish(result, exit_handlers))


class _ExitHandlers:
    """What the script registers with `atexit`: run at its end, while its output is still heard."""

    def __init__(self) -> None:
        self._handlers: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []
        atexit.register = self.register  # type: ignore[assignment]
        atexit.unregister = self.unregister

    def register(
        self,
        handler: Callable[..., object],
        /,
        *arguments: Any,  # noqa: ANN401 - whatever the handler takes
        **named: Any,  # noqa: ANN401
    ) -> Callable[..., object]:
        """Stand in for `atexit.register`."""
        self._handlers.append((handler, arguments, named))
        return handler

    def unregister(self, handler: Callable[..., object], /) -> None:
        """Stand in for `atexit.unregister`."""
        self._handlers = [entry for entry in self._handlers if entry[0] != handler]

    def run(self) -> None:
        """Call the handlers, the last one first."""
        while self._handlers:
            handler, arguments, named = self._handlers.pop()
            try:
                handler(*arguments, **named)
            except Exception:  # noqa: BLE001 - the others are to run as well
                traceback.print_exc()


def _finish(result: Any, exit_handlers: _ExitHandlers) -> None:  # noqa: ANN401 - IPython's
    """Do what an interpreter does after the last line: wait for threads, run exit handlers."""
    try:
        if not isinstance(result.error_in_exec, KeyboardInterrupt):
            _wait_for_threads_and_processes()
        exit_handlers.run()
    except KeyboardInterrupt as interrupt:
        result.error_in_exec = interrupt


def _wait_for_threads_and_processes() -> None:
    for stop_idle_workers in reversed(getattr(threading, "_threading_atexits", [])):
        stop_idle_workers()  # pools of `concurrent.futures` that were not shut down
    while threads := [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.current_thread()
    ]:
        for thread in threads:
            thread.join()
    if "multiprocessing" in sys.modules:
        for process in sys.modules["multiprocessing"].active_children():
            if not process.daemon:
                process.join()
