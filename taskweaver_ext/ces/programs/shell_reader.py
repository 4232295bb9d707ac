"""The one thread that owns a shell: it talks to bash and reads what commands write."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.ces.execution.events import StatusChanged
from taskweaver_ext.ces.execution.recorded_run import RecordedRun
from taskweaver_ext.ces.execution.results import (
    ExecutionStatus,
    HostNotice,
    Notice,
)
from taskweaver_ext.ces.programs.bash import BashProcess, SentCommand
from taskweaver_ext.ces.programs.exec_errors import (
    describe_missing_site,
    describe_start_failure,
    exec_error,
    explain_missing_program,
    explain_working_directory,
)
from taskweaver_ext.ces.programs.program import reason_to_stop
from taskweaver_ext.ces.programs.shell_command import (
    SHELL_STATE,
    CommandOutput,
    CommandStop,
    ShellCommand,
    TakeLateOutput,
)
from taskweaver_ext.ces.programs.site import ProgramSite, ProgramSites, SiteGoneError
from taskweaver_ext.errors import TaskWeaverError

_LINGER_SECONDS = 0.05
"""How long others may go on writing to a command's result once the command has ended."""
_START_SECONDS = 2.0
"""How long a wish to stop waits for bash to begin with the command."""
BEGIN_SECONDS = 60.0
"""How long bash may take to begin with a command, on a machine that is busy."""
_NEVER = float("inf")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """What each bash is started with."""

    sites: ProgramSites
    cwd: Path
    environment: Mapping[str, str]
    init_script: str | None
    max_output_bytes: int


class ShellReader(threading.Thread):
    """Run commands one after another, and read what they and their leftovers write.

    Threads:
        This thread owns bash and all pipes from `start` to `stop`. `submit`, `stop`
        and a cancelled token are safe from any thread: they touch `_waiting`, the
        wake-up pipe and, under `_lock`, `_current` and a command's reason to stop.
    """

    def __init__(self, settings: ShellSettings, take_late: TakeLateOutput) -> None:
        super().__init__(name="taskweaver-shell", daemon=True)
        self._settings = settings
        self._take_late = take_late
        self._waiting: queue.SimpleQueue[ShellCommand | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._current: ShellCommand | None = None
        self._wake_receiver, self._wake_sender = os.pipe()
        os.set_blocking(self._wake_receiver, False)
        self._bash: BashProcess | None = None
        self._has_bash_ended = False
        self._is_paused = False
        self._ended: list[BashProcess] = []
        self._needs_init_script = False
        self._skips_init_script = False
        self._has_told_of_init_script = False
        self._outputs: list[CommandOutput] = []
        self._pause: HostNotice | None = None

    @property
    def has_bash(self) -> bool:
        """Whether a bash is there that has not been seen to end."""
        return self._bash is not None and not self._has_bash_ended

    def submit(self, command: ShellCommand) -> None:
        """Give it a command; the run is ended when the command has."""
        with self._lock:
            self._current = command
        self._waiting.put(command)
        self._wake()

    def stop(self) -> None:
        """Kill bash and everything it started, and wait for the thread to end."""
        with self._lock:
            if self._current is not None:
                self._current.stop_reason = "kill"
        self._waiting.put(None)
        self._wake()
        self.join()

    def run(self) -> None:
        """Serve until told to stop."""
        try:
            while (command := self._next_command()) is not None:
                try:
                    self._serve(command)
                except Exception:  # noqa: BLE001 - the next command must still be served
                    _log.exception("a shell command failed in our own hands")
                finally:  # a mistake of ours must not leave the caller waiting
                    with self._lock:
                        self._current = None
                    error = exec_error("The command was given up", "EIO")
                    command.run.end(ExecutionStatus.ERROR, error)
                    command.has_ended.set()
        finally:
            self._let_go()

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._wake_sender >= 0:
                os.write(self._wake_sender, b"!")

    def _next_command(self) -> ShellCommand | None:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._waiting.get_nowait()
            self._wait(None, None)

    def _stop_command(self, command: ShellCommand, kill_after: float | None) -> None:
        reason = reason_to_stop(kill_after)
        with self._lock:
            if command.stop_reason is None or reason == "kill":
                command.stop_reason = reason
        self._wake()

    def _serve(self, command: ShellCommand) -> None:
        command.run.stop_with(lambda kill_after: self._stop_command(command, kill_after))
        timeout = command.options.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            with self._settings.sites.use() as site:
                error = self._serve_at(site, command, deadline)
        except TaskWeaverError as failure:
            error = describe_missing_site(failure)
        except SiteGoneError as gone:
            command.run.result.death = gone.death
            command.run.end(ExecutionStatus.DIED, f"The shell is gone: {gone}.")
            return
        if error is not None:
            command.run.end(ExecutionStatus.ERROR, error)

    def _serve_at(
        self, site: ProgramSite, command: ShellCommand, deadline: float | None
    ) -> str | None:
        error = self._ensure_bash(site, command)
        if error is None and self._needs_init_script:
            error = self._run_init_script(site, command, deadline)
        if error is None and not command.run.is_finished:
            if command.stop_reason is None:
                error = self._run_command(command, deadline)
            else:
                command.end_stopped(self._settings.max_output_bytes)
        if error is None and not command.run.is_finished:  # bash did not run it: a fresh one will
            return self._serve_at(site, command, deadline)
        return error

    def _ensure_bash(self, site: ProgramSite, command: ShellCommand) -> str | None:
        """Start bash if there is none; say what is wrong, if anything is."""
        if self._bash is not None and not self._has_bash_ended and not self._bash.has_ended():
            return None
        settings = self._settings
        path = site.find_program("bash", settings.environment)
        if path is None:
            return explain_missing_program("bash", is_there=False)
        complaint = site.complain_about_folder(settings.cwd)
        if (error := explain_working_directory(settings.cwd, complaint)) is not None:
            return error
        if self._bash is not None:
            self._put_away(self._bash, command.run)
        try:
            self._bash = BashProcess(site, path, settings.cwd, settings.environment)
        except (OSError, ValueError) as failure:
            return describe_start_failure(failure)
        self._has_bash_ended = False
        self._needs_init_script = settings.init_script is not None and not self._skips_init_script
        return None

    def _put_away(self, bash: BashProcess, run: RecordedRun) -> None:
        """Let go of a bash that has ended, and say what that costs."""
        message = (
            f"The shell was gone ({bash.how_it_ended()}); this ran in a fresh one,"
            f" without {SHELL_STATE}."
        )
        run.add_notice(Notice(kind="restarted", message=message))
        run.say(StatusChanged(execution_id=run.id, status="restarted", detail=message))
        self._bash = self._pause = None
        if bash.has_left_anything():
            self._ended.append(bash)  # what runs in the background runs on
        else:
            bash.close()

    def _run_init_script(
        self, site: ProgramSite, command: ShellCommand, deadline: float | None
    ) -> str | None:
        """Run what comes before the first command; say why that one cannot run, if so.

        What fails in it is said once; a shell that it ends is replaced by one without it.
        """
        bash = self._bash
        if bash is None or self._settings.init_script is None:
            return None
        try:
            sent = bash.send(self._settings.init_script, None)
        except OSError as failure:
            return describe_start_failure(failure)
        self._needs_init_script = False
        output = CommandOutput(sent, None, self._take_late, self._settings.max_output_bytes)
        if self._follow(bash, command, sent, output, deadline):
            self._judge(bash, command, sent)
        elif self._has_bash_ended:
            how = f"ended the shell ({bash.how_it_ended()}); it is left out from now on"
            self._tell_of_init_script(command, how, output)
            self._skips_init_script = True
            self._bash = None
            bash.close()
            return self._ensure_bash(site, command)
        elif sent.exit_code:
            how = f"failed with exit code {sent.exit_code}; the shell is used as it left it"
            self._tell_of_init_script(command, how, output)
        return None

    def _tell_of_init_script(self, command: ShellCommand, how: str, output: CommandOutput) -> None:
        if self._has_told_of_init_script:
            return
        self._has_told_of_init_script = True
        said = output.stderr_tail.decode("utf-8", "replace").strip()
        message = f"The init script {how}." + (f" It said: {said}" if said else "")
        command.run.add_notice(Notice(kind="host", message=message))

    def _run_command(self, command: ShellCommand, deadline: float | None) -> str | None:
        bash = self._bash
        if bash is None:
            return None
        try:
            sent = bash.send(command.code, command.options.stdin_bytes)
        except OSError as failure:
            return describe_start_failure(failure)
        command.run.say(StatusChanged(execution_id=command.run.id, status="running"))
        if self._pause is not None:
            command.run.receive_notice(self._pause)
        output = CommandOutput(sent, command.run, self._take_late, self._settings.max_output_bytes)
        if not self._follow(bash, command, sent, output, deadline):
            command.stop_reason = None  # it came too late
            if sent.was_refused and not command.was_refused:
                command.was_refused = True
                self._give_up(bash, "it could not run commands any more, and was killed")
                return None
        if output.has_replaced:
            message = "Some bytes of the output are not UTF-8; they are replaced by U+FFFD."
            command.run.add_notice(Notice(kind="output_lost", message=message))
        self._judge(bash, command, sent)
        return None

    def _give_up(self, bash: BashProcess, why: str) -> None:
        bash.give_up(why)
        self._has_bash_ended = True

    def _follow(
        self,
        bash: BashProcess,
        command: ShellCommand,
        sent: SentCommand,
        output: CommandOutput,
        deadline: float | None,
    ) -> bool:
        """Read until the command has ended, and return whether it was stopped.

        That happens when it is cancelled, at the deadline, or when it writes too much.
        """
        self._outputs.append(output)
        stopping: CommandStop | None = None
        give_up_at = _NEVER  # waiting for a bash that does not even begin
        begin_by = time.monotonic() + BEGIN_SECONDS
        while sent.exit_code is None and not self._has_bash_ended:
            must_begin = not sent.has_started and not self._is_paused and stopping is None
            if must_begin and time.monotonic() >= begin_by:
                why = f"it was alive but did not begin within {BEGIN_SECONDS:g} s, and was killed"
                self._give_up(bash, why)
                break
            if stopping is None:
                self._decide_to_stop(command, deadline)
                if command.stop_reason is not None:
                    give_up_at = min(give_up_at, time.monotonic() + _START_SECONDS)
                can_wait = command.stop_reason != "kill" and time.monotonic() < give_up_at
                if command.stop_reason is not None and (sent.has_started or not can_wait):
                    stopping = CommandStop(bash, sent)
                    command.run.say(
                        StatusChanged(execution_id=command.run.id, status="interrupting")
                    )
            if stopping is not None:
                stopping.escalate(is_kill=command.stop_reason == "kill")
            until = deadline if give_up_at == _NEVER else give_up_at
            if must_begin:
                until = begin_by if until is None else min(until, begin_by)
            self._wait(sent, stopping.next_step_at if stopping is not None else until)
        if stopping is not None:
            stopping.end_leftovers()
        output.drain()
        linger_until = time.monotonic() + (_LINGER_SECONDS if stopping is None else 0.0)
        while output.is_open and time.monotonic() < linger_until:
            self._wait(sent, linger_until)
        output.is_late = True
        bash.forget(sent)
        return stopping is not None

    def _decide_to_stop(self, command: ShellCommand, deadline: float | None) -> None:
        with self._lock:
            if command.stop_reason is None:
                if command.run.has_too_much_output:
                    command.stop_reason = "output_limit"
                elif deadline is not None and time.monotonic() >= deadline:
                    command.stop_reason = "timeout"

    def _wait(self, sent: SentCommand | None, until: float | None) -> None:
        """Wait for something to happen, or for a moment, and read what is there."""
        pipes = {pipe.descriptor: pipe for output in self._outputs for pipe in output.open_pipes}
        poller = select.poll()
        for descriptor in (self._wake_receiver, *pipes):
            poller.register(descriptor, select.POLLIN)
        bash = self._bash if not self._has_bash_ended else None
        if bash is not None:
            if bash.is_listening:
                poller.register(bash.reports, select.POLLIN)
            if bash.descriptor is not None:
                poller.register(bash.descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(_milliseconds_until(until)):
            if descriptor in pipes:
                pipes[descriptor].read()
            elif descriptor == self._wake_receiver:
                os.read(self._wake_receiver, 4096)
            elif bash is not None and descriptor == bash.reports:
                bash.read_reports(sent)
            elif bash is not None:
                self._receive_notices(bash.read_notices())
                self._has_bash_ended = bash.has_ended()
        self._outputs = [output for output in self._outputs if output.is_open]
        if bash is not None and bash.descriptor is None and not bash.is_listening:
            self._has_bash_ended = True  # where nothing else tells

    def _receive_notices(self, notices: Iterable[HostNotice]) -> None:
        """Tell the command that runs; the next one hears only what will hold it up."""
        with self._lock:
            command = self._current
        for notice in notices:
            if notice.status in ("paused", "resumed"):
                self._is_paused = notice.status == "paused"
            if command is not None:
                command.run.receive_notice(notice)
            self._pause = notice if notice.status == "paused" and command is None else None

    def _judge(self, bash: BashProcess, command: ShellCommand, sent: SentCommand) -> None:
        """End a command as its end means."""
        ended = bash.wait() if self._has_bash_ended else None
        command.end(bash, sent, ended, self._settings.max_output_bytes)

    def _let_go(self) -> None:
        for bash in (*self._ended, *([self._bash] if self._bash is not None else [])):
            bash.close()
        for output in self._outputs:
            output.close()
        with self._lock:
            for descriptor in (self._wake_receiver, self._wake_sender):
                os.close(descriptor)
            self._wake_sender = -1


def _milliseconds_until(moment: float | None) -> float | None:
    if moment is None or moment == float("inf"):
        return None
    return max(0.0, moment - time.monotonic()) * 1000
