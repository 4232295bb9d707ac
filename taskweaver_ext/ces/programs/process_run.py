"""One run of a fresh process: its source, its build, its program, and what becomes of them."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from taskweaver_ext.ces.execution.events import StatusChanged
from taskweaver_ext.ces.execution.recorded_run import RecordedRun
from taskweaver_ext.ces.execution.results import (
    ExecutionArtifact,
    ExecutionResult,
    ExecutionStatus,
    KernelDeath,
    Notice,
    StreamName,
    signal_name,
)
from taskweaver_ext.ces.programs.binary_record import BinaryRecord
from taskweaver_ext.ces.programs.exec_errors import (
    describe_missing_site,
    describe_start_failure,
    exec_error,
    explain_working_directory,
)
from taskweaver_ext.ces.programs.languages import CODE, FILE, FOLDER, PROGRAM, Language
from taskweaver_ext.ces.programs.program import Program, ProgramEnd, ProgramLimits, StopRequest
from taskweaver_ext.ces.programs.site import (
    ProcessSettings,
    ProgramSite,
    ProgramSites,
    SiteGoneError,
)
from taskweaver_ext.ces.programs.tools import ToolMissingError, find_tools
from taskweaver_ext.errors import TaskWeaverError

_INTERRUPTED = (ExecutionStatus.CANCELLED, exec_error("Process interrupted", "SIGNAL"))
_STDERR_TAIL_BYTES = 16_384
_SAYS_OUT_OF_MEMORY = re.compile(
    rb"MemoryError|out of memory|cannot allocate|bad_alloc|memory allocation of \d+ bytes failed",
    re.IGNORECASE,
)


class ProcessRun:
    """One run: the files it needs, its build, its program, and what becomes of them.

    Threads:
        `_work` runs on a thread of its own, which reads what the program writes;
        `run_to_end` on the caller's, which calls out. The run is all they share
        until that thread has ended.
    """

    def __init__(
        self,
        *,
        run: RecordedRun,
        sites: ProgramSites,
        language: Language | None,
        language_name: str,
        code: str | None,
        cwd: Path,
        environment: dict[str, str],
        stdin: bytes | None,
        limits: ProgramLimits,
        timeout: float | None,
        max_output_bytes: int,
        record_folder: Path,
    ) -> None:
        self._run = run
        self._stop = StopRequest()
        self._sites = sites
        self._language = language
        self._language_name = language_name
        self._code = code
        self._cwd = cwd
        self._environment = environment
        self._stdin = stdin
        self._limits = limits
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._max_output_bytes = max_output_bytes
        self._binary = BinaryRecord(record_folder, run.id, max_output_bytes)
        self._stderr_tail = b""
        self._site_memory_bytes: int | None = None

    def run_to_end(self) -> ExecutionResult:
        """Do everything and give the result."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop.close)
            stack.callback(self._binary.close)
            thread = threading.Thread(target=self._work, name="taskweaver-program", daemon=True)
            try:
                thread.start()
                result = self._run.deliver()
            except BaseException:
                # The caller's thread was interrupted: its program must not run on unseen.
                self._stop_and_wait(thread)
                self._run.abandon()
                raise
            thread.join()
            self._keep_binary_output(result)
        return result

    def _stop_and_wait(self, thread: threading.Thread) -> None:
        """Interrupt the program and wait for its end; a second Ctrl-C has it killed."""
        self._run.token.cancel()
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                self._run.token.cancel(kill_after=0.0)

    def _work(self) -> None:
        self._run.stop_with(self._stop.request)
        try:
            with self._sites.use() as site, contextlib.ExitStack() as stack:
                self._site_memory_bytes = site.memory_bytes
                error = self._explain_what_is_wrong(site)
                if error is not None:
                    self._run.end(ExecutionStatus.ERROR, error)
                elif self._language is not None and self._code is not None:
                    self._build_and_run(site, self._language, self._code, stack)
        except TaskWeaverError as failure:
            self._run.end(ExecutionStatus.ERROR, describe_missing_site(failure))
        except SiteGoneError as gone:
            self._run.end(*self._judge_death(gone.death))
        finally:  # a mistake of ours must not leave the caller waiting
            self._run.end(ExecutionStatus.ERROR, exec_error("The run was given up", "EIO"))

    def _explain_what_is_wrong(self, site: ProgramSite) -> str | None:
        if self._language is None:
            what = f"Unsupported language '{self._language_name}'"
            return exec_error(what, "LANG_UNSUPPORTED")
        if self._code is None:
            return exec_error("No code was given", "MISSING_CODE")
        complaint = site.complain_about_folder(self._cwd)
        if (error := explain_working_directory(self._cwd, complaint)) is not None:
            return error
        try:
            tools = find_tools(self._language, site, self._environment, self._cwd)
        except ToolMissingError as error:
            return str(error)
        self._language, self._environment = tools.language, dict(tools.environment)
        return None

    def _build_and_run(
        self, site: ProgramSite, language: Language, code: str, stack: contextlib.ExitStack
    ) -> None:
        try:
            places, stdin = self._write_files(site, language, code, stack)
        except OSError as error:
            self._run.end(ExecutionStatus.ERROR, describe_start_failure(error))
            return
        if language.build:
            build = tuple(_fill_in(argument, places) for argument in language.build)
            end = self._supervise(site, build, None, ProgramLimits())
            if end is None or not self._is_well_built(end):
                return
        command = (language.command, *language.arguments_for(code))
        filled = (code if part == CODE else _fill_in(part, places) for part in command)
        end = self._supervise(site, tuple(filled), stdin, self._limits)
        if end is not None:
            self._run.end(*self._judge(end))

    def _write_files(
        self, site: ProgramSite, language: Language, code: str, stack: contextlib.ExitStack
    ) -> tuple[dict[str, str], str | None]:
        """Write code and input to files if they have to be in some; say where things are."""
        needs_source = language.needs_file(code)
        if not needs_source and self._stdin is None:
            return {}, None
        folder = site.make_folder()
        stack.callback(folder.close)
        stdin = None if self._stdin is None else folder.write("stdin", self._stdin)
        if not needs_source:
            return {}, stdin
        source = code.encode("utf-8", "surrogatepass")
        file = folder.write(f"main{language.suffix}", source)
        builds_in = folder.path_for_builds() if language.build else str(Path(file).parent)
        return {FILE: file, FOLDER: builds_in, PROGRAM: f"{builds_in}/program"}, stdin

    def _supervise(
        self, site: ProgramSite, command: tuple[str, ...], stdin: str | None, limits: ProgramLimits
    ) -> ProgramEnd | None:
        """Run one command to its end; None when it could not start, or should not any more."""
        if self._run.token.is_cancelled:
            self._run.end(*_INTERRUPTED)
            return None
        settings = ProcessSettings(
            path=site.find_program(command[0], self._environment) or command[0],
            command=command,
            cwd=self._cwd,
            environment=self._environment,
            stdin=stdin,
            limits=limits.entries(),
            has_lifeline=True,
        )
        program = Program(
            site,
            settings,
            on_bytes=self._receive,
            on_binary=self._receive_binary,
            read_notices=self._run.receive_notice,
            has_too_much_output=self._has_too_much_output,
        )
        try:
            program.start()
        except (OSError, ValueError) as error:
            self._run.end(ExecutionStatus.ERROR, describe_start_failure(error))
            return None
        self._run.say(StatusChanged(execution_id=self._run.id, status="running"))
        end = program.supervise(self._deadline, self._stop)
        for message in end.limits_met:
            self._run.add_notice(Notice(kind="limit", message=message))
        return end

    def _receive(self, stream: StreamName, data: bytes) -> None:
        self._run.receive_output(stream, data)
        if stream == "stderr" and self._limits.memory_bytes is not None:
            self._stderr_tail = (self._stderr_tail + data)[-_STDERR_TAIL_BYTES:]

    def _receive_binary(self, stream: StreamName, data: bytes) -> None:
        if stream not in self._binary.streams:
            self._binary.leave_room(stream, self._run.recorded_bytes(stream))
        self._binary.write(stream, data)

    def _has_too_much_output(self) -> bool:
        return self._run.has_too_much_output or self._binary.limit_reached

    def _is_well_built(self, end: ProgramEnd) -> bool:
        """Whether the build made a program; if not, the run ends here."""
        if end.exit_code == 0 and end.stopped_for is None:
            return True
        status, error = self._judge(end)
        if end.stopped_for is None and end.signal is None:
            error = exec_error(f"The build ended with exit code {end.exit_code}", "BUILD_FAILED")
        self._run.end(status, error)
        return False

    def _judge(self, end: ProgramEnd) -> tuple[ExecutionStatus, str | None]:
        """What the end of a program means for the run."""
        self._run.result.usage = end.usage
        self._run.result.exit_code = _exit_code(end)
        if end.stopped_for == "timeout":
            what = f"Process timeout after {self._timeout:g}s"
            return ExecutionStatus.TIMEOUT, exec_error(what, "TIMEOUT")
        if end.stopped_for in ("interrupt", "kill"):
            return _INTERRUPTED
        if end.death is not None:
            return self._judge_death(end.death)
        if error := self._explain_failure(end):
            return ExecutionStatus.ERROR, error
        if end.exit_code != 0:
            return ExecutionStatus.ERROR, f"The program ended with exit code {end.exit_code}."
        return ExecutionStatus.SUCCESS, None

    def _judge_death(self, death: KernelDeath) -> tuple[ExecutionStatus, str]:
        """What the end of the place that the program ran in means for the run."""
        self._run.result.death = death
        self._run.result.exit_code = death.exit_code
        return ExecutionStatus.DIED, f"The program's container ended: {death.detail}."

    def _explain_failure(self, end: ProgramEnd) -> str | None:
        if end.stopped_for == "output_limit":
            what = f"Output exceeds {self._max_output_bytes:,} bytes"
            self._run.add_notice(Notice(kind="output_limit", message=f"{what}; it was stopped."))
            return exec_error(what, "OUTPUT_LIMIT")
        has_failed = end.exit_code != 0
        says_so = has_failed and _SAYS_OUT_OF_MEMORY.search(self._stderr_tail) is not None
        if end.was_out_of_memory or says_so:
            limits = (self._limits.memory_bytes, self._site_memory_bytes)
            limit = min((limit for limit in limits if limit is not None), default=None)
            what = "Out of memory" + (f" (limit {limit:,} bytes)" if limit is not None else "")
            return exec_error(what, "OUT_OF_MEMORY")
        if end.signal is not None:
            if end.signal == signal.SIGXCPU:
                what = f"The program used more than {self._limits.cpu_seconds} s of CPU time."
                self._run.add_notice(Notice(kind="limit", message=what))
            return exec_error(f"Process killed by {signal_name(end.signal)}", "SIGNAL")
        if self._binary.streams:
            streams = " and ".join(self._binary.streams)
            return exec_error(f"Output on {streams} is not UTF-8 text", "BINARY_OUTPUT")
        return None

    def _keep_binary_output(self, result: ExecutionResult) -> None:
        """Complete the files of raw bytes with the text that came before them."""
        for stream in self._binary.streams:
            texts = result.stdout if stream == "stdout" else result.stderr
            whole = result.full_output_paths.get(stream)
            try:
                path = self._binary.complete(stream, whole or "".join(texts).encode())
            except OSError as error:
                message = f"The raw bytes of {stream} could not be kept: {error}."
                result.notices.append(Notice(kind="record_failed", message=message))
                continue
            result.artifact.append(
                ExecutionArtifact(
                    name=f"{stream} (raw bytes)",
                    type="file",
                    mime_type="application/octet-stream",
                    original_name=path.name,
                    file_name=str(path),
                )
            )


def _fill_in(argument: str, places: Mapping[str, str]) -> str:
    for placeholder, place in places.items():
        argument = argument.replace(placeholder, place)
    return argument


def _exit_code(end: ProgramEnd) -> int | None:
    """As a shell has it: the program's own code, or 128 and the signal that ended it."""
    return end.exit_code if end.signal is None else 128 + end.signal
