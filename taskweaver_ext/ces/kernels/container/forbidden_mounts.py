"""Which folders of this machine a container may not be given, because they lead out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from taskweaver_ext.errors import KernelStartError
from taskweaver_ext.machine.owned_folders import PREFIX, owned_parents

_ENGINES = ("/run/docker.sock", "/run/containerd", "/run/podman")


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
