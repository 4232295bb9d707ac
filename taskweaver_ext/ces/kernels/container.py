"""A kernel in a Docker container.

The container is given a folder of ours to read: the runtime's source, the
connection's key, and the sockets on which we listen. Where engine and client
share no machine, the kernel listens on TCP ports published on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from taskweaver_ext import config
from taskweaver_ext.ces.kernels.container_connection import (
    ContainerConnection,
    KernelLine,
    PublishedPortsLine,
    SharedFolderLine,
)
from taskweaver_ext.ces.kernels.container_description import (
    CLOSED_NETWORK,
    CLOSED_NETWORK_OPTIONS,
    INSIDE_FOLDER,
    ContainerSettings,
    Placement,
    Transport,
    cwd_inside,
    describe,
    is_read_at_start,
)
from taskweaver_ext.ces.kernels.container_engine import (
    LABEL,
    Engine,
    EngineError,
    EngineGoneError,
    NotInEngineError,
    shared_engine,
)
from taskweaver_ext.ces.kernels.container_failures import (
    missing_engine,
    missing_image,
    start_failure,
)
from taskweaver_ext.ces.kernels.container_leftovers import (
    FOLDER_LABEL,
    FOLDER_PREFIX,
    OWNER_LABEL,
    SESSION_LABEL,
    Owner,
    remove_leftovers,
)
from taskweaver_ext.ces.kernels.container_life import DEATH_SECONDS, ContainerLife
from taskweaver_ext.ces.kernels.container_limits import FolderWatch, size_text
from taskweaver_ext.ces.kernels.container_programs import ContainerPrograms
from taskweaver_ext.ces.kernels.container_spawner import (
    PublishedPortSpawnerLine,
    SharedFolderSpawnerLine,
    SpawnerLine,
)
from taskweaver_ext.ces.kernels.host import HostNotice, KernelConnection
from taskweaver_ext.ces.kernels.jupyter_messages import MessageFormat
from taskweaver_ext.ces.kernels.wire import CONTROL_PORT
from taskweaver_ext.ces.kernels.zygote import RUNTIME_FOLDER
from taskweaver_ext.ces.results import KernelDeath
from taskweaver_ext.errors import KernelStartError

START_SECONDS = 60.0
_LOG_LINES = 30
_HEED_SECONDS = 3.0
"""Code that goes on filling its folder for so long after an interrupt is killed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerKernelSettings:
    """What one kernel in a container is started with."""

    container: ContainerSettings
    cwd: Path
    env_id: str
    session_id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the code; nothing else of our environment is seen inside."""


class ContainerKernelHost:
    """A `KernelHost` for Docker containers.

    Threads:
        What happens to the container is told on a thread of the engine, a
        folder that is too large on a thread of its watch; `_lock` guards what
        they share with the reader's thread: the control channel, which has no
        thread of its own.
    """

    def __init__(
        self, settings: ContainerKernelSettings, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        self._settings = settings
        self._context = context
        self._key = uuid.uuid4().hex
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir="/tmp"))
        self._engine: Engine | None = None
        self._container: str | None = None
        self._line: KernelLine | None = None
        self._connection: ContainerConnection | None = None
        self._programs: ContainerPrograms | None = None
        self._folder_watch: FolderWatch | None = None
        self._cleaning: threading.Thread | None = None
        self._life = ContainerLife(
            settings.container.limits, on_notice=self._tell, on_end=self._container_ended
        )
        self._interrupted_for_folder_at = -_HEED_SECONDS
        self._lock = threading.Lock()
        self._format = MessageFormat(self._key)
        self._control: zmq.Socket[bytes] | None = None
        self._owner: int | None = None

    @property
    def container_id(self) -> str | None:
        """The container, once it has been made."""
        return self._container

    @property
    def programs(self) -> ContainerPrograms | None:
        """Where shells and programs of the session run, once the container does."""
        return self._programs

    @property
    def is_over(self) -> bool:
        """Whether the container has ended, as far as anybody knows."""
        return self._life.is_over

    def start(self) -> KernelConnection:
        """Make and start the container and wait for the kernel's hello."""
        try:
            return self._start()
        except EngineGoneError as error:
            raise missing_engine(str(error)) from error
        except TimeoutError as error:
            raise self._start_error(
                f"the kernel was not ready after {START_SECONDS:g} s"
            ) from error
        except ConnectionError as error:
            death = self.death()
            how = death.detail if death else "the connection broke"
            raise self._start_error(f"the kernel ended at once ({how})") from error
        except (EngineError, OSError) as error:
            raise self._start_error(str(error)) from error

    def death(self, wait_seconds: float = DEATH_SECONDS) -> KernelDeath | None:
        """How the container ended; waits a moment for the engine to say so."""
        return self._life.death(wait_seconds)

    def interrupt(self) -> None:
        """Ask the kernel to interrupt itself and its children."""
        with self._lock:
            if self._control is None or self._connection is None:
                return
            with contextlib.suppress(zmq.Again):
                while True:  # earlier replies, which nobody reads
                    self._control.recv_multipart(zmq.NOBLOCK)
            with contextlib.suppress(zmq.Again):
                # Named, so that a request that is late does not hit the next execution.
                meant = {"taskweaver": {"ordinal": self._connection.latest_ordinal}}
                message = self._format.pack("interrupt_request", {}, metadata=meant)
                self._control.send_multipart(message, zmq.NOBLOCK)

    def kill(self) -> None:
        """Kill everything in the container."""
        self._life.kill()

    def stop(self) -> None:
        """Remove the container and everything that was made for it."""
        if self._folder_watch is not None:
            self._folder_watch.stop()
        self._life.kill()
        self._life.close()
        if self._programs is not None:
            self._programs.close()
        self._remove_container()
        if self._cleaning is not None:
            self._cleaning.join()
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
        if self._line is not None:
            self._line.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_container(self) -> None:
        if self._engine is None or self._container is None:
            return
        try:
            self._engine.remove(self._container)
        except EngineError as error:
            _log.warning(
                "the container %s is left behind (%s); it is removed when a container is"
                " started next, or by: taskweaver-ext doctor --clean",
                self._container,
                error,
            )

    def _start(self) -> ContainerConnection:
        settings = self._settings.container
        engine = self._engine = shared_engine(settings.engine_url or config.docker_host())
        self._clean_up_after_others(engine)
        transport = settings.transport or ("ipc" if engine.shares_this_machine else "tcp")
        user, self._owner = self._user(engine)
        line = self._open_lines(engine, transport)
        self._write_files(line)
        container, warnings = self._create(engine, transport, user)
        self._container = container
        self._life.begin(engine, container)
        engine.start(container)
        state = engine.inspect(container)
        self._life.has_started(state)
        connection = self._connect(line, _published_ports(state))
        self._watch_folder()
        for message in (*warnings, *self._shortcomings(engine, transport)):
            _log.warning("%s", message)
            connection.tell(HostNotice("limit", message))
        return connection

    def _open_lines(self, engine: Engine, transport: Transport) -> KernelLine:
        """Prepare how the kernel, and what starts programs beside it, will be reached."""
        line: KernelLine
        programs: SpawnerLine
        if transport == "ipc":
            line = SharedFolderLine(self._folder, self._give_away)
            programs = SharedFolderSpawnerLine(self._folder, self._give_away)
        else:
            line = PublishedPortsLine(self._key)
            programs = PublishedPortSpawnerLine(self._key)
            engine.ensure_network(CLOSED_NETWORK, CLOSED_NETWORK_OPTIONS)
        self._line = line
        self._programs = ContainerPrograms(
            line=programs,
            folder=self._folder,
            give_away=self._give_away,
            cwd=self._settings.cwd,
            memory_bytes=self._settings.container.limits.memory_bytes,
            life=self._life,
            session_id=self._settings.session_id,
        )
        return line

    def _connect(self, line: KernelLine, published: Mapping[int, int]) -> ContainerConnection:
        assert self._programs is not None
        self._programs.published_at(published)
        inside = cwd_inside(self._settings.cwd)
        outside = str(self._settings.cwd)
        connection = ContainerConnection(
            line=line,
            context=self._context,
            key=self._key,
            wire=line.open_wire(published, START_SECONDS, self._life.end),
            death_descriptor=os.dup(self._life.end.fileno()),
            limits_met=self._life.limits_met,
            paths=None if str(inside) == outside else (str(inside), outside),
        )
        control = self._context.socket(zmq.DEALER)
        control.linger = 0
        line.attach(control, CONTROL_PORT)
        with self._lock:
            self._control = control
        try:
            connection.wait_until_ready(START_SECONDS)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _create(self, engine: Engine, transport: Transport, user: str) -> tuple[str, list[str]]:
        settings = self._settings
        placement = Placement(
            folder=self._folder,
            cwd=settings.cwd,
            transport=transport,
            user=user,
            userns_mode="host" if engine.traits.remaps_users else "",
            processors=engine.traits.processors,
            labels={
                LABEL: "",
                OWNER_LABEL: str(Owner.this_process()),
                SESSION_LABEL: settings.session_id,
                FOLDER_LABEL: str(self._folder),
            },
            environment=settings.environment,
        )
        name = f"taskweaver-{settings.session_id}-{uuid.uuid4().hex[:8]}"
        try:
            return engine.create(name, describe(settings.container, placement))
        except NotInEngineError as error:
            raise missing_image(settings.container.image) from error

    def _user(self, engine: Engine) -> tuple[str, int | None]:
        """Whom the code runs as, and to whom our files must be given if that is not us."""
        if engine.traits.is_rootless:
            return "0:0", None  # root of such an engine is whoever started it
        if self._settings.container.user is None:
            return f"{os.getuid()}:{os.getgid()}", None
        user = self._settings.container.user
        number = user.partition(":")[0]
        is_other = number.isdigit() and int(number) != os.getuid()
        return user, int(number) if is_other else None

    def _give_away(self, path: Path) -> None:
        """Let the container's user have a file of ours, if that is somebody else than we."""
        if self._owner is not None:
            os.chown(path, self._owner, -1)

    def _write_files(self, line: KernelLine) -> None:
        """Put into the folder what the kernel is started with."""
        settings = self._settings
        shutil.copytree(RUNTIME_FOLDER, self._folder / "runtime")
        connection = {
            **line.connection_file(),
            "signature_scheme": "hmac-sha256",
            "key": self._key,
        }
        assert self._programs is not None
        kernel_settings = {
            **line.kernel_settings(),
            "programs": self._programs.address,
            "connection_file": f"{INSIDE_FOLDER}/connection.json",
            "key": self._key,
            "env_id": settings.env_id,
            "session_id": settings.session_id,
            "environment": {
                name: value
                for name, value in settings.environment.items()
                if not is_read_at_start(name)
            },
        }
        for name, content in (("connection", connection), ("settings", kernel_settings)):
            path = self._folder / f"{name}.json"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(content, file)
            self._give_away(path)
        self._give_away(self._folder)

    def _clean_up_after_others(self, engine: Engine) -> None:
        """Remove what crashed processes left, once for each engine, while the kernel starts."""
        if engine.is_used_first() or engine.unremoved:
            self._cleaning = threading.Thread(
                target=_remove_leftovers, args=(engine,), name="taskweaver-leftovers", daemon=True
            )
            self._cleaning.start()

    def _watch_folder(self) -> None:
        limit = self._settings.container.limits.folder_bytes
        if limit is not None:
            self._folder_watch = FolderWatch(
                self._settings.cwd, limit, self._folder_is_too_large, self._settings.session_id
            )
            self._folder_watch.start()

    def _shortcomings(self, engine: Engine, transport: Transport) -> Iterator[str]:
        """What the container does not keep of what its settings promise."""
        limits = self._settings.container.limits
        wanted = {"memory": limits.memory_bytes, "processes": limits.processes, "CPU": limits.cpus}
        if (process := self._life.process) is not None:
            missing = process.limits_not_in_force(limits)
        elif engine.shares_this_machine:
            # Its process is in no control group of its own, as with some rootless engines.
            missing = [name for name, limit in wanted.items() if limit is not None]
        else:
            missing = [n for n in engine.traits.unsupported_limits if wanted[n] is not None]
        if missing:
            yield f"The engine does not enforce these limits on this machine: {', '.join(missing)}."
        if transport == "tcp" and not self._settings.container.has_network:
            yield (
                "The kernel is reached by published ports, so its container has a network: other"
                " machines and containers are blocked, but services of the host that listen on"
                " all addresses can be reached from it."
            )

    def _container_ended(self) -> None:
        """Called on the thread of the engine's events."""
        if self._programs is not None:
            self._programs.container_ended()

    def _folder_is_too_large(self, added_bytes: int) -> None:
        """Called on the thread of the folder's watch: interrupt, and kill what does not heed it."""
        limit = self._settings.container.limits.folder_bytes
        assert limit is not None
        message = (
            f"the working directory may grow by {size_text(limit)} in this container and has"
            f" grown by {size_text(added_bytes)}"
        )
        self._tell(HostNotice("limit", f"The code was stopped: {message}."))
        now = time.monotonic()
        if now - self._interrupted_for_folder_at < _HEED_SECONDS:
            self._life.kill_because(f"killed, because {message}")
        self._interrupted_for_folder_at = now
        self.interrupt()
        if self._programs is not None:
            self._programs.stop_everything()

    def _tell(self, notice: HostNotice) -> None:
        """Tell what runs; the kernel's next code, when nothing does."""
        programs, connection = self._programs, self._connection
        has_programs = programs is not None and programs.is_running
        if programs is not None:
            programs.tell(notice)
        if connection is not None and (connection.is_running or not has_programs):
            connection.tell(notice)

    def _start_error(self, reason: str) -> KernelStartError:
        log = ""
        if self._engine is not None and self._container is not None:
            with contextlib.suppress(EngineError):
                log = self._engine.log_tail(self._container, _LOG_LINES).strip()
        return start_failure(self._settings.container, self._settings.session_id, reason, log)


def _remove_leftovers(engine: Engine) -> None:
    try:
        for name in remove_leftovers(engine):
            _log.info("removed the container %s, whose owner is gone", name)
    except EngineError as error:
        _log.warning("containers of crashed processes could not be looked for: %s", error)


def _published_ports(state: Mapping[str, Any]) -> dict[int, int]:
    ports = state["NetworkSettings"]["Ports"] or {}
    return {
        int(port.partition("/")[0]): int(bindings[0]["HostPort"])
        for port, bindings in ports.items()
        if bindings
    }
