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
from dataclasses import dataclass, field, replace
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
from taskweaver_ext.ces.kernels.container_events import ContainerChange
from taskweaver_ext.ces.kernels.container_failures import (
    death_of_container,
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
from taskweaver_ext.ces.kernels.container_limits import (
    ContainerProcess,
    FolderWatch,
    LimitCounter,
    size_text,
)
from taskweaver_ext.ces.kernels.host import HostNotice, KernelConnection
from taskweaver_ext.ces.kernels.jupyter_messages import MessageFormat
from taskweaver_ext.ces.kernels.wire import CONTROL_PORT, Waker
from taskweaver_ext.ces.kernels.zygote import RUNTIME_FOLDER
from taskweaver_ext.ces.results import KernelDeath
from taskweaver_ext.errors import KernelStartError

START_SECONDS = 60.0
_DEATH_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_OUT_OF_MEMORY_SECONDS = 3.0
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
        The engine's events come on a thread of the engine, a folder that is
        too large is told on a thread of its watch; `_lock` guards what they
        share with the reader's thread: the control channel, which has no
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
        self._process: ContainerProcess | None = None
        self._line: KernelLine | None = None
        self._connection: ContainerConnection | None = None
        self._folder_watch: FolderWatch | None = None
        self._cleaning: threading.Thread | None = None
        self._end = Waker()
        self._has_ended = threading.Event()
        self._death: KernelDeath | None = None
        self._kill_reason = ""
        self._interrupted_for_folder_at = -_HEED_SECONDS
        self._is_paused = False
        self._lock = threading.Lock()
        self._format = MessageFormat(self._key)
        self._control: zmq.Socket[bytes] | None = None
        self._limit_counter = LimitCounter(settings.container.limits, None)
        self._out_of_memory_at = -_OUT_OF_MEMORY_SECONDS

    @property
    def container_id(self) -> str | None:
        """The container, once it has been made."""
        return self._container

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

    def death(self, wait_seconds: float = _DEATH_SECONDS) -> KernelDeath | None:
        """How the container ended; waits a moment for the engine to say so."""
        deadline = time.monotonic() + wait_seconds
        while self._death is None and self._engine is not None and self._container is not None:
            self._has_ended.wait(max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
            self._death = self._find_death(self._engine, self._container)
            if time.monotonic() >= deadline:
                break
        return self._death

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
        """Kill everything in the container; without the engine where that is allowed."""
        if self._engine is None or self._container is None:
            return
        # A paused process dies only once it goes on; the engine sees to that.
        if not self._is_paused and self._process is not None and self._process.kill():
            return
        with contextlib.suppress(EngineError):  # it has ended, or the engine has
            self._engine.kill(self._container)

    def stop(self) -> None:
        """Remove the container and everything that was made for it."""
        if self._folder_watch is not None:
            self._folder_watch.stop()
        if self._engine is not None and self._container is not None:
            self.kill()
            self._engine.unwatch(self._container)
            try:
                self._engine.remove(self._container)
            except EngineError as error:
                _log.warning(
                    "the container %s is left behind (%s); it is removed when a container is"
                    " started next, or by: taskweaver-ext doctor --clean",
                    self._container,
                    error,
                )
        if self._cleaning is not None:
            self._cleaning.join()
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.close()
        self._end.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> ContainerConnection:
        settings = self._settings.container
        engine = self._engine = shared_engine(settings.engine_url or config.docker_host())
        self._clean_up_after_others(engine)
        transport = settings.transport or ("ipc" if engine.shares_this_machine else "tcp")
        user, owner = self._user(engine)
        line: KernelLine
        if transport == "ipc":
            line = SharedFolderLine(self._folder, owner)
        else:
            line = PublishedPortsLine(self._key)
            engine.ensure_network(CLOSED_NETWORK, CLOSED_NETWORK_OPTIONS)
        self._line = line
        self._write_files(line, owner)
        container, warnings = self._create(engine, transport, user)
        self._container = container
        engine.watch(container, self._container_changed)
        engine.start(container)
        state = engine.inspect(container)
        if engine.shares_this_machine:
            self._process = ContainerProcess.find(state["State"]["Pid"], container)
        self._limit_counter = LimitCounter(settings.limits, self._process)
        connection = self._connect(line, _published_ports(state))
        self._watch_folder()
        for message in (*warnings, *self._shortcomings(engine, transport)):
            _log.warning("%s", message)
            connection.tell(HostNotice("limit", message))
        return connection

    def _connect(self, line: KernelLine, published: Mapping[int, int]) -> ContainerConnection:
        inside = cwd_inside(self._settings.cwd)
        outside = str(self._settings.cwd)
        connection = ContainerConnection(
            line=line,
            context=self._context,
            key=self._key,
            wire=line.open_wire(published, START_SECONDS, self._end),
            death_descriptor=os.dup(self._end.fileno()),
            limits_met=self._limit_counter.newly_met,
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

    def _write_files(self, line: KernelLine, owner: int | None) -> None:
        """Put into the folder what the kernel is started with."""
        settings = self._settings
        shutil.copytree(RUNTIME_FOLDER, self._folder / "runtime")
        connection = {
            **line.connection_file(),
            "signature_scheme": "hmac-sha256",
            "key": self._key,
        }
        kernel_settings = {
            **line.kernel_settings(),
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
            if owner is not None:
                os.chown(path, owner, -1)
        if owner is not None:
            os.chown(self._folder, owner, -1)

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
        if self._process is not None:
            missing = self._process.limits_not_in_force(limits)
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

    def _container_changed(self, change: ContainerChange) -> None:
        """Called on the thread of the engine's events."""
        if change == "died":
            self._has_ended.set()
            self._end.wake()
        elif change == "out_of_memory":
            self._out_of_memory_at = time.monotonic()
            for message in self._limit_counter.newly_met({}):
                self._tell(HostNotice("limit", message))
        elif change in ("paused", "resumed"):
            self._is_paused = change == "paused"
            advice = "; the code goes on when it is unpaused" if self._is_paused else ""
            self._tell(HostNotice("paused" if self._is_paused else "resumed",
                                  f"The container was {change}{advice}."))  # fmt: skip
        elif change == "engine_gone":
            self._has_ended.set()  # as far as the engine could tell
            if self._process is None:
                self._end.wake()  # nobody else could tell whether the kernel lives
        elif change == "engine_back":
            self._has_ended.clear()

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
            self._kill_reason = f"killed, because {message}"
            self.kill()
        self._interrupted_for_folder_at = now
        self.interrupt()

    def _tell(self, notice: HostNotice) -> None:
        if self._connection is not None:
            self._connection.tell(notice)

    def _find_death(self, engine: Engine, container: str) -> KernelDeath | None:
        try:
            state = engine.state(container)
        except NotInEngineError:
            state = {"Status": "removing"}
        except EngineError:
            return KernelDeath(cause="engine_gone", detail="the Docker engine is gone")
        memory = self._settings.container.limits.memory_bytes
        was_out_of_memory = not self._kill_reason and self._was_out_of_memory(state)
        death = death_of_container(state, memory, was_out_of_memory=was_out_of_memory)
        if death is not None and self._kill_reason:
            return replace(death, detail=self._kill_reason)
        return death

    def _was_out_of_memory(self, state: Mapping[str, Any]) -> bool:
        """Whether lack of memory was the cause; the engine's flag stays up after a child's end."""
        if time.monotonic() - self._out_of_memory_at < _OUT_OF_MEMORY_SECONDS:
            return True
        return bool(state.get("OOMKilled")) and self._out_of_memory_at < 0

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
