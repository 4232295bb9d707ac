"""ShellExecutor: one persistent bash.

Directory, variables, functions and aliases last from command to command. A
command that is stopped leaves them untouched where bash can be brought back;
where it cannot, or where it ended by itself, the result says that they are gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.executor import Executor, RunOptions, new_execution_id
from taskweaver_ext.ces.execution.late_output import LateOutputs, OnLateOutput
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES, MEMORY_BYTES, OutputSink
from taskweaver_ext.ces.execution.recorded_run import RecordedRun
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.run_records import CLOSE_SECONDS, RunRecords
from taskweaver_ext.ces.programs.shell_command import ShellCommand
from taskweaver_ext.ces.programs.shell_reader import ShellReader, ShellSettings
from taskweaver_ext.ces.programs.site import ProgramSites
from taskweaver_ext.ces.sessions.turns import Turns
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.owned_folders import GivenFolder
from taskweaver_ext.text.redaction import Redactor

_ASK_FOR_STATE = r"""_taskweaver_asked=$?; \builtin printf '%s\0' "$PWD"
\command -p env -0; \builtin return "$_taskweaver_asked"
"""
"""Leaves the last exit code as it was."""
_STATE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ShellState:
    """What programs that a shell starts would begin with."""

    cwd: Path
    environment: Mapping[str, str]
    """Its exported variables."""


class ShellExecutor(Executor):
    """Run commands in one bash, one after another.

    Threads:
        Any thread may call any method. A command runs when its thread has the turn.
        `_lock` guards `_reader` and `_is_closed`.
    """

    def __init__(
        self,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        init_script: str | None = None,
        *,
        max_output: int = MEMORY_BYTES,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        folder: str | Path | GivenFolder | None = None,
        audit: AuditLog | None = None,
        on_late_output: OnLateOutput | None = None,
        sites: ProgramSites | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Settings of the shell, which is started by the first command.

        Args:
            cwd: Where it starts; by default where we are.
            env: Variables for it, besides the harmless ones of ours.
            init_script: Run once in each bash, before its first command.
            max_output: Bytes of output in a result; more is trimmed in the middle, and the
                whole text is in a file.
            max_output_bytes: What a command may write before it is stopped.
            folder: Where such files are kept; by default in one that goes with
                the executor and its last result.
            audit: Where commands are written down; by default in that folder.
            on_late_output: Told what background processes write after their command's end,
                on a thread of ours.
            sites: Where it runs; by default on this machine.
            redactor: Masks secrets in what commands write.
        """
        sites = sites or LocalSites()
        self._settings = ShellSettings(
            sites=sites,
            cwd=sites.working_directory(cwd),
            environment=sites.environment(env or {}),
            init_script=init_script,
            max_output_bytes=max_output_bytes,
        )
        self._records = RunRecords(
            "shell:bash",
            folder,
            audit,
            memory_bytes=max_output,
            max_output_bytes=max_output_bytes,
            redactor=redactor,
        )
        self._late_outputs = LateOutputs(
            self._records.folder, on_late_output, max_output_bytes, redactor
        )
        self._turns = Turns()
        self._lock = threading.Lock()
        self._reader: ShellReader | None = None
        self._is_closed = False

    def run(self, code: str, options: RunOptions) -> ExecutionResult:
        """Run a command when it is its turn, and call back, on this thread, for what it writes."""
        with self._turns.place("execution", options.token) as place:
            has_turn = self._turns.wait(place)
            reader = self._started_reader()
            run = self._records.begin(code, options, self._settings.cwd)
            command = ShellCommand(run=run, code=code, options=options)
            try:
                if has_turn:
                    reader.submit(command)
                else:
                    command.end_before_it_began()
                return run.deliver()
            except BaseException:
                # The caller's thread was interrupted: its command must not run on unseen.
                options.token.cancel()
                command.has_ended.wait(CLOSE_SECONDS)
                run.abandon()
                raise
            finally:
                self._records.finish(run)

    def state(self, timeout: float = _STATE_SECONDS) -> ShellState | None:
        """Its folder and exported variables once it is idle; None if it does not say in time.

        The shell is started for it if need be; nothing is written down of this.
        """
        options = RunOptions(execution_id=new_execution_id(None), timeout=timeout)
        sink = OutputSink(self._records.folder, options.execution_id)
        with self._turns.place("upkeep", options.token) as place:
            if not self._turns.wait(place, timeout):
                return None
            run = RecordedRun(_ASK_FOR_STATE, options, sink)
            self._started_reader().submit(
                ShellCommand(run=run, code=_ASK_FOR_STATE, options=options)
            )
            result = run.deliver()
        if result.status is ExecutionStatus.TIMEOUT or not result.stdout:
            return None
        cwd, *entries = "".join(result.stdout).split("\0")
        pairs = (entry.partition("=") for entry in entries if "=" in entry)
        return ShellState(Path(cwd), {name: value for name, _, value in pairs})

    def interrupt(self, *, kill: bool = False) -> bool:
        """Stop the command that runs, or is about to, with all it started; from any thread.

        Args:
            kill: At once, and the shell with its state.
        """
        return self._turns.interrupt(0.0 if kill else None)

    def close(self) -> None:
        """End the shell and everything it started, and remove what is ours."""
        with self._lock:
            self._is_closed = True
            reader = self._reader
        if reader is not None:
            reader.stop()
        with self._turns.place("upkeep", is_first=True) as place:
            self._turns.wait(place, CLOSE_SECONDS)  # the last command's caller has its result then
            self._late_outputs.close()
            self._records.close()

    def _started_reader(self) -> ShellReader:
        with self._lock:
            if self._is_closed:
                raise SessionError("This shell has been closed. Make another one.")
            if self._reader is None:
                self._reader = ShellReader(self._settings, self._late_outputs.receive)
                self._reader.start()
            return self._reader
