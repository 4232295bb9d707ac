"""A session's container as a place where programs run."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Protocol

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.kernels.container.description import INSIDE_FOLDER, cwd_inside
from taskweaver_ext.ces.kernels.container.limits import LimitCounter
from taskweaver_ext.ces.kernels.container.program import ContainerProgram
from taskweaver_ext.ces.kernels.container.program_folder import ContainerFolder
from taskweaver_ext.ces.kernels.container.spawner import (
    SpawnerClient,
    SpawnerLine,
    SpawnerLostError,
    SpawnerSilentError,
    Stream,
)
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.ces.programs.site import ProcessSettings, SiteGoneError
from taskweaver_ext.errors import KernelError

_ANSWER_SECONDS = 10.0
_KILL_SECONDS = 7.0
"""Longer than the spawner itself tries to kill a program's processes."""
_END_SECONDS = 1.0
"""How long the end of a container may take to be told after the last word from it."""
_PAUSED_SECONDS = 0.5


class ContainerLife(Protocol):
    """What a container's host knows of it; safe from any thread."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as far as anybody knows."""

    def wait_until_over(self, seconds: float) -> bool:
        """Wait a moment for its end; return whether it has come."""

    def death(self) -> KernelDeath | None:
        """How it ended; waits a moment for the engine to say so."""

    def kill_because(self, reason: str) -> None:
        """Kill it; its end will read like this."""

    def count_limits(self) -> LimitCounter:
        """Counts the limits that are met from now on."""


class ContainerPrograms:
    """A `ProgramSite`: what is started here is in the session's container, with its limits.

    Threads:
        Any thread may call any method; `_lock` guards `_client`, `_running`
        and `_is_closed`.
    """

    def __init__(
        self,
        *,
        line: SpawnerLine,
        folder: Path,
        give_away: Callable[[Path], None],
        cwd: Path,
        memory_bytes: int | None,
        life: ContainerLife,
        session_id: str,
    ) -> None:
        """A site whose spawner is reached when it is first needed.

        Args:
            folder: Ours, which the container sees at `INSIDE_FOLDER`.
            give_away: Lets the container's user have a file there.
            cwd: The session's working directory on this machine.
        """
        self.memory_bytes = memory_bytes
        self._line = line
        self._folder = folder
        self._give_away = give_away
        self._cwd = cwd
        self._life = life
        self._session_id = session_id
        self._names = itertools.count(1)
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._client: SpawnerClient | None = None
        self._running: set[ContainerProgram] = set()
        self._is_closed = False
        self._is_paused = False

    @property
    def address(self) -> str | int:
        """What the spawner must know to be reached."""
        return self._line.address

    def published_at(self, ports: Mapping[int, int]) -> None:
        """Where the container's ports are found on this machine, if it has any."""
        self._line.published_at(ports)

    @property
    def is_running(self) -> bool:
        """Whether anything that was started here has not been collected."""
        with self._lock:
            return bool(self._running)

    def complain_about_folder(self, path: Path) -> str:
        """Look in the container."""
        return str(self._ask("complain_about_folder", path=self._inside(path)))

    def find_program(self, command: str, environment: Mapping[str, str]) -> str | None:
        """Look in the container."""
        found = self._ask("find_program", command=command, environment=dict(environment))
        return found if isinstance(found, str) else None

    def has_file(self, path: str) -> bool:
        """Look in the container."""
        return bool(self._ask("has_file", path=path))

    def make_folder(self) -> ContainerFolder:
        """A folder in the one that is shared with the container, which cannot write there."""
        name = f"program-{next(self._names)}"
        path = self._folder / name
        path.mkdir(mode=0o700)
        self._give_away(path)
        return ContainerFolder(self, path, f"{INSIDE_FOLDER}/{name}", self._line, self._give_away)

    def open_stream(self, *, is_input: bool = False) -> Stream:
        """A stream for something that is about to be started."""
        with self._translating():
            return self._line.open_stream(is_input=is_input)

    def read_end(self, stream: Stream) -> ReadEnd:
        """The end of a stream that is ours; what is copied to us takes its time."""
        if not stream.name:
            return ReadEnd(stream.descriptor)

        def written() -> int | None:
            with contextlib.suppress(SiteGoneError, KernelError, OSError, ValueError):
                total = self._ask("written_bytes", name=stream.name)
                return total if isinstance(total, int) else None
            return None

        return ReadEnd(stream.descriptor, written)

    def make_pipe_inside(self, stream: Stream) -> str:
        """A named pipe in the container whose content comes out of a stream of ours."""
        return str(self._ask("make_pipe", name=stream.name))

    def make_folder_inside(self) -> str:
        """A folder into which programs can write."""
        return str(self._ask("make_folder"))

    def remove_folder_inside(self, path: str) -> None:
        """Remove such a folder."""
        with contextlib.suppress(SiteGoneError, KernelError, OSError, ValueError):
            self._ask("remove_folder", path=path)

    def start(self, settings: ProcessSettings) -> ContainerProgram:
        """Start a process in the container."""
        arguments = asdict(settings)
        del arguments["is_guarded"]
        arguments["cwd"] = self._inside(settings.cwd)
        client = self._connected()
        limits = self._life.count_limits()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            streams = [
                self._open_stream(ours, theirs, is_input=is_input)
                for is_input in _streams_of(settings)
            ]
            with self._translating():
                started, news = client.start(arguments, streams, seconds=self._patience)
            ours.callback(client.abandon, news)
            waiting = iter(streams)
            program = ContainerProgram(
                site=self,
                client=client,
                started=started,
                news=news,
                stdin=next(waiting).descriptor if settings.has_open_stdin else None,
                stdout=self.read_end(next(waiting)),
                stderr=self.read_end(next(waiting)) if settings.has_stderr else None,
                limits=limits,
            )
            ours.pop_all()
        with self._lock:
            self._running.add(program)
        return program

    def _open_stream(
        self, ours: contextlib.ExitStack, theirs: contextlib.ExitStack, *, is_input: bool
    ) -> Stream:
        stream = self.open_stream(is_input=is_input)
        ours.callback(os.close, stream.descriptor)
        if stream.theirs is not None:
            theirs.callback(os.close, stream.theirs)
        return stream

    def tell(self, notice: HostNotice) -> None:
        """Tell everything that runs here what happens to the container."""
        if notice.status in ("paused", "resumed"):
            self._is_paused = notice.status == "paused"
        with self._lock:
            running = list(self._running)
        for program in running:
            program.tell(notice)

    def stop_everything(self) -> None:
        """Kill all programs, but not the shell they run in; returns at once."""
        with self._lock:
            client = self._client
        if client is not None:
            client.tell("stop_everything", {})

    def container_ended(self) -> None:
        """Nobody will answer any more."""
        with self._lock:
            client = self._client
        if client is not None:
            client.give_up()

    def close(self) -> None:
        """Let go of everything; called when the container is gone."""
        with self._lock:
            self._is_closed = True
            client = self._client
        if client is not None:
            client.close()
        self._line.close()

    def forget(self, program: ContainerProgram) -> None:
        """A program has been collected."""
        with self._lock:
            self._running.discard(program)

    def death(self) -> KernelDeath:
        """How the container ended, if anybody knows."""
        self._life.wait_until_over(2 * _END_SECONDS)  # by then we have ended it if nobody else has
        return self._life.death() or KernelDeath(
            cause="container_gone", detail="its container cannot be reached any more"
        )

    def ask_of(self, client: SpawnerClient, what: str, **arguments: object) -> object:
        """Ask something that cannot fail there; None when nobody answers."""
        with contextlib.suppress(OSError, ValueError, SpawnerLostError, SpawnerSilentError):
            return client.ask(what, arguments, seconds=self._patience)
        return None

    def insist_on(self, client: SpawnerClient, what: str, **arguments: object) -> object:
        """As `ask_of`; a container that does not even do this is paused or stuck: it is killed."""
        seconds = _PAUSED_SECONDS if self._is_paused else _KILL_SECONDS
        try:
            return client.ask(what, arguments, seconds=seconds)
        except SpawnerSilentError:
            self._life.kill_because("killed, because it did not answer when asked to stop")
        except (OSError, ValueError, SpawnerLostError):
            pass
        return None

    def _ask(self, what: str, **arguments: object) -> object:
        client = self._connected()
        with self._translating():
            return client.ask(what, arguments, seconds=self._patience)

    @property
    def _patience(self) -> float:
        return _PAUSED_SECONDS if self._is_paused else _ANSWER_SECONDS

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        """Say why nobody answers."""
        try:
            yield
        except SpawnerLostError as error:
            raise SiteGoneError(self.death()) from error
        except SpawnerSilentError as error:
            container = f"The container of session {self._session_id!r}"
            if self._is_paused:
                message = (
                    f"{container} is paused, so nothing can be started in it. Unpause it"
                    " (docker unpause), then try again."
                )
            else:
                message = (
                    f"{container} has not answered in time, so nothing was started in it."
                    " Try again; if that does not help, start the session again."
                )
            raise KernelError(message) from error

    def _connected(self) -> SpawnerClient:
        with self._connecting:
            with self._lock:
                client = self._client
            if client is not None and not client.is_lost:
                return client
            if client is not None or self._life.is_over:
                raise SiteGoneError(self.death())
            with self._translating():
                connection = self._line.connect(lambda: self._life.is_over)
            try:
                client = SpawnerClient(connection, self._spawner_is_lost, self._session_id)
            except BaseException:
                connection.close()
                raise
            with self._lock:
                self._client = client
                if not self._is_closed:
                    return client
            client.close()
            raise SiteGoneError(self.death())

    def _spawner_is_lost(self) -> None:
        """Called on the client's thread; without it nobody could end what it started."""
        with self._lock:
            if self._is_closed:
                return  # it was we who left
        if not self._life.wait_until_over(_END_SECONDS):
            self._life.kill_because("killed, because the process that starts programs in it ended")

    def _inside(self, path: Path) -> str:
        """Where a path of this machine is in the container; others are the container's own."""
        inside = cwd_inside(self._cwd)
        if path.is_relative_to(self._cwd):
            return str(inside / PurePosixPath(path.relative_to(self._cwd)))
        return str(path)


def _streams_of(settings: ProcessSettings) -> list[bool]:
    """Which streams of a process are ours to read or write; True is what it reads."""
    wanted = ((True, settings.has_open_stdin), (False, True), (False, settings.has_stderr))
    return [is_input for is_input, is_wanted in wanted if is_wanted]
