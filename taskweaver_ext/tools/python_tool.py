"""PythonTool: Python cells for agents, on kernels that stay."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import LateOutput
from taskweaver_ext.ces.sessions.turns import Turns
from taskweaver_ext.closing import Closeable
from taskweaver_ext.config.folders import FILE_NAME, find_app_dir, home_folder
from taskweaver_ext.errors import KernelDiedError, KernelError, SessionError
from taskweaver_ext.machine.owned_folders import GivenFolder
from taskweaver_ext.tools.late_cells import LateCells, OnLateOutput
from taskweaver_ext.tools.python_call import (
    SCHEMA,
    Cell,
    PythonCall,
    PythonCallResult,
    clamp_timeout,
    parse_call,
    text_of,
)
from taskweaver_ext.tools.running_call import OnCellEvent, RunningCall

KernelLifetime: TypeAlias = Literal["session", "call"]

MAX_KERNELS = 4
IDLE_SECONDS = 300.0
MAX_DEATHS_IN_A_ROW = 2
"""A kernel that died is started again by itself once; after a second death the caller decides."""

_NOT_IN_NAMES = re.compile(r"^[.-]|[^A-Za-z0-9_.-]")
_MAX_READABLE_CHARACTERS = 64
_DIGEST_CHARACTERS = 12
_ARTIFACT = re.compile(r"(?:artifact://)?([A-Za-z0-9-]{1,64})")


class PythonTool(Closeable):
    """Run cells as an agent asks for them.

    A session has a kernel for each folder it works in. Calls of one session
    wait for each other, in the order they came; sessions are independent.
    Use it as a context manager, or call `close`.

    Threads:
        Any thread may call any method; `_lock` guards the tables.
    """

    schema: Mapping[str, Any] = SCHEMA
    """The tool as models are told of it: name, description and parameters."""

    def __init__(
        self,
        environment: Environment | None = None,
        *,
        folder: str | Path | None = None,
        cwd: str | Path | None = None,
        kernel_lifetime: KernelLifetime = "session",
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        prelude: str | None = None,
        modules: Sequence[str | Path] | None = None,
        max_kernels: int | None = MAX_KERNELS,
        idle_seconds: float | None = IDLE_SECONDS,
        max_timeout: float = 0.0,
        on_late_output: OnLateOutput | None = None,
    ) -> None:
        """Settings of all calls.

        Args:
            environment: Has the kernels; by default one of the tool's own, made with `python`,
                `env`, `prelude`, `modules`, `max_kernels` and `idle_seconds`.
            folder: Where long outputs and session folders are kept; by default in one that
                `close` removes.
            cwd: Where code runs if a call says nothing else; by default the current folder.
            modules: As for `Environment`; by default `~/.taskweaver/modules`, then `modules` in the
                project that `cwd` is in.
            kernel_lifetime: "session", or "call" for a fresh kernel each time.
            max_timeout: Seconds that no call may exceed, whatever it asks for; 0: no such limit.
            on_late_output: Called, on a thread of its own, with the session's id and what a cell
                of it writes after its end; the model is told with the next result.

        Raises:
            ValueError: A setting makes no sense.
        """
        if kernel_lifetime not in get_args(KernelLifetime):
            raise ValueError(f'kernel_lifetime is "session" or "call", not {kernel_lifetime!r}.')
        if not 0 <= max_timeout < math.inf:
            raise ValueError(f"max_timeout is a number of seconds, not {max_timeout!r}.")
        self._given_folder = GivenFolder(folder)
        self._folder = self._given_folder.path
        self._cwd = Path(cwd).absolute() if cwd is not None else Path.cwd()
        self._lifetime = kernel_lifetime
        self._max_timeout = max_timeout
        self._on_late_output = on_late_output
        self._late = LateCells()
        self._owns_environment = environment is None
        self._environment = environment or Environment(
            self._folder,
            python=python,
            env=env,
            prelude=prelude,
            modules=_module_folders(self._cwd) if modules is None else modules,
            max_kernels=max_kernels,
            idle_seconds=idle_seconds,
            max_deaths_in_a_row=MAX_DEATHS_IN_A_ROW,
        )
        self._lock = threading.Lock()
        self._turns: dict[str, Turns] = {}
        self._started: dict[str, set[str]] = {}
        """By session: the kernel sessions that were started for it."""
        self._running: dict[str, RunningCall] = {}
        """By session: the call whose turn it is."""

    def call(
        self,
        arguments: Mapping[str, Any],
        *,
        session_id: str = "default",
        on_event: OnCellEvent | None = None,
    ) -> PythonCallResult:
        """Run a call as a model wrote it; one that makes no sense is an error the model reads.

        Args:
            arguments: As `schema` describes them.
            session_id: Any text; calls with the same one share their kernels.
            on_event: As for `run`.
        """
        try:
            call = parse_call(arguments)
        except ValueError as error:
            return PythonCallResult(text=str(error), is_error=True)
        return self._run_call(call, session_id, on_event)

    def run(
        self,
        cells: Sequence[Cell | str],
        *,
        session_id: str = "default",
        timeout: float | None = None,
        cwd: str | Path | None = None,
        reset: bool = False,
        on_event: OnCellEvent | None = None,
    ) -> PythonCallResult:
        """Run cells in order in one kernel, until one fails.

        Args:
            timeout: Seconds for all of them, clamped to 1..600; None: 30, 0: no limit.
            cwd: Where they run, which must exist.
            reset: Start with a fresh kernel.
            on_event: Called on this thread for what each cell does, while it does it.

        Raises:
            ValueError: There are no cells, or the timeout is not a number of seconds.
        """
        if isinstance(cells, str) or not cells:
            raise ValueError("cells is a list of texts or Cells, with one at least.")
        call = PythonCall(
            cells=tuple(Cell(code=cell) if isinstance(cell, str) else cell for cell in cells),
            timeout=timeout,
            cwd=None if cwd is None else str(cwd),
            reset=reset,
        )
        return self._run_call(call, session_id, on_event)

    def interrupt(self, session_id: str = "default", kill_after: float | None = None) -> None:
        """Stop the call that runs in a session, if one does; from any thread."""
        with self._lock:
            running = self._running.get(session_id)
        if running is not None:
            running.stop(kill_after)

    def end_session(self, session_id: str) -> None:
        """Stop the kernels of a session."""
        with self._lock:
            kernel_sessions = self._started.pop(session_id, set())
            if session_id not in self._running:
                self._turns.pop(session_id, None)
        self._late.take(session_id)  # nobody will ask any more
        for kernel_session in kernel_sessions:
            with contextlib.suppress(SessionError):  # stopped already
                self._environment.stop_session(kernel_session)

    def read_artifact(self, address: str, *, offset: int = 0, max_bytes: int | None = None) -> str:
        """The whole output that a result names as `artifact://<id>`, or a part of it.

        Args:
            offset: The byte to begin with.
            max_bytes: How much to read; None: all.

        Raises:
            FileNotFoundError: There is no such output.
            ValueError: The part makes no sense.
        """
        if offset < 0 or (max_bytes is not None and max_bytes < 0):
            raise ValueError("offset and max_bytes are counts of bytes, and not negative.")
        found = _ARTIFACT.fullmatch(address)
        path = self._outputs / f"{found[1]}.stdout" if found else None
        if path is None or not path.is_file():
            raise FileNotFoundError(f"There is no output {address!r}.")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if max_bytes is None else max_bytes).decode("utf-8", "replace")

    def close(self) -> None:
        """Stop all kernels of ours and remove what is ours."""
        with self._lock:
            sessions = list(self._started)
        if self._owns_environment:
            self._environment.close()
        else:
            for session_id in sessions:
                self.end_session(session_id)
        self._given_folder.close()

    @property
    def _outputs(self) -> Path:
        return self._folder / "outputs"

    def _run_call(
        self, call: PythonCall, session_id: str, on_event: OnCellEvent | None
    ) -> PythonCallResult:
        running = RunningCall(
            call,
            self._environment,
            outputs=self._outputs,
            timeout=clamp_timeout(call.timeout, self._max_timeout),
            on_event=on_event,
            on_begin=lambda execution_id, cell: self._late.remember(execution_id, cell.name),
        )
        try:
            with (
                self._turn(session_id),
                self._as_running(session_id, running),
                self._kernel_session(session_id, call) as kernel_session,
            ):
                cells = running.run_cells(kernel_session)
        except KernelDiedError as error:
            text = f"{error} In a call, reset=true does that."
            return PythonCallResult(text=text, is_error=True)
        except (KernelError, SessionError) as error:
            return PythonCallResult(text=str(error), is_error=True)
        late = self._late.take(session_id)
        return PythonCallResult(
            text=text_of(cells, len(call.cells), late),
            is_error=any(not cell.is_success for cell in cells),
            cells=tuple(cells),
            late=late,
        )

    @contextlib.contextmanager
    def _turn(self, session_id: str) -> Iterator[None]:
        """Let one call of a session at a time through, in the order they came."""
        with self._lock:
            turns = self._turns.setdefault(session_id, Turns())
        if turns.is_mine:
            raise SessionError(
                "A call was made from a callback of another call of the same session, which would"
                " wait for itself. Make it afterwards, or in another session."
            )
        with turns.place("execution") as place:
            turns.wait(place)
            yield

    @contextlib.contextmanager
    def _as_running(self, session_id: str, running: RunningCall) -> Iterator[None]:
        """From now on it is this call that an interrupt is meant for."""
        with self._lock:
            self._running[session_id] = running
        try:
            yield
        finally:
            with self._lock:
                del self._running[session_id]

    @contextlib.contextmanager
    def _kernel_session(self, session_id: str, call: PythonCall) -> Iterator[str]:
        """The kernel session for a call: the one of its folder, or a fresh one."""
        # One folder, one kernel, however the path to it was written.
        cwd = Path(os.path.normpath(self._cwd / Path(call.cwd or "").expanduser()))
        key = _name_of(session_id, cwd)
        is_fresh = self._lifetime == "call"
        if is_fresh:
            key += f"-{uuid.uuid4().hex[:8]}"
        try:
            self._have_kernel(session_id, key, cwd, call.reset)
            yield key
        finally:
            if is_fresh:
                self._forget(session_id, key)
                with contextlib.suppress(SessionError):  # it did not start, or was ended meanwhile
                    self._environment.stop_session(key)

    def _have_kernel(self, session_id: str, key: str, cwd: Path, reset: bool) -> None:
        with self._lock:
            started = self._started.setdefault(session_id, set())
            is_started = key in started
            started.add(key)  # before it is: `end_session` must know of it
        try:
            if not is_started:
                receive = partial(self._receive_late, session_id)
                self._environment.start_session(key, cwd=cwd, wait=False, on_late_output=receive)
            elif reset:
                self._environment.restart_session(key)
        except BaseException:
            if not is_started:
                self._forget(session_id, key)
            raise

    def _receive_late(self, session_id: str, late: LateOutput) -> None:
        self._late.receive(session_id, late)
        if self._on_late_output is not None:
            self._on_late_output(session_id, late)

    def _forget(self, session_id: str, key: str) -> None:
        with self._lock:
            self._started.get(session_id, set()).discard(key)


def _name_of(session_id: str, cwd: Path) -> str:
    """Name a session's kernel for a folder: readable, and always fit for a file name."""
    readable = _NOT_IN_NAMES.sub("_", session_id)[:_MAX_READABLE_CHARACTERS]
    digest = hashlib.sha256(repr((session_id, cwd)).encode()).hexdigest()
    return f"{readable or '_'}-{digest[:_DIGEST_CHARACTERS]}"


def _module_folders(cwd: Path) -> tuple[Path, ...]:
    """Where modules are kept: the user's, then those of the project that `cwd` is in.

    A folder is a project's only if there is a configuration file, because what is in it runs.
    """
    folders = [home_folder() / "modules"]
    project = find_app_dir(cwd)
    if (project / FILE_NAME).is_file():
        folders.append(project / "modules")
    return tuple(folders)
