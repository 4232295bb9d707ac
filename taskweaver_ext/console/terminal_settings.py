"""The terminal's own settings while we draw on it, and Ctrl-Z, which gives it back for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

if sys.platform != "win32":
    import termios

_STDIN = 0


@contextlib.contextmanager
def echo_off(
    on_suspend: Callable[[Callable[[], None]], None],
) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Keep what is typed for the next prompt, without showing it amid what we draw.

    Ctrl-C and Ctrl-Z still count. For the main thread. The block gets a function that makes
    another one in which the terminal is as it was before, for a program that has it meanwhile.

    Args:
        on_suspend: Called in a signal handler when Ctrl-Z is pressed, with a function to be
            called on the main thread once nothing is being drawn: it gives the terminal
            back, stops us, and returns when we are to go on.
    """
    if sys.platform == "win32" or not os.isatty(_STDIN):
        yield contextlib.nullcontext
        return
    before = termios.tcgetattr(_STDIN)
    quiet = termios.tcgetattr(_STDIN)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)

    def suspend() -> None:
        _set(before)
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        # To this very thread, which then stops here; ignored where no shell could continue us.
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        _set(quiet)

    @contextlib.contextmanager
    def lend() -> Iterator[None]:
        _set(before)
        try:
            yield
        finally:
            _set(quiet)

    _set(quiet)
    previous = signal.getsignal(signal.SIGTSTP)
    can_stop = previous is not signal.SIG_IGN
    if can_stop:
        signal.signal(signal.SIGTSTP, lambda *_: on_suspend(suspend))
    try:
        yield lend
    finally:
        if can_stop:
            signal.signal(signal.SIGTSTP, previous)
        _set(before)


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Put the terminal's settings back at the end of the block, whatever a program did to them."""
    if sys.platform == "win32":
        yield
        return
    before = termios.tcgetattr(_STDIN)
    try:
        yield
    finally:
        _set(before)


def suspend_process_group() -> None:
    """Do what a terminal does when Ctrl-Z is pressed: stop our whole process group."""
    if hasattr(signal, "SIGTSTP"):
        os.kill(0, signal.SIGTSTP)


if sys.platform != "win32":

    def _set(attributes: list[int | list[bytes | int]]) -> None:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(_STDIN, termios.TCSANOW, attributes)
