"""What has to be there before a container is created: a folder, a user, a network, a channel.

Its folder is one of ours that the container can read: the runtime's source, what it is
started with, and the sockets on which we listen.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.kernels.client.host import RUNTIME_FOLDER
from taskweaver_ext.ces.kernels.container.closed_network import (
    ClosedNetwork,
    ensure_closed_network,
)
from taskweaver_ext.ces.kernels.container.code_user import find_code_user
from taskweaver_ext.ces.kernels.container.description import (
    ContainerSettings,
    Placement,
    Transport,
    describe,
    is_read_at_start,
)
from taskweaver_ext.ces.kernels.container.engine import LABEL, shared_engine
from taskweaver_ext.ces.kernels.container.leftovers import (
    FOLDER_LABEL,
    OWNER_LABEL,
    SESSION_LABEL,
    start_removing_leftovers,
)
from taskweaver_ext.ces.kernels.container.spawner import (
    PublishedPortSpawnerChannel,
    SharedFolderSpawnerChannel,
    SpawnerChannel,
)
from taskweaver_ext.config.loading import load_execution_service
from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.owned_folders import PREFIX, Owner, make_owned_folder, owned_parents

_OF_THIS_KERNEL = ("", "runc", "crun", "io.containerd.runc.v2")
"""Runtimes whose containers are processes of the machine's own kernel."""
_ENGINES = ("/run/docker.sock", "/run/containerd", "/run/podman")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """What one container is for."""

    container: ContainerSettings
    cwd: Path
    session_id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the code; nothing else of our environment is seen inside."""


class PreparedContainer:
    """What one container needs of its engine and of this machine; closed after its removal."""

    def __init__(self, request: ContainerRequest) -> None:
        """Find the engine, make the folder, and listen for the spawner.

        Raises:
            EngineError: The engine does not answer, or has no network for it.
            KernelStartError: It may not be given a folder that it is to have.
            OSError: There is no room for it here.
        """
        settings = request.container
        self.request = request
        self.key = uuid.uuid4().hex
        """Known to us and to what we start in it."""
        self.engine = shared_engine(settings.engine_url or load_execution_service().engine_url)
        mounted = [request.cwd, *map(Path, settings.read_only_mounts)]
        refuse_forbidden_mounts(mounted, forbidden_mounts(self.engine.url))
        self.transport: Transport = settings.transport or (
            "ipc" if self._shares_sockets(settings.runtime) else "tcp"
        )
        self._user = find_code_user(
            settings.user, request.cwd, is_rootless=self.engine.traits.is_rootless
        )
        self.network: ClosedNetwork | None = None
        if self.transport == "tcp" and not settings.has_network:
            self.network = ensure_closed_network(self.engine)
        self.folder = make_owned_folder(parent=Path("/tmp"))
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.spawner_channel = self._open_spawner_channel()
            undo.callback(self.spawner_channel.close)
            self._cleaning = start_removing_leftovers(self.engine)
            undo.pop_all()

    def chown(self, path: Path) -> None:
        """Let the container's user own a file of ours, if that is another user than we are."""
        if self._user.owner is not None:
            os.chown(path, self._user.owner, -1)

    def write_files(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Put into the folder what the container is started with.

        Args:
            files: What it finds there, by name; `settings` is what the runtime reads.
        """
        environment = self.request.environment
        shutil.copytree(RUNTIME_FOLDER, self.folder / "runtime")
        common = {
            "key": self.key,
            "programs": self.spawner_channel.address,
            "umask": _umask(),
            "environment": {n: v for n, v in environment.items() if not is_read_at_start(n)},
        }
        for name, content in files.items():
            path = self.folder / f"{name}.json"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump({**(common if name == "settings" else {}), **content}, file)
            self.chown(path)
        self.chown(self.folder)
        for path in (self.folder / "runtime", *(self.folder / "runtime").rglob("*")):
            self.chown(path)

    def describe(self) -> dict[str, Any]:
        """The container in the words of the engine's API; raises EngineError."""
        request, traits = self.request, self.engine.traits
        placement = Placement(
            folder=self.folder,
            cwd=request.cwd,
            transport=self.transport,
            user=self._user.name,
            network="" if self.network is None else self.network.id,
            volumes=self.engine.image_volumes(request.container.image),
            userns_mode="host" if traits.remaps_users else "",
            processors=traits.processors,
            labels={
                LABEL: "",
                OWNER_LABEL: str(Owner.this_process()),
                SESSION_LABEL: request.session_id,
                FOLDER_LABEL: str(self.folder),
            },
            environment=request.environment,
        )
        return describe(request.container, placement)

    def close(self) -> None:
        """Remove the folder."""
        self.spawner_channel.close()
        if self._cleaning is not None:
            self._cleaning.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _shares_sockets(self, runtime: str | None) -> bool:
        """Whether a socket in a folder joins a container and us: not if it has its own kernel."""
        runtime = runtime or self.engine.traits.default_runtime
        return self.engine.shares_this_machine and runtime in _OF_THIS_KERNEL

    def _open_spawner_channel(self) -> SpawnerChannel:
        if self.transport == "ipc":
            return SharedFolderSpawnerChannel(self.folder, self.chown)
        return PublishedPortSpawnerChannel(self.key)


def forbidden_mounts(engine_url: str) -> dict[Path, str]:
    """What code must not reach, and what it is; not even read-only: sockets seen can be used."""
    found = {Path(path): "the socket of a container engine" for path in _ENGINES}
    if engine_url.startswith("unix://"):
        found[Path(engine_url.removeprefix("unix://"))] = "the engine's socket"
    for parent in owned_parents():
        found[parent / f"{PREFIX}*"] = "the sockets and keys of other kernels"
    return found


def refuse_forbidden_mounts(folders: Iterable[Path], forbidden: Mapping[Path, str]) -> None:
    """Raise KernelStartError for a folder that holds any of these paths."""
    for folder in folders:
        for path, what in forbidden.items():
            if path.resolve().is_relative_to(folder.resolve()):
                raise KernelStartError(
                    f"The folder {folder} cannot be given to a container: it holds {what} ({path}),"
                    " with which code could leave the container. Choose a folder that holds only"
                    " what the code needs."
                )


def _umask() -> int | None:
    """Which permissions files of this process get not; None where only changing it would tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "Umask":
                return int(value, 8)
    return None
