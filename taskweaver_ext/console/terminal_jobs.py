"""Programs that have the person's terminal: `!! vim notes.txt`.

Each is a process group of its own in our session, in the foreground for as long as it runs:
Ctrl-C and Ctrl-Z are keys of its own, and do not reach us. One that Ctrl-Z stops waits until
`!! fg` continues it, and ends with the chat.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from taskweaver_ext.ces.inside.spawner.process_tree import MARK, ProcessFamily
from taskweaver_ext.ces.inside.spawner.started_process import new_mark
from taskweaver_ext.ces.programs.exec_errors import describe_start_failure
from taskweaver_ext.ces.programs.orphan_killer import ORPHAN_KILLER
from taskweaver_ext.errors import SessionError
from taskweaver_ext.session.terminal_run import TerminalCommand, TerminalEnd

if sys.platform != "win32":
    import termios

CONTINUE = "fg"
"""What `!!` takes to continue the program that was stopped last."""

LendTerminal: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Gives the terminal away for the length of a block, as it was before we had it."""

_STDIN = 0
_HANG_UP_SECONDS = 2.0
"""How long a program may take to end after a hang-up."""

_WAIT_FOR_TERMINAL = 'read -r -u "$1"; eval "exec $1<&-"; exec "$BASH" -c "$2"'
"""The terminal is not given to a program that has not been started; and one that reads from it
before is stopped by the system."""


@dataclass(slots=True, eq=False)
class _Job:
    """A program that has the terminal, or had it."""

    command: str
    process: subprocess.Popen[bytes]
    mark: str
    modes: list[int | list[bytes | int]] | None = None
    """How it had set the terminal when it was stopped."""

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class TerminalJobs:
    """Runs programs on the terminal, one at a time.

    Threads:
        For the thread that owns the terminal, but for `hang_up`, which is for any thread.
        `_lock` guards `_running`.
    """

    def __init__(self) -> None:
        self.lend: LendTerminal | None = None
        """None where there is no terminal that could be given away."""
        self._lock = threading.Lock()
        self._running: _Job | None = None
        self._stopped: list[_Job] = []

    def require_terminal(self) -> None:
        """Raise SessionError where no program can have a terminal."""
        if self.lend is None or not hasattr(os, "tcsetpgrp"):
            raise SessionError(
                "`!!` gives a program your terminal, and there is none here."
                " `! command` runs it without one."
            )

    def find_stopped(self) -> str:
        """The command that `!! fg` continues; raises SessionError if there is none."""
        if not self._stopped:
            raise SessionError(
                "No program is stopped, so there is none to continue."
                " `!! command` gives one your terminal."
            )
        return self._stopped[-1].command

    def run(self, place: TerminalCommand) -> TerminalEnd:
        """Give a command the terminal until it has ended, or Ctrl-Z stops it."""
        assert self.lend is not None
        with contextlib.ExitStack() as gate:
            receiver, sender = os.pipe()
            gate.callback(os.close, sender)
            try:
                job = _start(place, receiver)
            except (OSError, ValueError) as error:
                return TerminalEnd(error=describe_start_failure(error))
            finally:
                os.close(receiver)
            with self.lend(), self._in_foreground(job):
                gate.close()
                return self._wait(job)

    def resume(self) -> TerminalEnd:
        """Give the terminal to the program that was stopped last."""
        assert self.lend is not None
        self.find_stopped()
        job = self._stopped.pop()
        with self.lend(), self._in_foreground(job):
            if job.modes is not None:
                _set_modes(job.modes)
            job.signal(signal.SIGCONT)
            return self._wait(job)

    def hang_up(self) -> bool:
        """End the program that has the terminal; False if none has."""
        with self._lock:
            job = self._running
            descriptor = os.pidfd_open(job.process.pid) if job and _HAS_PIDFD else None
        if job is None:
            return False
        job.signal(signal.SIGHUP)
        job.signal(signal.SIGCONT)
        if descriptor is not None:
            select.select([descriptor], [], [], _HANG_UP_SECONDS)
            os.close(descriptor)
        with self._lock:
            if self._running is job:
                job.signal(signal.SIGKILL)
        return True

    def close(self) -> None:
        """End what is stopped."""
        stopped, self._stopped = self._stopped, []
        for job in stopped:
            job.signal(signal.SIGHUP)
            job.signal(signal.SIGCONT)
            try:
                job.process.wait(_HANG_UP_SECONDS)
            except subprocess.TimeoutExpired:
                job.signal(signal.SIGKILL)
                job.process.wait()
            ORPHAN_KILLER.forget(job.mark)

    @contextlib.contextmanager
    def _in_foreground(self, job: _Job) -> Iterator[None]:
        ours = os.getpgrp()
        # Whoever takes the terminal back is not in the foreground, and would be stopped for it.
        handler = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with self._lock:
            self._running = job
        try:
            with contextlib.suppress(OSError):  # it is gone; the program finds that out itself
                os.tcsetpgrp(_STDIN, job.process.pid)
            yield
        finally:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(_STDIN, ours)
            signal.signal(signal.SIGTTOU, handler)

    def _wait(self, job: _Job) -> TerminalEnd:
        _, status = os.waitpid(job.process.pid, os.WUNTRACED)
        with self._lock:
            self._running = None
        if os.WIFSTOPPED(status):
            job.modes = _modes()
            self._stopped.append(job)
            title = job.command.strip().partition("\n")[0]
            return TerminalEnd(stopped=f"{title} waits; `!! {CONTINUE}` continues it.")
        ORPHAN_KILLER.forget(job.mark)
        code = job.process.returncode = os.waitstatus_to_exitcode(status)
        return TerminalEnd(exit_code=code if code >= 0 else 128 - code)


def _start(place: TerminalCommand, gate: int) -> _Job:
    """Start a command that waits until the gate is closed."""
    bash = shutil.which("bash", path=place.environment.get("PATH")) or "/bin/bash"
    mark = new_mark()
    process = subprocess.Popen(
        [bash, "-c", _WAIT_FOR_TERMINAL, "bash", str(gate), place.command],
        cwd=place.cwd,
        env={**place.environment, MARK: mark},
        pass_fds=(gate,),
        process_group=0,
    )
    ORPHAN_KILLER.watch(ProcessFamily(process.pid, mark))
    return _Job(place.command, process, mark)


_HAS_PIDFD = hasattr(os, "pidfd_open")

if sys.platform != "win32":

    def _modes() -> list[int | list[bytes | int]] | None:
        with contextlib.suppress(termios.error):
            return termios.tcgetattr(_STDIN)
        return None

    def _set_modes(modes: list[int | list[bytes | int]]) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(_STDIN, termios.TCSADRAIN, modes)
