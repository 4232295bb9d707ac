"""One command of a shell: what it writes, how it is stopped, and what its end means."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.recorded_run import RecordedRun
from taskweaver_ext.ces.execution.results import (
    ExecutionId,
    ExecutionStatus,
    KernelDeath,
    Notice,
    StreamName,
)
from taskweaver_ext.ces.inside.spawner.process_tree import ProcessSeen
from taskweaver_ext.ces.programs.bash import BashProcess, SentCommand
from taskweaver_ext.ces.programs.exec_errors import exec_error
from taskweaver_ext.ces.programs.process_output import OutputPipe
from taskweaver_ext.ces.programs.program import StopReason

SHELL_STATE = "its directory, variables, functions and aliases"
"""What is lost with a bash."""

TakeLateOutput: TypeAlias = Callable[[ExecutionId, StreamName, bytes], None]

_STEPS: tuple[tuple[float, signal.Signals | None], ...] = (
    (0.0, signal.SIGINT),
    (0.05, signal.SIGINT),
    (0.15, signal.SIGINT),
    (0.4, signal.SIGINT),
    (1.0, signal.SIGTERM),
    (2.0, signal.SIGKILL),
    (2.5, signal.SIGKILL),
    (3.0, None),
)
"""How a command is stopped: after so many seconds, a signal to those of its processes that
have not had it; at last bash itself is killed, and its state with it."""

_CLEAN_UP_SECONDS = 0.3
"""How long bash may wait for a program that cleans up; only then it is interrupted, too. A trap
of the user's would run before ours, and the rest of the command after it."""

_LEFTOVER_SECONDS = 0.1
"""How long what a stopped command left in the background has to end by itself."""
_INIT_TAIL_BYTES = 1000

_INTERRUPTED = (ExecutionStatus.CANCELLED, exec_error("Process interrupted", "SIGNAL"))


@dataclass(slots=True, eq=False)
class ShellCommand:
    """A command on its way through the shell."""

    run: RecordedRun
    code: str
    options: RunOptions
    has_ended: threading.Event = field(default_factory=threading.Event)
    stop_reason: StopReason | None = None
    """Why it is to be stopped, or was."""
    was_refused: bool = False
    """Whether a bash could not run it, and another was started for it."""

    def end_before_it_began(self) -> None:
        """It was cancelled before bash had it."""
        self.run.end(*_INTERRUPTED)
        self.has_ended.set()

    def end_stopped(self, max_output_bytes: int) -> None:
        """It was stopped, for its reason to stop."""
        if self.stop_reason == "timeout":
            what = f"Process timeout after {self.options.timeout:g}s"
            self.run.end(ExecutionStatus.TIMEOUT, exec_error(what, "TIMEOUT"))
        elif self.stop_reason == "output_limit":
            what = f"Output exceeds {max_output_bytes:,} bytes"
            self.run.add_notice(Notice(kind="output_limit", message=f"{what}; it was stopped."))
            self.run.end(ExecutionStatus.ERROR, exec_error(what, "OUTPUT_LIMIT"))
        else:
            self.run.end(*_INTERRUPTED)

    def end(
        self, bash: BashProcess, sent: SentCommand, ended: int | None, max_output_bytes: int
    ) -> None:
        """It has ended, or was stopped.

        Args:
            ended: The exit code of bash, if it has ended with the command.
        """
        run, result = self.run, self.run.result
        result.exit_code = sent.exit_code
        if self.stop_reason is not None:
            result.exit_code = 128 + signal.SIGINT
        for message in bash.limits_met():
            run.add_notice(Notice(kind="limit", message=message))
        death = bash.death()
        if ended is not None:
            result.exit_code = ended if ended >= 0 else 128 - ended
            result.variables_survived = False
            message = f"The shell is gone ({bash.how_it_ended()}), and with it {SHELL_STATE}."
            run.add_notice(Notice(kind="state_lost", message=message))
        if self.stop_reason is not None:
            self.end_stopped(max_output_bytes)
        elif death is not None or ended is not None and ended < 0:
            result.death = death or KernelDeath(
                cause="unresponsive" if bash.why_given_up else "signal",
                signal=-(ended or 0),
                detail=bash.how_it_ended(),
            )
            result.exit_code = result.exit_code if death is None else death.exit_code
            run.end(ExecutionStatus.DIED, f"The shell is gone: {bash.how_it_ended()}.")
        elif result.exit_code:
            error = f"The command ended with exit code {result.exit_code}."
            run.end(ExecutionStatus.ERROR, error)
        else:
            run.end(ExecutionStatus.SUCCESS)


class CommandOutput:
    """The streams of one command: its own until it has ended, late afterwards."""

    def __init__(
        self,
        sent: SentCommand,
        run: RecordedRun | None,
        take_late: TakeLateOutput,
        max_late_bytes: int,
    ) -> None:
        self.is_late = False
        self.stderr_tail = b""
        self._run = run
        self._take_late = take_late
        self._late_bytes_left = max_late_bytes
        self._pipes = (
            OutputPipe(sent.stdout, "stdout", self._receive),
            OutputPipe(sent.stderr, "stderr", self._receive),
        )

    @property
    def open_pipes(self) -> list[OutputPipe]:
        """Those that a process may still write to."""
        return [pipe for pipe in self._pipes if pipe.is_open]

    @property
    def is_open(self) -> bool:
        """Whether a process may still write."""
        return bool(self.open_pipes)

    @property
    def has_replaced(self) -> bool:
        """Whether some bytes were not UTF-8."""
        return any(pipe.has_replaced for pipe in self._pipes)

    def drain(self) -> None:
        """Read what has been written by now."""
        for pipe in self._pipes:
            pipe.drain()

    def close(self) -> None:
        """Let go of the pipes; a process that writes to them is ended by that."""
        for pipe in self._pipes:
            pipe.close()

    def _receive(self, stream: StreamName, data: bytes) -> None:
        if self._run is None:  # an init script is no caller's command
            if stream == "stderr":
                self.stderr_tail = (self.stderr_tail + data)[-_INIT_TAIL_BYTES:]
        elif not self.is_late:
            self._run.receive_output(stream, data)
        else:
            self._late_bytes_left -= len(data)
            self._take_late(self._run.id, stream, data)
            if self._late_bytes_left < 0:
                self.close()


class CommandStop:
    """The way from a wish to stop to a command that has stopped."""

    def __init__(self, bash: BashProcess, sent: SentCommand) -> None:
        self._bash = bash
        self._sent = sent
        self._steps = iter(_STEPS)
        self._signalled: set[tuple[ProcessSeen, signal.Signals]] = set()
        self._began_at = time.monotonic()
        self._number: signal.Signals | None = None
        self.next_step_at = self._began_at
        self._advance()

    def escalate(self, *, is_kill: bool) -> None:
        """Do what is due by now, or the last thing at once."""
        if is_kill:
            self._bash.kill()
        while not is_kill and time.monotonic() >= self.next_step_at:
            if self._number is None:
                self._bash.kill()
            else:
                self._bash.begin_interrupt()
                processes_live = self._signal_processes(self._number)
                waited_seconds = self.next_step_at - self._began_at
                patience_seconds = _CLEAN_UP_SECONDS if processes_live else 0.0
                hangs = waited_seconds > patience_seconds
                self._bash.finish_interrupt(self._sent, hangs_by_itself=hangs)
            self._advance()

    def end_leftovers(self) -> None:
        """End what the command left in the background, where signals like ours are ignored."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if found := self._bash.processes_of(self._sent):
                self._bash.signal_processes(found, signal.SIGCONT)
                self._bash.signal_processes(found, number, wait_seconds=_LEFTOVER_SECONDS)

    def _advance(self) -> None:
        seconds, self._number = next(self._steps, (float("inf"), None))
        self.next_step_at = self._began_at + seconds

    def _signal_processes(self, number: signal.Signals) -> bool:
        """Send a signal once to each program, and return whether there are any.

        A second one could end its clean-up. A process whose mark has changed has become
        another program since.
        """
        living = self._bash.processes_of(self._sent)
        found = []
        for process in living:
            key = (process, number)
            if key not in self._signalled:
                self._signalled.add(key)
                found.append(process)
        self._bash.signal_processes(found, number)
        self._bash.signal_processes(found, signal.SIGCONT)
        return bool(living)
