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
from taskweaver_ext.ces.execution.late_output import LateOutputs, OnLateOutput
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES, MEMORY_BYTES
from taskweaver_ext.ces.execution.recorded_run import OnEvent, OnOutput
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.run_records import CLOSE_SECONDS, RunRecords
from taskweaver_ext.ces.programs.shell_reader import ShellCommand, ShellReader, ShellSettings
from taskweaver_ext.ces.programs.site import ProgramSites
from taskweaver_ext.closing import Closeable
from taskweaver_ext.errors import SessionError


class ShellExecutor(Closeable):
    """Run commands in one bash, one after another.

    Threads:
        Any thread may call any method. `_turn` is held by the thread whose command
        runs. `_lock` guards `_reader` and `_is_closed`.
    """

    def __init__(
        self,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        init_script: str | None = None,
        *,
        max_output: int = MEMORY_BYTES,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        folder: str | Path | None = None,
        audit: AuditLog | None = None,
        on_late_output: OnLateOutput | None = None,
        sites: ProgramSites | None = None,
    ) -> None:
        """Settings of the shell, which is started by the first command.

        Args:
            cwd: Where it starts; by default where we are.
            env: Variables for it, besides the harmless ones of ours.
            init_script: Run once in each bash, before its first command.
            max_output: Bytes of output in a result; more is trimmed in the middle, and the
                whole text is in a file.
            max_output_bytes: What a command may write before it is stopped.
            folder: Where such files are kept; by default in one that `close` removes.
            audit: Where commands are written down; by default in that folder.
            on_late_output: Told what background processes write after their command's end,
                on a thread of ours.
            sites: Where it runs; by default on this machine.
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
        )
        self._late_outputs = LateOutputs(self._records.folder, on_late_output, max_output_bytes)
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._reader: ShellReader | None = None
        self._is_closed = False

    def execute(
        self,
        code: str,
        *,
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Run a command when it is its turn, and call back, on this thread, for what it writes.

        Args:
            timeout: Seconds after which it is stopped with all it started; None is no limit.
            stdin: What it reads; by default it finds the end at once.

        Raises:
            SessionError: The executor has been closed.
        """
        with self._turn:
            reader = self._started_reader()
            run = self._records.begin(
                code,
                execution_id,
                on_output=on_output,
                on_event=on_event,
                cwd=str(self._settings.cwd),
                has_stdin=stdin is not None,
            )
            command = ShellCommand(
                run=run,
                code=code,
                stdin=stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin,
                timeout=timeout,
            )
            try:
                reader.submit(command)
                return run.deliver()
            except BaseException:
                # The caller's thread was interrupted: its command must not run on unseen.
                reader.request_stop("interrupt")
                command.has_ended.wait(CLOSE_SECONDS)
                run.abandon()
                raise
            finally:
                self._records.finish(run)

    def interrupt(self, *, kill: bool = False) -> None:
        """Stop the running command with all it started, if there is one; from any thread.

        Args:
            kill: At once, and the shell with its state.
        """
        with self._lock:
            reader = self._reader
        if reader is not None:
            reader.request_stop("kill" if kill else "interrupt")

    def close(self) -> None:
        """End the shell and everything it started, and remove what is ours."""
        with self._lock:
            self._is_closed = True
            reader = self._reader
        if reader is not None:
            reader.stop()
        # Whoever waited for the last command is to have its result.
        has_turn = self._turn.acquire(timeout=CLOSE_SECONDS)
        self._late_outputs.close()
        self._records.close()
        if has_turn:
            self._turn.release()

    def _started_reader(self) -> ShellReader:
        with self._lock:
            if self._is_closed:
                raise SessionError("This shell has been closed. Make another one.")
            if self._reader is None:
                self._reader = ShellReader(self._settings, self._late_outputs.receive)
                self._reader.start()
            return self._reader
