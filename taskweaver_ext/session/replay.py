"""Run the cells of a session again, in order, on a fresh kernel, and say what differs."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from taskweaver_ext.ces.execution.executor import OnInput
from taskweaver_ext.ces.execution.files_beneath import path_parts, regular_file_beneath
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.ces.kernels.client.execution import END_OF_INPUT
from taskweaver_ext.ces.sessions.snapshot_file import VARIABLES_FILE
from taskweaver_ext.ces.sessions.variables import SavedVariables
from taskweaver_ext.errors import KernelError, SessionError, TaskWeaverError
from taskweaver_ext.events.types import (
    PostEventType,
    RoundEventType,
    SessionEventHandler,
    TaskWeaverEvent,
)
from taskweaver_ext.machine.private_files import make_private_folder
from taskweaver_ext.session.blocks import (
    TERMINAL,
    Block,
    Cell,
    Message,
    QuestionOutput,
    SessionNotice,
    read_blocks,
)
from taskweaver_ext.session.compared_cells import (
    STOPPED,
    Difference,
    RunOfCell,
    compare_runs,
)
from taskweaver_ext.session.files import place_file
from taskweaver_ext.session.saved import SavedSession
from taskweaver_ext.session.session import Session
from taskweaver_ext.session.submitted import Submitted

AskPassword = Callable[[str], str | None]
"""Asks a person for a password, given the prompt of the code; None: there is none."""

_MORE_SECONDS = 1.0
"""What code that was stopped then gets besides its time, so that it comes at least as far."""
_SKIPPED = {
    "refused": "it was refused then",
    "not_run": "it did not run then",
    "lost": "its process was lost while it ran",
    "running": "it has not ended yet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCell:
    """What became of one cell."""

    number: int
    language: str
    code: str
    outcome: Literal["same", "different", "not compared", "skipped"]
    then: str
    """How it ended then."""
    now: str = ""
    """How it ended in the replay; empty if it did not run."""
    differences: tuple[Difference, ...] = ()
    put_aside: dict[str, int] = field(default_factory=dict)
    """How many times, durations, addresses and so on differ and were not compared."""
    notes: tuple[str, ...] = ()
    """What else is to be known: why it was skipped, what cannot be compared."""

    def to_json(self) -> dict[str, Any]:
        """As JSON, with each difference as its short diff, too."""
        said = asdict(self)
        said["differences"] = [{**asdict(one), "diff": one.lines()} for one in self.differences]
        return dict(json.loads(json.dumps(said)))


class Replay:
    """Replays one session in another, which has a fresh kernel, shell and working folder.

    Threads:
        `cells` is for one thread, `stop` for any. `_lock` guards what is running.
    """

    def __init__(
        self,
        saved: SavedSession,
        open_session: Callable[[], Session],
        *,
        until: int | None = None,
        keeps_kernel: bool = False,
        on_begin: Callable[[Cell], object] = lambda _cell: None,
        event_handler: SessionEventHandler | None = None,
        ask_password: AskPassword | None = None,
    ) -> None:
        """Prepare; `cells` begins.

        Args:
            open_session: Opens the session in which the code runs: an empty one the first time,
                later the same again with a fresh kernel.
            until: The number of the last cell that is run.
            keeps_kernel: Whether the variables of all cells are kept, also where the session was
                continued on a fresh kernel.
            on_begin: Called before a cell runs.
            event_handler: Hears what the code does while it runs.
            ask_password: Answers `getpass()`; without it, code that asks finds no answer.
        """
        self._saved = saved
        self._open_session = open_session
        self._until = until
        self._keeps_kernel = keeps_kernel
        self._on_begin = on_begin
        self._event_handler = event_handler
        self._ask_password = ask_password
        self._session: Session | None = None
        self._needs_fresh_kernel = False
        self._notes: list[str] = []
        self._lock = threading.Lock()
        self._running: Submitted[ExecutionResult] | None = None
        self.is_stopped = False
        """Whether `stop` was called."""

    def count_cells(self) -> int:
        """How many cells the session has, up to the last that is wanted."""
        cells = (block for block in self._blocks(with_output=False) if isinstance(block, Cell))
        return sum(1 for cell in cells if self._is_wanted(cell))

    def cells(self) -> Iterator[ReplayedCell]:
        """Run one cell after another; what is not asked for any more is not run.

        Raises:
            KernelError: The kernel does not start, or dies again and again.
            SessionError: The session cannot be read.
        """
        for block in self._blocks():
            if isinstance(block, Message):
                self._copy_files(block.files, block.at)
            elif isinstance(block, SessionNotice):
                self._copy_files(block.files, block.at)
                self._hear(block)
            elif isinstance(block, Cell):
                replayed = self._replay(block) if self._is_wanted(block) else None
                if replayed is None:
                    return
                yield replayed

    def snapshot(self) -> SavedVariables:
        """Save the variables of the replay in the folder of the session, as its own.

        Raises:
            SessionError: No Python code was run, or the file cannot be written.
        """
        if self._session is None:
            raise SessionError("No code has run in the replay, so there are no variables to save.")
        return self._session.snapshot(self._saved.folder / VARIABLES_FILE)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the cell that runs, and run none after it."""
        with self._lock:
            self.is_stopped = True
            running = self._running
        if running is not None:
            running.cancel(kill)

    def _blocks(self, *, with_output: bool = True) -> Iterator[Block]:
        return read_blocks(lambda: self._saved.events(with_output=with_output))

    def _is_wanted(self, cell: Cell) -> bool:
        return not self.is_stopped and (self._until is None or cell.number <= self._until)

    def _hear(self, notice: SessionNotice) -> None:
        if notice.kind == "resumed":
            self._needs_fresh_kernel = not self._keeps_kernel
        elif notice.about == "variables_saved":
            self._try("saved", lambda: self._fitting_session().snapshot())
        elif notice.about == "variables_restored":
            self._try("restored", self._restore_variables)

    def _restore_variables(self) -> None:
        """Do it with what the replay has saved, or else with what the session has."""
        session = self._fitting_session()
        own = session.session_dir / VARIABLES_FILE
        session.restore_variables(own if own.exists() else self._saved.folder / VARIABLES_FILE)

    def _try(self, what: str, do: Callable[[], object]) -> None:
        """Do with the variables what was done then; the next cell says if that fails."""
        try:
            do()
        except SessionError as error:
            self._notes.append(
                f"variables were {what} before it then, and could not be now: {error}"
            )

    def _fitting_session(self) -> Session:
        """The session that code runs in, with a fresh kernel where there was one then."""
        if self._session is not None and self._needs_fresh_kernel:
            self._session.stop()
            self._session = None
        self._needs_fresh_kernel = False
        if self._session is None:
            self._session = self._open_session()
        return self._session

    def _copy_files(self, names: Iterable[str], at: float) -> None:
        """Give the replay what was given to the session at a time."""
        for name in names:
            path = regular_file_beneath(self._saved.working_folder, name)
            parts = path_parts(name)
            try:
                if path is None or parts is None:
                    raise FileNotFoundError(name)
                folder = self._fitting_session().cwd.joinpath(*parts[:-1])
                make_private_folder(folder)
                place_file(folder, path)
                if path.stat().st_mtime > at + 1:
                    self._notes.append(f"{name} has changed since it was given; it is as it is now")
            except (SessionError, OSError):
                self._notes.append(f"{name}, which was given then, is not there any more")

    def _replay(self, cell: Cell) -> ReplayedCell | None:
        """Run a cell and compare; None when it was stopped."""
        if cell.status in _SKIPPED:
            return self._told(cell, "skipped", notes=[_SKIPPED[cell.status]])
        if cell.language == TERMINAL:
            return self._told(cell, "skipped", notes=["it had a person's terminal"])
        session = self._fitting_session()
        self._on_begin(cell)
        after = session.emitter.last_seq
        answers = _Answers(cell, self._ask_password)
        try:
            # Where nobody was asked then, nobody could be: the code has to fail as it did.
            self._run(session, cell, answers.answer if answers.were_wanted else None)
        except KernelError:
            raise
        except TaskWeaverError as error:
            if self.is_stopped:
                return None
            failure = Difference("status", cell.status, f"it could not run: {error}")
            return self._told(cell, "different", [failure])
        if self.is_stopped:
            return None
        now = _cell_after(session.session_dir, after)
        if now is None:
            return self._told(cell, "not compared", notes=["what came of it cannot be read"])
        found = compare_runs(
            RunOfCell(cell, self._saved.folder, self._saved.working_folder),
            RunOfCell(now, session.session_dir, session.cwd),
        )
        outcome: Literal["same", "different", "not compared"] = "same"
        if found.differences:
            outcome = "different"
        elif cell.status in STOPPED:
            outcome = "not compared"
        return self._told(
            cell,
            outcome,
            found.differences,
            now=now.status,
            put_aside=dict(found.put_aside),
            notes=[*answers.notes, *found.notes],
        )

    def _told(
        self,
        cell: Cell,
        outcome: Literal["same", "different", "not compared", "skipped"],
        differences: list[Difference] | None = None,
        *,
        now: str = "",
        put_aside: dict[str, int] | None = None,
        notes: list[str] | None = None,
    ) -> ReplayedCell:
        before, self._notes = self._notes, []
        return ReplayedCell(
            number=cell.number,
            language=cell.language,
            code=cell.code,
            outcome=outcome,
            then=cell.status,
            now=now,
            differences=tuple(differences or ()),
            put_aside=put_aside or {},
            notes=(*before, *(notes or ())),
        )

    def _run(self, session: Session, cell: Cell, on_input: OnInput | None) -> None:
        """Run a cell to its end; one that was stopped then is stopped after as long as then."""
        code = _CodeBegins()
        emitter = session.emitter
        with emitter.handle_events_ctx(self._event_handler), emitter.handle_events_ctx(code):
            submitted = session.submit_code(cell.language, cell.code, on_input)
            with self._lock:
                self._running = submitted
            try:
                if self.is_stopped:
                    submitted.cancel()
                if cell.status in STOPPED:
                    code.has_begun.wait()
                    with contextlib.suppress(TimeoutError):
                        submitted.wait((cell.duration_seconds or 0.0) + _MORE_SECONDS)
                    submitted.cancel()
                submitted.wait()
            except BaseException:
                submitted.cancel(kill=True)
                raise
            finally:
                with self._lock:
                    self._running = None


class _CodeBegins(SessionEventHandler):
    """Notes when code begins to run, which may take a kernel's start, or will not begin."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def handle(self, event: TaskWeaverEvent) -> None:
        """Hear an event of the session."""
        if event.t in (PostEventType.post_execution_event, RoundEventType.round_end):
            self.has_begun.set()


class _Answers:
    """Answers what a cell asks with what was answered then."""

    def __init__(self, cell: Cell, ask_password: AskPassword | None) -> None:
        self._questions = [
            output
            for output in cell.outputs
            if isinstance(output, QuestionOutput) and output.kind != "approval"
        ]
        self._ask_password = ask_password
        self.were_wanted = bool(self._questions)
        """Whether the cell has asked for input."""
        self.notes: list[str] = []

    def answer(self, prompt: str, password: bool) -> str:
        """Give the next answer, or the end of the input where there is none."""
        question = self._questions.pop(0) if self._questions else None
        if password:
            given = self._ask_password(prompt) if self._ask_password is not None else None
            if given is None:
                self.notes.append("it asked for a password, which is never kept, and got none")
            return END_OF_INPUT if given is None else given
        if question is None or question.kind == "password":
            self.notes.append("it asked more than it did then, and got no answer")
            return END_OF_INPUT
        return question.answer if question.outcome == "answered" else END_OF_INPUT


def _cell_after(folder: Path, seq: int) -> Cell | None:
    """Read the cell that a session has run after an event."""
    saved = SavedSession(folder)
    blocks = read_blocks(lambda: saved.events(after=seq))
    return next((block for block in blocks if isinstance(block, Cell)), None)
