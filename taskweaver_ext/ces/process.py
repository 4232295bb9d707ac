"""ProcessExecutor: one fresh process per run.

Code runs exactly as given, without a shell in between, within limits. What
keeps it from running is a result like any other, with an error that reads
`exec: {what} ({CODE})`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from taskweaver_ext.ces.execution.audit import AuditLog
from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.executor import (
    Executor,
    OnEvent,
    OnOutput,
    RunOptions,
    new_execution_id,
)
from taskweaver_ext.ces.execution.output_sink import MAX_OUTPUT_BYTES, MEMORY_BYTES
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.ces.programs.languages import Language, find_language
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.orphan_killer import ORPHAN_KILLER
from taskweaver_ext.ces.programs.process_run import ProcessRun
from taskweaver_ext.ces.programs.program import ProgramLimits
from taskweaver_ext.ces.programs.run_records import CLOSE_SECONDS, RunRecords
from taskweaver_ext.ces.programs.site import ProgramSites
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.owned_folders import GivenFolder
from taskweaver_ext.text.redaction import Redactor

DEFAULT_TIMEOUT_SECONDS = 30.0


class ProcessExecutor(Executor):
    """Run code of one language, each time in a process of its own.

    Runs may go on at the same time, from different threads.
    """

    def __init__(
        self,
        language: str | Language,
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        languages: Mapping[str, Language] | None = None,
        limits: ProgramLimits | None = None,
        default_timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        max_output: int = MEMORY_BYTES,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        folder: str | Path | GivenFolder | None = None,
        audit: AuditLog | None = None,
        sites: ProgramSites | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Settings of all runs.

        Args:
            cwd: Where programs run; by default where we do.
            env: Variables for them, besides the harmless ones of ours.
            languages: Languages added to the built-in ones.
            default_timeout: Seconds for runs that say nothing; None is no limit.
            max_output: Bytes of output in a result; more is trimmed in the middle, and the
                whole text is in a file.
            max_output_bytes: What a program may write before it is stopped.
            folder: Where such files are kept; by default in one that goes with
                the executor and its last result.
            audit: Where runs are written down; by default in that folder.
            sites: Where programs run; by default on this machine.
            redactor: Masks secrets in what programs write.
        """
        self._language: Language | None
        if isinstance(language, Language):
            self._name, self._language = language.name, language
        else:
            self._name, self._language = language, find_language(language, languages)
        self._sites = sites or LocalSites()
        self._cwd = cwd
        self._env = dict(env or {})
        self._limits = limits or ProgramLimits()
        self._default_timeout = default_timeout
        self._max_output_bytes = max_output_bytes
        self._records = RunRecords(
            f"process:{self._name}",
            folder,
            audit,
            memory_bytes=max_output,
            max_output_bytes=max_output_bytes,
            redactor=redactor,
        )
        self._lock = threading.Lock()
        self._accepted: set[CancellationToken] = set()
        self._all_ended = threading.Condition(self._lock)
        self._is_closed = False
        self._let_killer_go: Callable[[], object] | None = None

    def execute(
        self,
        code: str | None,
        *,
        on_output: OnOutput | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Run code to its end and call back, on this thread, for what it writes.

        Args:
            timeout: Seconds for the whole run; by default the executor's own limit.
            stdin: What the program reads; by default it finds the end at once.

        Raises:
            SessionError: The executor has been closed.
        """
        options = RunOptions(
            execution_id=new_execution_id(execution_id),
            on_output=on_output,
            on_event=on_event,
            timeout=timeout,
            stdin=stdin,
            cwd=cwd,
            env=env or {},
        )
        return self.run(code, options)

    def run(self, code: str | None, options: RunOptions) -> ExecutionResult:
        """The same, as the layers above ask for it."""
        folder = self._sites.working_directory(options.cwd or self._cwd)
        with self._accepting(options.token):
            run = self._records.begin(code or "", options, folder)
            job = ProcessRun(
                run=run,
                sites=self._sites,
                language=self._language,
                language_name=self._name,
                code=code,
                cwd=folder,
                environment=self._sites.environment({**self._env, **options.env}),
                stdin=options.stdin_bytes,
                limits=self._limits,
                timeout=self._default_timeout if options.timeout is None else options.timeout,
                max_output_bytes=self._max_output_bytes,
                record_folder=self._records.folder,
            )
            try:
                return job.run_to_end()
            finally:
                self._records.finish(run)

    def interrupt(self, *, kill: bool = False) -> bool:
        """Interrupt everything that runs, with all it started; from any thread.

        Args:
            kill: At once, without time to clean up.
        """
        with self._lock:
            accepted = tuple(self._accepted)
        for token in accepted:
            token.cancel(0.0 if kill else None)
        return bool(accepted)

    def close(self) -> None:
        """Kill what runs, wait for it, and remove what is ours."""
        with self._lock:
            self._is_closed = True
        self.interrupt(kill=True)
        with self._lock:
            self._all_ended.wait_for(lambda: not self._accepted, CLOSE_SECONDS)
            let_killer_go, self._let_killer_go = self._let_killer_go, None
        if let_killer_go is not None:
            let_killer_go()
        self._records.close()

    @contextlib.contextmanager
    def _accepting(self, token: CancellationToken) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise SessionError("This executor has been closed. Make another one.")
            self._accepted.add(token)
            if self._let_killer_go is None:
                self._let_killer_go = ORPHAN_KILLER.stay_for(self)
        try:
            yield
        finally:
            with self._lock:
                self._accepted.discard(token)
                self._all_ended.notify_all()
