"""IPython's shell for code that runs without a notebook.

What a notebook shows beside a cell (help pages, tracebacks of scripts and of
cells within the cell) becomes output where it happens; only the error that
ends the cell is left for its result.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from types import TracebackType
from typing import Any

from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core import page
from IPython.core.autocall import IPyAutocall

from .help_pages import help_page

_OUR_FILES = (lambda: None).__code__.co_filename.rpartition("ipython_shell")[0]
"""How the names of our files begin; there may be none on a disk."""


class Exit(IPyAutocall):
    """`exit` and `quit`: end the cell as `sys.exit` does, not the kernel."""

    rewrite = False

    def __call__(self, code: object = None) -> None:
        """Leave the cell."""
        raise SystemExit(code)


class Shell(ZMQInteractiveShell):
    """As IPython's, but nothing that it shows is lost, and it keeps no text that was written."""

    _cell: Any = None
    """The result of the cell that is running; a cell within it is part of it."""

    def _tee(self, channel: str) -> Any:
        return contextlib.nullcontext()

    def init_user_ns(self) -> None:
        """As IPython does, but `exit` leaves the cell only."""
        super().init_user_ns()
        self.user_ns["exit"] = self.user_ns["quit"] = Exit(self)

    def init_hooks(self) -> None:
        """As IPython does, but there is no pager."""
        super().init_hooks()
        self.print_pages()

    def print_pages(self) -> None:
        """Let help pages (`len?`) be output, as what `help(len)` says is."""
        self.set_hook("show_in_pager", page.as_hook(_print_page), 0)

    def _inspect(self, meth: str, oname: str, namespaces: Any = None, **options: Any) -> Any:
        """Answer `name?` and `name??` with a page of ours, which runs no code of the user."""
        if meth != "pinfo":
            return super()._inspect(meth, oname, namespaces, **options)
        page = help_page(self, oname, with_source=options.get("detail_level", 0) > 0)
        if page is None:
            sys.stdout.write(f"Nothing here is called {oname}.\n")
            return "not found"
        sys.stdout.write(f"{page}\n")
        return None

    async def run_ast_nodes(self, *args: Any, **named: Any) -> Any:
        """Run a cell's statements, and know which cell that is."""
        if self._cell is not None:
            return await super().run_ast_nodes(*args, **named)
        self._cell = cell = named["result"]
        try:
            return await super().run_ast_nodes(*args, **named)
        finally:
            self._cell = None
            self._forget_what_was_shown()
            self.kernel.runtime.ended_with = cell.error_in_exec

    async def run_code(self, *args: Any, **named: Any) -> Any:
        """Run code of the cell: the part of an execution in which an interrupt may be raised.

        Raised inside IPython itself it would lose what the cell has to show.
        """
        runtime: Any = self.kernel.runtime
        running = super().run_code(*args, **named)
        if self._cell is None or runtime.is_in_code:
            return await running
        try:
            if not runtime.enter_code():
                raise KeyboardInterrupt
            return await running
        except KeyboardInterrupt as interrupt:
            self._cell.error_in_exec = interrupt
            return True
        finally:
            runtime.is_in_code = False  # before anything is called: until here it may be raised
            running.close()

    def _forget_what_was_shown(self) -> None:
        """Values as they were displayed, and tracebacks: some versions of IPython pile them up."""
        for pile in ("outputs", "output_hist_reprs", "exceptions"):
            getattr(self.history_manager, pile, {}).clear()

    def _format_exception_for_storage(self, *_args: object, **_named: object) -> dict[str, Any]:
        """Explain no error a second time, for a pile of which nothing is kept."""
        return {}

    def showtraceback(self, *args: Any, **named: Any) -> None:
        """As IPython does, but show groups, deep recursions and interrupts as Python does."""
        _, error, trace = sys.exc_info()
        if self._is_the_end(error):
            self.kernel.runtime.is_in_code = False  # the code is over
        if isinstance(error, SystemExit):
            return  # leaving is not an error to be explained
        is_group = hasattr(error, "exceptions")
        is_plain = is_group or isinstance(error, (RecursionError, KeyboardInterrupt))
        if is_plain and not args and error is not None and trace is not None:
            self._showtraceback(type(error), error, _plain_traceback(error, trace))
        else:
            super().showtraceback(*args, **named)

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        if self._cell is None or self._is_the_end(evalue):
            super()._showtraceback(etype, evalue, stb)
        else:  # the cell goes on
            sys.stderr.write("\n".join(stb) + "\n")

    def _is_the_end(self, error: BaseException | None) -> bool:
        """Whether this is what ends the cell."""
        cell = self._cell
        return cell is not None and (error is cell.error_in_exec or error is cell.error_before_exec)


def _plain_traceback(error: BaseException, trace: TracebackType) -> list[str]:
    """Python's own traceback, without IPython's frame above it and ours beneath it."""
    explanation = traceback.TracebackException(type(error), error, trace.tb_next)
    explanation.stack = traceback.StackSummary.from_list(
        [frame for frame in explanation.stack if not frame.filename.startswith(_OUR_FILES)]
    )
    return "".join(explanation.format()).splitlines()


def _print_page(content: Any, *_args: object, **_named: object) -> None:
    text = content.get("text/plain", "") if isinstance(content, dict) else str(content)
    sys.stdout.write(text.rstrip("\n") + "\n")
