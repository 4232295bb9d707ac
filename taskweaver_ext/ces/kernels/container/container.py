"""One container of ours, from its making to its removal, whatever runs in it.

It is given a folder of ours to read: the runtime's source, what it is started
with, and the sockets on which we listen. Programs can be run in it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.execution.results import HostNotice
from taskweaver_ext.ces.kernels.client.host import RUNTIME_FOLDER
from taskweaver_ext.ces.kernels.container.closed_network import (
    ClosedNetwork,
    ensure_closed_network,
)
from taskweaver_ext.ces.kernels.container.description import (
    PROGRAMS_PORT,
    ContainerSettings,
    Placement,
    Transport,
    describe,
    is_read_at_start,
)
from taskweaver_ext.ces.kernels.container.engine import (
    LABEL,
    Engine,
    EngineError,
    EngineFailedError,
    NotInEngineError,
    shared_engine,
)
from taskweaver_ext.ces.kernels.container.failures import missing_image
from taskweaver_ext.ces.kernels.container.folder_watch import FolderWatch
from taskweaver_ext.ces.kernels.container.forbidden_mounts import refuse_ways_out, ways_out
from taskweaver_ext.ces.kernels.container.leftovers import (
    FOLDER_LABEL,
    OWNER_LABEL,
    SESSION_LABEL,
    remove_leftovers,
)
from taskweaver_ext.ces.kernels.container.limits import size_text
from taskweaver_ext.ces.kernels.container.monitor import ContainerLife
from taskweaver_ext.ces.kernels.container.programs import ContainerPrograms
from taskweaver_ext.ces.kernels.container.spawner import (
    PublishedPortSpawnerLine,
    SharedFolderSpawnerLine,
    SpawnerLine,
)
from taskweaver_ext.config import variables
from taskweaver_ext.machine.owned_folders import Owner, make_owned_folder

_LOG_LINES = 30
_HEED_SECONDS = 1.5
"""What goes on filling its folder for so long after it was stopped is killed."""
_FORGIVEN_SECONDS = 5.0
"""What begins to do so again after this time is another's doing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSettings:
    """What one container is for."""

    container: ContainerSettings
    cwd: Path
    session_id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the code; nothing else of our environment is seen inside."""


class ContainerBox:
    """A container; `open`, `start` and `stop` are called once each, in this order.

    Threads:
        `on_notice` is called on a thread of the engine, or on one that watches
        the working directory; `interrupt` on the latter.
    """

    def __init__(
        self,
        settings: BoxSettings,
        *,
        on_notice: Callable[[HostNotice], None],
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a folder for it, and nothing else yet.

        Args:
            on_notice: Told what happens to it while it runs.
            interrupt: Stops code in it that is not a program of `programs`.
        """
        self.settings = settings
        self.key = uuid.uuid4().hex
        """Known to us and to what we start in it."""
        self.life = ContainerLife(
            settings.container.limits, on_notice=on_notice, on_end=self._has_ended
        )
        try:
            self.folder = make_owned_folder(parent=Path("/tmp"))
        except OSError:
            self.life.close()
            raise
        self._programs: ContainerPrograms | None = None
        self._container: str | None = None
        self.shortcomings: list[str] = []
        """What the container does not keep of what its settings promise."""
        self._on_notice = on_notice
        self._interrupt = interrupt
        self._engine: Engine | None = None
        self._owner: int | None = None
        self._network: ClosedNetwork | None = None
        self._folder_watch: FolderWatch | None = None
        self._cleaning: threading.Thread | None = None
        self._stopped_for_folder_at = -_FORGIVEN_SECONDS

    @property
    def programs(self) -> ContainerPrograms:
        """Where programs can be run; there from `open` on."""
        assert self._programs is not None
        return self._programs

    def open(self) -> Transport:
        """Find the engine, and prepare how programs will be reached; return how that is."""
        settings = self.settings.container
        engine = self._engine = shared_engine(settings.engine_url or variables.docker_host())
        mounted = [self.settings.cwd, *map(Path, settings.read_only_mounts)]
        refuse_ways_out(mounted, ways_out(engine.url))
        self._clean_up_after_others(engine)
        self._transport: Transport = settings.transport or (
            "ipc" if engine.shares_this_machine else "tcp"
        )
        self._user, self._owner = self._find_user(engine)
        line: SpawnerLine
        if self._transport == "ipc":
            line = SharedFolderSpawnerLine(self.folder, self.give_away)
        else:
            line = PublishedPortSpawnerLine(self.key)
            if not settings.has_network:
                self._network = ensure_closed_network(engine)
        self._programs = ContainerPrograms(
            line=line,
            folder=self.folder,
            give_away=self.give_away,
            cwd=self.settings.cwd,
            memory_bytes=settings.limits.memory_bytes,
            life=self.life,
            session_id=self.settings.session_id,
        )
        return self._transport

    def start(self, files: Mapping[str, Mapping[str, Any]]) -> dict[int, int]:
        """Make and start the container; return where its ports are published.

        Args:
            files: What it finds in the folder, by name; `settings` is what the runtime reads.
        """
        engine = self._engine
        assert engine is not None
        self._write_files(files)
        container, warnings = self._create_and_start(engine)
        self.life.begin(engine, container)
        state = engine.inspect(container)
        self.life.has_started(state)
        published = _published_ports(state)
        if self._transport == "tcp" and PROGRAMS_PORT not in published:
            raise ConnectionError("the engine has published no ports of the container")
        self.programs.published_at(published)
        self._watch_folder()
        self.shortcomings = [*warnings, *self._find_shortcomings(engine)]
        for message in self.shortcomings:
            _log.warning("%s", message)
        return published

    def stop(self) -> None:
        """Remove the container and everything that was made for it."""
        if self._folder_watch is not None:
            self._folder_watch.stop()
        self.life.kill()
        if self._programs is not None:
            self._programs.close()
        self.life.close()
        self._remove_container()
        if self._cleaning is not None:
            self._cleaning.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def give_away(self, path: Path) -> None:
        """Let the container's user have a file of ours, if that is somebody else than we."""
        if self._owner is not None:
            os.chown(path, self._owner, -1)

    def log_tail(self) -> str:
        """The last words of the container's first process."""
        if self._engine is None or self._container is None:
            return ""
        try:
            return self._engine.log_tail(self._container, _LOG_LINES).strip()
        except EngineError:
            return ""

    def _create_and_start(self, engine: Engine) -> tuple[str, list[str]]:
        """Make the container and start it; what fails for a reason of the engine's is tried twice.

        A port may be taken in the moment between its choice and its use, and an engine under
        load gives up on what it could do a moment later.
        """
        try:
            return self._try_to_start(engine)
        except EngineFailedError as error:
            _log.info("the engine failed to start a container, and is asked again: %s", error)
        self._remove_container()
        self._container = None
        try:
            return self._try_to_start(engine)
        except EngineFailedError as error:
            raise EngineError(f"the engine failed at it twice: {error}") from error

    def _try_to_start(self, engine: Engine) -> tuple[str, list[str]]:
        container, warnings = self._create(engine)
        self._container = container
        engine.start(container)
        return container, warnings

    def _create(self, engine: Engine) -> tuple[str, list[str]]:
        """Make it; raises KernelStartError when there is no image for it."""
        try:
            return self._create_of_image(engine)
        except NotInEngineError as error:
            raise missing_image(self.settings.container.image) from error

    def _create_of_image(self, engine: Engine) -> tuple[str, list[str]]:
        settings = self.settings
        placement = Placement(
            folder=self.folder,
            cwd=settings.cwd,
            transport=self._transport,
            user=self._user,
            network="" if self._network is None else self._network.id,
            volumes=engine.image_volumes(settings.container.image),
            userns_mode="host" if engine.traits.remaps_users else "",
            processors=engine.traits.processors,
            labels={
                LABEL: "",
                OWNER_LABEL: str(Owner.this_process()),
                SESSION_LABEL: settings.session_id,
                FOLDER_LABEL: str(self.folder),
            },
            environment=settings.environment,
        )
        name = f"taskweaver-{settings.session_id}-{uuid.uuid4().hex[:8]}"
        return engine.create(name, describe(settings.container, placement))

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

    def _find_user(self, engine: Engine) -> tuple[str, int | None]:
        """Whom the code runs as, and to whom our files must be given if that is not us."""
        if engine.traits.is_rootless:
            return "0:0", None  # root of such an engine is whoever started it
        user = self.settings.container.user
        if user is None:
            return f"{os.getuid()}:{os.getgid()}", None
        number = user.partition(":")[0]
        is_other = number.isdigit() and int(number) != os.getuid()
        return user, int(number) if is_other else None

    def _write_files(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Put into the folder what the container is started with."""
        shutil.copytree(RUNTIME_FOLDER, self.folder / "runtime")
        common = {
            "key": self.key,
            "programs": self.programs.address,
            "umask": _umask(),
            "environment": {
                name: value
                for name, value in self.settings.environment.items()
                if not is_read_at_start(name)
            },
        }
        for name, content in files.items():
            path = self.folder / f"{name}.json"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump({**(common if name == "settings" else {}), **content}, file)
            self.give_away(path)
        self.give_away(self.folder)

    def _clean_up_after_others(self, engine: Engine) -> None:
        """Remove what crashed processes left, once for each engine, while the container starts."""
        if engine.is_used_first() or engine.unremoved:
            self._cleaning = threading.Thread(
                target=_remove_leftovers, args=(engine,), name="taskweaver-leftovers", daemon=True
            )
            self._cleaning.start()

    def _watch_folder(self) -> None:
        limit, process = self.settings.container.limits.folder_bytes, self.life.process
        if limit is not None:
            self._folder_watch = FolderWatch(
                self.settings.cwd,
                limit,
                self._folder_is_too_large,
                self.settings.session_id,
                unnamed_bytes=process.unnamed_bytes if process is not None else lambda _device: 0,
            )
            self._folder_watch.start()

    def _find_shortcomings(self, engine: Engine) -> Iterator[str]:
        settings = self.settings.container
        limits = settings.limits
        wanted = {"memory": limits.memory_bytes, "processes": limits.processes, "CPU": limits.cpus}
        if (process := self.life.process) is not None:
            missing = process.limits_not_in_force(limits)
        elif engine.shares_this_machine:
            # Its process is in no control group of its own, as with some rootless engines.
            missing = [name for name, limit in wanted.items() if limit is not None]
        else:
            missing = [n for n in engine.traits.unsupported_limits if wanted[n] is not None]
        if missing:
            yield f"The engine does not enforce these limits on this machine: {', '.join(missing)}."
        if self._network is not None:
            others = "containers" if self._network.leads_out else "machines and containers"
            yield (
                f"The container is reached by published ports, so it has a network: other {others}"
                " are blocked, but services of the host that listen on all addresses can be"
                " reached from it."
            )
        if self._network is not None and self._network.leads_out:
            yield "The engine cannot close the container's way to other machines."

    def _has_ended(self) -> None:
        """Called on the thread of the engine's events."""
        self.programs.container_ended()

    def _folder_is_too_large(self, added_bytes: int) -> None:
        """Called on the thread of the folder's watch: interrupt, and kill what does not heed it."""
        limit = self.settings.container.limits.folder_bytes
        assert limit is not None
        message = (
            f"the working directory may grow by {size_text(limit)} in this container and has"
            f" grown by {size_text(added_bytes)}"
        )
        seconds = time.monotonic() - self._stopped_for_folder_at
        if seconds < _HEED_SECONDS:
            return  # it may not have heard of it yet
        if seconds < _FORGIVEN_SECONDS:
            self.life.kill_because(f"killed, because {message}")
            return
        self._stopped_for_folder_at = time.monotonic()
        self._on_notice(HostNotice("limit", f"The code was stopped: {message}."))
        self._interrupt()
        self.programs.stop_everything()


def _remove_leftovers(engine: Engine) -> None:
    try:
        for name in remove_leftovers(engine):
            _log.info("removed the container %s, whose owner is gone", name)
    except EngineError as error:
        _log.warning("containers of crashed processes could not be looked for: %s", error)


def _umask() -> int | None:
    """Which permissions files of this process get not; None where only changing it would tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "Umask":
                return int(value, 8)
    return None


def _published_ports(state: Mapping[str, Any]) -> dict[int, int]:
    ports = state["NetworkSettings"]["Ports"] or {}
    return {
        int(port.partition("/")[0]): int(bindings[0]["HostPort"])
        for port, bindings in ports.items()
        if bindings
    }
