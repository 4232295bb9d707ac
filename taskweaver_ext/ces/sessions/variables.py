"""Save the variables of a session's kernel to a file, and bring them back into a kernel.

`ces/inside/kernel/variables.py` makes and loads the pickles. They travel as what the
kernel writes and as arguments of requests, so that it is the same wherever the kernel runs.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from taskweaver_ext.ces.execution.cancellation import CancellationToken
from taskweaver_ext.ces.execution.executor import OnOutput
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.kernels.modes import KERNEL_MODES, EnvMode
from taskweaver_ext.ces.sessions.snapshot_file import (
    OpenedSnapshot,
    SnapshotHeader,
    SnapshotPart,
    opened_snapshot,
    write_snapshot,
)
from taskweaver_ext.errors import SessionError
from taskweaver_ext.machine.owner_key import read_owner_key
from taskweaver_ext.text.redaction import Redactor

MAX_SNAPSHOT_BYTES = 256 << 20
SNAPSHOT_SECONDS = 60.0

_INTERRUPT_AFTER_SECONDS = 2.0
"""How long a kernel may go on after its time is up, which it mostly notices itself."""
_GIVE_UP_AFTER_SECONDS = 8.0
"""How long it may go on after the interrupt, before the caller is let go."""
_REQUEST_BYTES = 1 << 20
"""What one request carries: gateways refuse requests of ten times that."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedVariables:
    """What a snapshot holds, and what it does not."""

    path: Path
    size_bytes: int
    names: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The variables that could not be saved, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredVariables:
    """What of a snapshot is in the kernel now, and what is not."""

    names: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The variables that have not come back, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Which file, and within which limits."""

    path: Path
    key_folder: Path
    """Where the key of this user is."""
    max_bytes: int = MAX_SNAPSHOT_BYTES
    seconds: float = SNAPSHOT_SECONDS
    trust: bool = False
    """Whether the file is loaded whoever has written it."""
    token: CancellationToken = field(default_factory=CancellationToken)


class AskKernel(Protocol):
    """Has the kernel's runtime do a command, unmasked, and waits for its end."""

    def __call__(
        self,
        command: str,
        arguments: dict[str, Any],
        token: CancellationToken,
        *,
        on_output: OnOutput | None = None,
    ) -> ExecutionResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableTransfer:
    """Moves the variables of one session's kernel; used by the thread whose turn it is."""

    session_id: str
    mode: EnvMode
    ask_kernel: AskKernel
    options: SnapshotOptions
    redactor: Redactor | None = None

    def save(self, on_answer: Callable[[], object]) -> SavedVariables:
        """Write the variables to a file.

        Args:
            on_answer: Called when the kernel is done and begins to say what it has saved.

        Raises:
            SessionError: The kernel did not answer, or the file cannot be written.
        """
        options, path = self.options, self.options.path
        arguments = {
            "cloudpickle": _cloudpickle_source(),
            "max_bytes": options.max_bytes,
            "seconds": options.seconds,
        }
        result = self.ask_kernel(
            "save_variables",
            arguments,
            options.token,
            on_output=lambda stream, _text: on_answer() if stream == "stdout" else None,
        )
        try:
            self._check(result, "saved")
            lines = _lines_of(result)
            header = self._header(next(lines, ""))
            if header.size > options.max_bytes:  # code may have changed what the kernel says
                raise self._nonsense()
            pieces = _decoded(lines, header.size, self.session_id)
            size = write_snapshot(path, header, pieces, read_owner_key(options.key_folder))
        except OSError as error:
            raise SessionError(
                f"The variables cannot be written to {path}: {error.strerror or error}. What was"
                " there before has not changed."
            ) from error
        finally:
            for record in result.full_output_paths.values():
                record.unlink(missing_ok=True)
        return SavedVariables(
            path=path, size_bytes=size, names=header.names, left_out=header.left_out
        )

    def restore(self, folder: Path) -> RestoredVariables:
        """Load the variables of the file into the kernel.

        Args:
            folder: Out of reach of code; a copy of the file is there meanwhile.

        Raises:
            SessionError: The file cannot be trusted or read, or the kernel did not answer.
        """
        options = self.options
        try:
            key = read_owner_key(options.key_folder)
        except OSError as error:
            raise SessionError(
                f"Nothing was loaded, because the key of this user cannot be read: {error}."
            ) from error
        with opened_snapshot(
            options.path, key, trust=options.trust, max_bytes=options.max_bytes, folder=folder
        ) as opened:
            if not options.trust:
                self._refuse_to_let_out(opened.header)
            try:
                self._send(opened)
                result = self._load(opened.header)
            except BaseException:
                nothing = _piece(b"", is_first=True)
                self.ask_kernel("receive_variables", nothing, CancellationToken())
                raise
        return self._restored(opened.header, result)

    def _refuse_to_let_out(self, header: SnapshotHeader) -> None:
        """Code of a confined kernel, or of another machine, has made what would run here."""
        here = KERNEL_MODES[self.mode]
        if header.mode not in (EnvMode.Local, self.mode) and not here.is_confined:
            raise SessionError(
                f"{self.options.path} comes from a kernel in mode {header.mode!r}. Loading it into"
                f" one in mode {self.mode.value!r} would run what its code has put there with your"
                " rights, so nothing was loaded. If you trust that code, say so (--trust, or"
                " trust=True)."
            )

    def _send(self, opened: OpenedSnapshot) -> None:
        is_first = True
        for piece in opened.pieces(_REQUEST_BYTES):
            arguments = _piece(piece, is_first=is_first)
            result = self.ask_kernel("receive_variables", arguments, self.options.token)
            self._check(result, "loaded")
            is_first = False

    def _load(self, header: SnapshotHeader) -> ExecutionResult:
        parts = [
            {"names": part.names, "size": part.size, "has_code": part.has_code}
            for part in header.parts
        ]
        arguments = {
            "cloudpickle": _cloudpickle_source(),
            "python": header.python,
            "parts": parts,
        }
        result = self.ask_kernel("restore_variables", arguments, self.options.token)
        self._check(result, "all loaded; some may be there")
        return result

    def _restored(self, header: SnapshotHeader, result: ExecutionResult) -> RestoredVariables:
        try:
            said = json.loads("".join(_lines_of(result)))
            names = tuple(map(str, said["restored"]))
            left_out = {str(name): str(why) for name, why in said["left_out"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._nonsense() from error
        unsaved = {name: f"it was not saved: {why}" for name, why in header.left_out.items()}
        return RestoredVariables(names=names, left_out={**unsaved, **self._masked(left_out)})

    def _header(self, line: str) -> SnapshotHeader:
        try:
            said = json.loads(line)
            left_out = {str(name): str(why) for name, why in said["left_out"].items()}
            return SnapshotHeader(
                session_id=self.session_id,
                mode=self.mode.value,
                created_at=time.time(),
                python=str(said["python"]),
                parts=tuple(map(SnapshotPart.from_json, said["parts"])),
                left_out=self._masked(left_out),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._nonsense() from error

    def _masked(self, left_out: dict[str, str]) -> dict[str, str]:
        if self.redactor is None:
            return left_out
        return {name: self.redactor.redact(why) for name, why in left_out.items()}

    def _check(self, result: ExecutionResult, what: str) -> None:
        if result.is_success:
            return
        is_stopped = result.status is ExecutionStatus.CANCELLED
        why = "it was stopped" if is_stopped else (result.error or result.status.value).strip()
        lost = "" if result.variables_survived else " The kernel and its variables are gone."
        raise SessionError(
            f"The variables of session {self.session_id!r} were not {what}:"
            f" {why.splitlines()[-1].removesuffix('.')}.{lost}"
        )

    def _nonsense(self) -> SessionError:
        return SessionError(
            f"What the kernel of session {self.session_id!r} says of its variables makes no sense;"
            " its code may have changed how it answers. Restart it to use it for this."
        )


def wait_for_kernel_to_answer(
    do: Callable[[Callable[[], object]], T], session_id: str, options: SnapshotOptions
) -> T:
    """Do something that a kernel may never end, and let go of the caller in any case.

    What takes too long is interrupted, but never killed: the variables are worth more than
    their snapshot.

    Args:
        do: Called on a thread of its own with what to call once the kernel is done and only
            has to tell; `options.token` stops it.

    Raises:
        SessionError: The kernel does not even react to the interrupt; it is still busy then.
    """
    is_answering = threading.Event()
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(do(is_answering.set))
        except BaseException as error:  # noqa: BLE001 - raised where the caller waits
            outcome.set_exception(error)

    threading.Thread(target=work, name=f"taskweaver-variables-{session_id}", daemon=True).start()
    try:
        for grace_seconds in (_INTERRUPT_AFTER_SECONDS, _GIVE_UP_AFTER_SECONDS):
            if _is_done(outcome, options.seconds + grace_seconds):
                return outcome.result()
            if not is_answering.is_set():
                options.token.cancel()
    except BaseException:
        options.token.cancel()
        raise
    raise SessionError(
        f"The kernel of session {session_id!r} has not ended after {options.seconds:g} s, although"
        " it was interrupted: something in its variables cannot be stopped. It is unharmed and"
        " busy; what is run next waits for it. interrupt(kill_after=0) ends it, and its variables"
        " are lost."
    )


def _is_done(outcome: Future[Any], seconds: float) -> bool:
    done = threading.Event()
    outcome.add_done_callback(lambda _outcome: done.set())
    return done.wait(seconds)


def _piece(data: bytes, *, is_first: bool) -> dict[str, Any]:
    return {"data": base64.b64encode(data).decode("ascii"), "is_first": is_first}


def _lines_of(result: ExecutionResult) -> Iterator[str]:
    """What the kernel answered, also where that is in a file."""
    path = result.full_output_paths.get("stdout")
    if path is None:
        yield from "".join(result.stdout).splitlines()
        return
    with path.open(encoding="utf-8") as file:
        yield from file


def _decoded(lines: Iterator[str], size: int, session_id: str) -> Iterator[bytes]:
    left = size
    for line in lines:
        try:
            piece = base64.b64decode(line.strip(), validate=True)
        except (binascii.Error, ValueError) as error:
            raise _garbled(session_id) from error
        left -= len(piece)
        if left < 0:
            break
        yield piece
    if left:
        raise _garbled(session_id)


def _garbled(session_id: str) -> SessionError:
    return SessionError(
        f"The variables of session {session_id!r} were not saved: something else wrote between"
        " them. Let threads of the session end, and try again."
    )


def _cloudpickle_source() -> str:
    """The source of cloudpickle, which every kernel is sent: none needs to have it."""
    spec = importlib.util.find_spec("cloudpickle")
    [folder] = spec.submodule_search_locations if spec and spec.submodule_search_locations else [""]
    return (Path(folder) / "cloudpickle.py").read_text(encoding="utf-8")
