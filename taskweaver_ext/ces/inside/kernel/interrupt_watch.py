"""No interrupt is lost, not even one that comes just before a long system call.

Python notices a signal between two instructions. One that arrives after the
last look and before a call like `sleep` blocks is noticed only when that call
ends by itself. We learn of the signal at once, through the descriptor that
the interpreter writes to, and send it again until Python has noticed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading

_FIRST_WAIT_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 1.0
_NOTICED = 0xFF
"""Written to the pipe by Python's handler, behind the number that the signal itself wrote."""


class InterruptWatch:
    """Send SIGINT to the main thread again when it did not take effect.

    Threads:
        A thread of its own waits on a pipe, whose order tells whether the last
        signal was noticed. `noticed` is called by the signal handler, on the
        main thread, and writes one byte. `lock` keeps an execution from
        beginning while a signal for the one before it is sent.
    """

    def __init__(self) -> None:
        self.execution = 0
        """The one that may be interrupted; 0 when there is none."""
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        """Waits while a cell awaits; a signal does not wake it by itself."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(
            target=self._resend_until_noticed, name="taskweaver-interrupts", daemon=True
        )
        self._thread.start()

    def listen(self) -> None:
        """Let the interpreter write to our pipe, unless code has it write to one of its own."""
        other = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if other not in (-1, self._writer):
            with contextlib.suppress(OSError, ValueError):  # which it has closed
                signal.set_wakeup_fd(other)

    def begin(self, execution: int) -> None:
        """An execution begins; signals meant for others have come by now, and are forgotten."""
        with self.lock:
            self._read()
            self.execution = execution

    def end(self) -> None:
        """What comes from now on comes too late."""
        self.execution = 0

    def noticed(self) -> None:
        """Python's handler runs: the interrupt has been noticed."""
        self._write(_NOTICED)

    def ignored(self) -> None:
        """What the handler raised was ignored, as if the signal had not been noticed."""
        self._write(signal.SIGINT)

    def _write(self, byte: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, bytes((byte,)))

    def after_fork_in_child(self) -> None:
        """Leave a forked child's signals alone."""
        signal.set_wakeup_fd(-1)
        self._writer = os.open(os.devnull, os.O_WRONLY)

    def _resend_until_noticed(self) -> None:
        meant = 0  # the execution whose interrupt is not noticed yet
        wait_seconds = _FIRST_WAIT_SECONDS
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        while True:
            has_news = poller.poll(wait_seconds * 1000 if meant else None)
            with self.lock:
                if has_news:
                    meant, was_meant = self._unnoticed(meant), meant
                    wait_seconds = wait_seconds if was_meant else _FIRST_WAIT_SECONDS
                elif meant == self.execution:
                    self._send_again()
                    wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
                else:
                    meant = 0

    def _unnoticed(self, meant: int) -> int:
        """Return the execution whose interrupt is not noticed yet, by what the pipe says now."""
        for byte in self._read():
            if byte in (signal.SIGINT, _NOTICED):
                meant = self.execution if byte == signal.SIGINT else 0
        return meant

    def _read(self) -> bytes:
        try:
            return os.read(self._reader, 512)
        except BlockingIOError:
            return b""

    def is_calling(self) -> bool:
        """Whether this is the thread that sends signals again."""
        return threading.get_ident() == self._thread.ident

    def _send_again(self) -> None:
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it has been closed
                self.loop.call_soon_threadsafe(_wake_up)
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGINT)


def _wake_up() -> None:
    """Do nothing: the call wakes the loop, which then sees what the signal handler left for it."""
