"""ShellExecutor: one persistent bash.

Directory, variables, functions and aliases last from command to command. A
command that is stopped leaves them untouched where bash can be brought back;
where it cannot, or where it ended by itself, the result says that they are gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.executor import Executor, RunOptions, new_execution_id
from taskweaver_ext.ces.execution.late_output import LateOutputs, OnLateOutput
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES, MEMORY_BYTES, OutputSink
from taskweaver_ext.ces.execution.recorded_run import RecordedRun
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus, Notice
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.run_records import CLOSE_SECONDS, RunRecords
from taskweaver_ext.ces.programs.shell_command import ShellCommand
from taskweaver_ext.ces.programs.shell_completion import (
    ShellCompletion,
    ShellKnowledge,
    complete_shell,
)
from taskweaver_ext.ces.programs.shell_reader import ShellReader, ShellSettings
from taskweaver_ext.ces.programs.site import ProgramSites
from taskweaver_ext.ces.sessions.turns import Turns
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.owned_folders import GivenFolder
from taskweaver_ext.text.redaction import Redactor

_ASK = r"""_taskweaver_asked=$?
\builtin printf '%s\0' "$PWD"
\command -p env -0
\builtin printf '\0'; \builtin compgen {commands}
\builtin printf '\0'; \builtin compgen -v
\builtin return "$_taskweaver_asked"
"""
"""Asks what a shell knows, with builtins alone, and leaves its last exit code as it was."""
_OWN_COMMANDS = "-abk -A function"
_ALL_COMMANDS = "-c"
_ASK_SECONDS = 10.0
_OURS = "_taskweaver_"


class ShellExecutor(Executor):
    """Run commands in one bash, one after another.

    Threads:
        Any thread may call any method. A command runs when its thread has the turn.
        `_lock` guards `_reader` and `_is_closed`; what the shell is known to know belongs to
        the thread that has the turn.
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
        self._is_here = isinstance(sites, LocalSites)
        self._known: ShellKnowledge | None = None
        self._is_known_now = False
        self._untold: list[Notice] = []
        """What was to be told when nothing ran for a caller."""
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
            self._is_known_now = False
            while self._untold:
                run.add_notice(self._untold.pop(0))
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

    def ask(self, wait_seconds: float = _ASK_SECONDS) -> ShellKnowledge | None:
        """What the shell knows: its folder, variables and commands; None if it is not to be had.

        It is started if need be, and nothing is written down of this.

        Args:
            wait_seconds: How long a command that runs is waited for.
        """
        options = RunOptions(execution_id=new_execution_id(None), timeout=_ASK_SECONDS)
        code = _ASK.format(commands=_OWN_COMMANDS if self._is_here else _ALL_COMMANDS)
        with self._turns.place("upkeep", options.token) as place:
            if not self._turns.wait(place, wait_seconds):
                return None
            run = RecordedRun(code, options, OutputSink(self._records.folder, options.execution_id))
            self._started_reader().submit(ShellCommand(run=run, code=code, options=options))
            result = run.deliver()
            self._untold += result.notices
            if result.status is not ExecutionStatus.TIMEOUT:
                self._known = _read_knowledge("".join(result.stdout), is_here=self._is_here)
                self._is_known_now = True
        return self._known

    def complete(self, line: str) -> list[ShellCompletion]:
        """What can be typed at the end of a line, quoted as it has to be; from any thread.

        Nothing is started for it. While a command runs, the shell is as it was before.
        """
        with self._lock:
            reader = self._reader
        if reader is not None and reader.has_bash and not self._is_known_now:
            self.ask(wait_seconds=0.0)
        known = self._known
        if known is None and self._is_here:
            known = ShellKnowledge(self._settings.cwd, self._settings.environment)
        return complete_shell(line, known) if known is not None else []

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


def _read_knowledge(answer: str, *, is_here: bool) -> ShellKnowledge | None:
    """What the shell has said, if it has said all of it."""
    cwd, *entries = answer.split("\0")
    if entries.count("") != 1:
        return None
    *variables, _, commands, names = entries
    pairs = (entry.partition("=") for entry in variables)
    return ShellKnowledge(
        Path(cwd),
        {name: value for name, equals, value in pairs if equals},
        tuple(name for name in commands.split("\n") if name and not name.startswith(_OURS)),
        tuple(name for name in names.split("\n") if name and not name.startswith(_OURS)),
        is_here,
    )
