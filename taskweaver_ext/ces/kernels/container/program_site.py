"""A container as a place where programs run."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from taskweaver_ext.ces.execution.results import HostNotice
from taskweaver_ext.ces.kernels.container.description import INSIDE_FOLDER, cwd_inside
from taskweaver_ext.ces.kernels.container.monitor import END_SECONDS, ContainerMonitor
from taskweaver_ext.ces.kernels.container.prepared_container import PreparedContainer
from taskweaver_ext.ces.kernels.container.program import ContainerProgram
from taskweaver_ext.ces.kernels.container.spawner import (
    SpawnerClient,
    SpawnerLostError,
    SpawnerSilentError,
    Stream,
    answer_seconds,
)
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.ces.programs.site import ProcessSettings, SiteGoneError
from taskweaver_ext.errors import KernelError
from taskweaver_ext.machine.tool_versions import ToolVersion


class ContainerProgramSite:
    """A `ProgramSite`: what is started here is in the container, with its limits.

    Threads:
        Any thread may call any method; `_lock` guards `_client`, `_running`
        and `_is_closed`, `_connecting` is held while the spawner is connected.
    """

    def __init__(
        self,
        prepared: PreparedContainer,
        monitor: ContainerMonitor,
        published: Mapping[int, int],
    ) -> None:
        """A site whose spawner is connected when it is first needed.

        Args:
            published: Where the container's ports are found on this machine.
        """
        self.memory_bytes = prepared.request.container.limits.memory_bytes
        self._prepared = prepared
        self._request = prepared.request
        self._channel = prepared.spawner_channel
        self._monitor = monitor
        self._published = published
        self._names = itertools.count(1)
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._client: SpawnerClient | None = None
        self._running: set[ContainerProgram] = set()
        self._is_closed = False

    @property
    def is_paused(self) -> bool:
        """Whether the container is known to be paused."""
        return self._monitor.is_paused

    @property
    def is_running(self) -> bool:
        """Whether anything that was started here has not been collected."""
        with self._lock:
            return bool(self._running)

    def complain_about_folder(self, path: Path) -> str:
        """Look in the container."""
        return str(self.ask("complain_about_folder", path=self._inside(path)))

    def find_program(self, command: str, environment: Mapping[str, str]) -> str | None:
        """Look in the container."""
        found = self.ask("find_program", command=command, environment=dict(environment))
        return found if isinstance(found, str) else None

    def find_versions(
        self, tool: str, environment: Mapping[str, str], cwd: Path
    ) -> list[ToolVersion] | None:
        """None: an image has no version managers."""
        return None

    def has_file(self, path: str) -> bool:
        """Look in the container."""
        return bool(self.ask("has_file", path=path))

    def make_folder(self) -> ContainerProgramFolder:
        """A folder in the one that is shared with the container, which cannot write there."""
        return ContainerProgramFolder(self, self._prepared, f"program-{next(self._names)}")

    def start(self, settings: ProcessSettings) -> ContainerProgram:
        """Start a process in the container."""
        arguments = asdict(settings)
        arguments["cwd"] = self._inside(settings.cwd)
        client = self._connected()
        limits = self._monitor.count_limits()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            streams = [
                self._open_stream_for_start(ours, theirs, is_input=is_input)
                for is_input in _streams_of(settings)
            ]
            with self._translating():
                started, status = client.start(arguments, streams, seconds=self._answer_seconds)
            ours.callback(client.abandon, status)
            waiting = iter(streams)
            program = ContainerProgram(
                client=client,
                monitor=self._monitor,
                started=started,
                status=status,
                stdin=next(waiting).descriptor if settings.has_open_stdin else None,
                stdout=self.read_end(next(waiting)),
                stderr=self.read_end(next(waiting)) if settings.has_stderr else None,
                limits=limits,
                on_collect=self._forget,
            )
            ours.pop_all()
        with self._lock:
            self._running.add(program)
        return program

    def open_stream(self, *, is_input: bool = False) -> Stream:
        """A stream for something that is about to be started."""
        with self._translating():
            return self._channel.open_stream(self._published, is_input=is_input)

    def read_end(self, stream: Stream) -> ReadEnd:
        """The end of a stream that is ours; what is copied to us takes its time."""
        if not stream.name:
            return ReadEnd(stream.descriptor)

        def written() -> int | None:
            with contextlib.suppress(SiteGoneError, KernelError, OSError, ValueError):
                total = self.ask("written_bytes", name=stream.name)
                return total if isinstance(total, int) else None
            return None

        return ReadEnd(stream.descriptor, written)

    def ask(self, what: str, **arguments: object) -> object:
        """Ask the spawner; raises as a `ProgramSite` does, and OSError or ValueError."""
        client = self._connected()
        with self._translating():
            return client.ask(what, arguments, seconds=self._answer_seconds)

    def notify(self, notice: HostNotice) -> None:
        """Tell everything that runs here what happens to the container."""
        with self._lock:
            running = list(self._running)
        for program in running:
            program.notify(notice)

    def stop_everything(self) -> None:
        """Kill all programs, but not the shell they run in; returns at once."""
        with self._lock:
            client = self._client
        if client is not None:
            client.send("stop_everything", {})

    def disconnect(self) -> None:
        """The container has ended: let all callers who wait for an answer know."""
        with self._lock:
            client = self._client
        if client is not None:
            client.disconnect()

    def close(self) -> None:
        """Let go of everything; called when the container is gone."""
        with self._lock:
            self._is_closed = True
            client = self._client
        if client is not None:
            client.close()

    def _open_stream_for_start(
        self, ours: contextlib.ExitStack, theirs: contextlib.ExitStack, *, is_input: bool
    ) -> Stream:
        stream = self.open_stream(is_input=is_input)
        ours.callback(os.close, stream.descriptor)
        if stream.theirs is not None:
            theirs.callback(os.close, stream.theirs)
        return stream

    def _forget(self, program: ContainerProgram) -> None:
        with self._lock:
            self._running.discard(program)

    @property
    def _answer_seconds(self) -> float:
        return answer_seconds(is_paused=self._monitor.is_paused)

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        """Say why there is no answer."""
        try:
            yield
        except SpawnerLostError as error:
            raise self._gone() from error
        except SpawnerSilentError as error:
            container = f"The container of session {self._request.session_id!r}"
            if self._monitor.is_paused:
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

    def _gone(self) -> SiteGoneError:
        return SiteGoneError(self._monitor.death_of_lost())

    def _connected(self) -> SpawnerClient:
        with self._connecting:
            with self._lock:
                client = self._client
            if client is not None and not client.is_lost:
                return client
            if client is not None or self._monitor.is_over:
                raise self._gone()
            with self._translating():
                connection = self._channel.connect(self._published, lambda: self._monitor.is_over)
            try:
                client = SpawnerClient(connection, self._handle_loss, self._request.session_id)
            except BaseException:
                connection.close()
                raise
            with self._lock:
                self._client = client
                if not self._is_closed:
                    return client
            client.close()
            raise self._gone()

    def _handle_loss(self, nonsense: str) -> None:
        """On the client's thread: without the spawner nothing could end what it started."""
        with self._lock:
            if self._is_closed:
                return  # we have closed the connection
        if nonsense or not self._monitor.wait_until_over(END_SECONDS):
            spawner = "the process that starts programs in it"
            self._monitor.kill_because(
                f"killed, because nonsense came from {spawner}: {nonsense}"
                if nonsense
                else f"killed, because {spawner} ended"
            )

    def _inside(self, path: Path) -> str:
        """Where a path of this machine is in the container; others are the container's own."""
        cwd = self._request.cwd
        if path.is_relative_to(cwd):
            return str(cwd_inside(cwd) / PurePosixPath(path.relative_to(cwd)))
        return str(path)


class ContainerProgramFolder:
    """A `ProgramFolder` that the container can read and we can write."""

    def __init__(self, site: ContainerProgramSite, prepared: PreparedContainer, name: str) -> None:
        """Make it; raises OSError."""
        self._site = site
        self._prepared = prepared
        self._path = prepared.folder / name
        self._inside = f"{INSIDE_FOLDER}/{name}"
        self._made_inside: list[str] = []
        self._path.mkdir(mode=0o700)
        prepared.chown(self._path)

    def write(self, name: str, content: bytes) -> str:
        """Write a file."""
        path = self._path / name
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        self._prepared.chown(path)
        return f"{self._inside}/{name}"

    def make_pipe(self, name: str) -> tuple[str, ReadEnd]:
        """Make a named pipe: here, where both sides can open it, else in the container."""
        if self._prepared.transport == "tcp":
            return self._make_pipe_inside()
        path = self._path / name
        os.mkfifo(path, 0o600)
        self._prepared.chown(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return f"{self._inside}/{name}", ReadEnd(descriptor)

    def _make_pipe_inside(self) -> tuple[str, ReadEnd]:
        stream = self._site.open_stream()
        try:
            path = str(self._site.ask("make_pipe", name=stream.name))
        except BaseException:
            os.close(stream.descriptor)
            raise
        return path, self._site.read_end(stream)

    def remove(self, name: str) -> None:
        """Take a name away."""
        (self._path / name).unlink(missing_ok=True)

    def path_for_builds(self) -> str:
        """A folder in the container's memory."""
        path = str(self._site.ask("make_folder"))
        self._made_inside.append(path)
        return path

    def close(self) -> None:
        """Remove it."""
        for path in self._made_inside:
            with contextlib.suppress(SiteGoneError, KernelError, OSError, ValueError):
                self._site.ask("remove_folder", path=path)
        shutil.rmtree(self._path, ignore_errors=True)


def _streams_of(settings: ProcessSettings) -> list[bool]:
    """Which streams of a process are ours to read or write; True is what it reads."""
    wanted = ((True, settings.has_open_stdin), (False, True), (False, settings.has_stderr))
    return [is_input for is_input, is_wanted in wanted if is_wanted]
