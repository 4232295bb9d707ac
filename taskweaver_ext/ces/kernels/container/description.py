"""What a kernel's container is: settings in, the engine's own description out. No I/O.

Everything that could do harm is taken away by default, and each thing can be
given back by a setting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from taskweaver_ext.ces.kernels.client.wire import CONTROL_PORT, SHELL_PORT, STDIN_PORT
from taskweaver_ext.ces.kernels.container.image import DEFAULT_IMAGE
from taskweaver_ext.ces.kernels.container.limits import ContainerLimits

Transport: TypeAlias = Literal["ipc", "tcp"]

INSIDE_FOLDER = "/run/taskweaver"
"""Where the kernel finds what it is started with; it cannot write there."""

WIRE_PORT = 5000
PROGRAMS_PORT = WIRE_PORT + 9
CHANNEL_PORTS = {port: WIRE_PORT + port for port in (SHELL_PORT, STDIN_PORT, CONTROL_PORT)}

_FALLBACK_CWD = PurePosixPath("/work")
_HOST_NAMES = ("host.docker.internal", "gateway.docker.internal", "host.containers.internal")
_NOWHERE = "127.0.0.1"
_LOG_BYTES = "1m"

# A folder may not take the place of what the image needs.
_TAKEN = frozenset("/ /boot /home /opt /root /run /srv /tmp /var /var/tmp /mnt /media".split())
_TAKEN_WITH_ALL_BELOW = tuple(
    PurePosixPath(path)
    for path in f"/bin /dev /etc /lib /lib32 /lib64 /proc /sbin /sys /usr {INSIDE_FOLDER}".split()
)

# Read when the interpreter or the C library starts, so they cannot be set later.
_START_TIME_VARIABLE = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TZ|LD_LIBRARY_PATH|PYTHON[A-Z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """How the containers of an environment are made."""

    engine_url: str | None = None
    """The Docker engine; None: the one that is set, where DOCKER_HOST says, or its usual place."""
    image: str = DEFAULT_IMAGE
    """Any image that has Python and ipykernel."""
    python: str = "python3"
    """The interpreter inside the image."""
    transport: Transport | None = None
    """How kernels are reached: by sockets in a shared folder, or by TCP ports on 127.0.0.1.
    None: sockets where the engine is on this machine and its containers share our kernel."""
    has_network: bool = False
    """Whether the code may use the network."""
    limits: ContainerLimits = field(default_factory=ContainerLimits)
    user: str | None = None
    """UID:GID of the code. None: the caller's, or, where that is root, the owner's of the working
    directory, which then may not be root."""
    runtime: str | None = None
    """What the engine runs containers with, such as `runsc`; None: its default."""
    keeps_capabilities: bool = False
    may_gain_privileges: bool = False
    has_writable_root: bool = False
    has_init: bool = True
    """Whether a small init process reaps orphans and passes signals on."""
    sees_host_names: bool = False
    """Whether names like host.docker.internal lead to the host."""
    read_only_mounts: Mapping[str, str] = field(default_factory=dict)
    """More folders that the code may read: path here to path in the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one kernel's container is put, and with what."""

    folder: Path
    """Ours, mounted at `INSIDE_FOLDER`."""
    cwd: Path
    transport: Transport
    user: str
    network: str = ""
    """The one that its ports are published from, where nothing else is to be reached."""
    userns_mode: str = ""
    volumes: Sequence[str] = ()
    """Folders for which the image wants room on the engine's disk."""
    processors: int
    """How many the engine has; asking for more is an error to it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def cwd_inside(cwd: Path) -> PurePosixPath:
    """Where the working directory is mounted: at its own path, unless the image needs that."""
    path = PurePosixPath(cwd)
    is_taken = str(path) in _TAKEN or any(
        path.is_relative_to(taken) or taken.is_relative_to(path) for taken in _TAKEN_WITH_ALL_BELOW
    )
    return _FALLBACK_CWD if is_taken else path


def is_read_at_start(variable: str) -> bool:
    """Whether a variable must be there when the process starts; it then shows in `inspect`."""
    return _START_TIME_VARIABLE.fullmatch(variable) is not None


def describe(settings: ContainerSettings, placement: Placement) -> dict[str, Any]:
    """The container in the words of the engine's API."""
    variables = {
        "HOME": "/tmp",
        "USER": "taskweaver",
        **{n: v for n, v in placement.environment.items() if is_read_at_start(n)},
    }
    description: dict[str, Any] = {
        "Image": settings.image,
        "Entrypoint": [settings.python, f"{INSIDE_FOLDER}/runtime/cold_start.py"],
        "Cmd": [f"{INSIDE_FOLDER}/settings.json"],
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "User": placement.user,
        "WorkingDir": str(cwd_inside(placement.cwd)),
        "Labels": dict(placement.labels),
        "HostConfig": {
            "Mounts": list(_mounts(settings, placement)),
            "Tmpfs": {"/tmp": _tmp_options(settings.limits)},
            "Init": settings.has_init,
            "CapDrop": [] if settings.keeps_capabilities else ["ALL"],
            "SecurityOpt": [] if settings.may_gain_privileges else ["no-new-privileges:true"],
            "ReadonlyRootfs": not settings.has_writable_root,
            "UsernsMode": placement.userns_mode,
            # The first process's output is for us, should it fail to start; code must not
            # fill the engine's disk with it.
            "LogConfig": {
                "Type": "json-file",
                "Config": {"max-size": _LOG_BYTES, "max-file": "1"},
            },
            **_limits(settings.limits, placement.processors),
        },
    }
    if not settings.sees_host_names:
        description["HostConfig"]["ExtraHosts"] = [f"{name}:{_NOWHERE}" for name in _HOST_NAMES]
    if settings.runtime is not None:
        description["HostConfig"]["Runtime"] = settings.runtime
    _add_network(description, settings, placement)
    return description


def _mounts(settings: ContainerSettings, placement: Placement) -> list[dict[str, Any]]:
    writable = {str(placement.cwd.resolve()): str(cwd_inside(placement.cwd))}
    readable = {str(placement.folder.resolve()): INSIDE_FOLDER, **settings.read_only_mounts}
    folders: list[dict[str, Any]] = [
        {"Type": "bind", "Source": source, "Target": target, "ReadOnly": mounts is readable}
        for mounts in (writable, readable)
        for source, target in mounts.items()
    ]
    return folders if settings.has_writable_root else folders + _volumes(settings, placement)


def _volumes(settings: ContainerSettings, placement: Placement) -> list[dict[str, Any]]:
    """Memory in the place of volumes, which no read-only root holds and no limit bounds."""
    size = settings.limits.tmp_bytes
    options = {"Mode": 0o1777} if size is None else {"Mode": 0o1777, "SizeBytes": size}
    taken = {"/tmp", INSIDE_FOLDER, str(cwd_inside(placement.cwd))}
    taken.update(settings.read_only_mounts.values())
    return [
        {"Type": "tmpfs", "Target": volume, "TmpfsOptions": options}
        for volume in placement.volumes
        if str(PurePosixPath(volume)) not in taken
    ]


def _tmp_options(limits: ContainerLimits) -> str:
    # Programs may be run there as they may in the working directory: it takes nothing from
    # the code that it could not have otherwise, and compilers need it.
    options = "rw,exec,nosuid,nodev,mode=1777"
    return options if limits.tmp_bytes is None else f"{options},size={limits.tmp_bytes}"


def _limits(limits: ContainerLimits, processors: int) -> dict[str, Any]:
    described: dict[str, Any] = {"Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}]}
    if limits.memory_bytes is not None:
        described["Memory"] = described["MemorySwap"] = limits.memory_bytes
    if limits.processes is not None:
        described["PidsLimit"] = limits.processes
    if limits.cpus is not None:
        described["NanoCpus"] = math.ceil(min(limits.cpus, processors) * 1_000_000_000)
    if limits.file_bytes is not None:
        size = limits.file_bytes
        described["Ulimits"].append({"Name": "fsize", "Soft": size, "Hard": size})
    return described


def _add_network(
    description: dict[str, Any], settings: ContainerSettings, placement: Placement
) -> None:
    host = description["HostConfig"]
    if settings.has_network:
        host["NetworkMode"] = "bridge"
    elif placement.transport == "ipc":
        host["NetworkMode"] = "none"
    else:
        host["NetworkMode"] = placement.network
        host["Dns"] = [_NOWHERE]
        host["DnsOptions"] = ["timeout:1", "attempts:1"]
    if placement.transport == "tcp":
        ports = [f"{port}/tcp" for port in (WIRE_PORT, PROGRAMS_PORT, *CHANNEL_PORTS.values())]
        description["ExposedPorts"] = {port: {} for port in ports}
        host["PortBindings"] = {port: [{"HostIp": "127.0.0.1", "HostPort": ""}] for port in ports}
