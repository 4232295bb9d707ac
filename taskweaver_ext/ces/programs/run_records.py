"""What an executor keeps of its runs: a folder for long outputs, and lines in the audit log."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES, MEMORY_BYTES, OutputSink
from taskweaver_ext.ces.execution.recorded_run import RecordedRun
from taskweaver_ext.machine.owned_folders import GivenFolder
from taskweaver_ext.text.redaction import Redactor

CLOSE_SECONDS = 10.0
"""How long closing waits for callbacks that hang."""


class RunRecords:
    """Begin and finish the runs of one executor.

    The folder is the caller's, or a private one that is removed after `close`, as soon as no
    result is left that names a file in it.
    Without an audit log of the caller's there is one in the folder.
    """

    def __init__(
        self,
        executor: str,
        folder: str | Path | GivenFolder | None,
        audit: AuditLog | None,
        *,
        memory_bytes: int = MEMORY_BYTES,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        redactor: Redactor | None = None,
    ) -> None:
        self._executor = executor
        self._memory_bytes = memory_bytes
        self._max_output_bytes = max_output_bytes
        self._redactor = redactor
        self._given_folder = GivenFolder(folder)
        self.folder = self._given_folder.path
        self._has_own_audit = audit is None
        self._audit = audit or AuditLog(self.folder / "audit.jsonl", redactor=redactor)

    def begin(self, code: str, options: RunOptions, cwd: Path) -> RecordedRun:
        """A run to be filled; the audit log has its start."""
        sink = OutputSink(
            self.folder,
            options.execution_id,
            memory_bytes=self._memory_bytes,
            max_bytes=self._max_output_bytes,
            is_on_disk=options.record_on_disk,
        )
        run = RecordedRun(code, options, sink, self._redactor)
        failure = self._audit.write_start(
            run.id,
            executor=self._executor,
            code=code,
            cwd=str(cwd),
            has_stdin=options.stdin is not None,
        )
        if failure is not None:
            run.add_notice(failure)
        return run

    def finish(self, run: RecordedRun) -> None:
        """Add the end of a run to the audit log; its result keeps the files that it names."""
        if run.result.full_output_paths or run.result.artifact:
            run.result.folder = self._given_folder.temporary
        failure = self._audit.write_end(run.result, executor=self._executor)
        if failure is not None:
            run.add_notice(failure)

    def close(self) -> None:
        """Close the log, and let go of the folder."""
        if self._has_own_audit:
            self._audit.close()
        self._given_folder.close()
