"""Where an environment's kernels come from: a place, a Python, variables, and a way to start."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from taskweaver_ext.ces.kernels.client.host import KernelHost, StartedKernel, start_kernel
from taskweaver_ext.ces.kernels.local.host import LocalKernelHost, LocalKernelSettings
from taskweaver_ext.ces.kernels.local.spares import SpareKernels
from taskweaver_ext.ces.kernels.local.zygote import Zygotes, can_fork
from taskweaver_ext.machine.child_environment import child_environment, granted_by_name
from taskweaver_ext.machine.interpreters import environment_of, find_python

if TYPE_CHECKING:
    from taskweaver_ext.ces.kernels.container.description import ContainerSettings
    from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings


class EnvMode(enum.Enum):
    """Where kernels run."""

    Local = "local"
    Container = "container"
    Gateway = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSourceSettings:
    """How kernels are started; `Environment` says what each of these means."""

    env_id: str
    env_dir: Path
    mode: EnvMode = EnvMode.Local
    python: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    memory_limit: int | None = None
    warm_start: bool = True
    preload: Sequence[str] = ()
    spare_kernels: int = 0
    container: ContainerSettings | None = None
    gateway: GatewaySettings | None = None


class KernelSource:
    """Start kernels, from any thread. Owns what they share: zygotes, spares, a ZeroMQ context."""

    def __init__(self, settings: KernelSourceSettings) -> None:
        self._settings = settings
        is_local = settings.mode is EnvMode.Local
        is_warm = is_local and settings.warm_start and can_fork()
        self._zygotes = Zygotes(settings.preload) if is_warm else None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._warm_up()
        can_spare = is_local and settings.spare_kernels > 0
        self.spares = SpareKernels(settings.spare_kernels, self._start_spare) if can_spare else None

    def start(self, session_id: str, cwd: Path) -> StartedKernel:
        """Start a kernel for a session, or take one that is there."""
        if self._settings.mode is EnvMode.Container:
            return start_kernel(self._make_container_host(session_id, cwd))
        if self._settings.mode is EnvMode.Gateway:
            return self._start_behind_gateway(session_id, cwd)
        python, environment = self._interpreter(cwd)
        is_common = python == self._interpreter(self._settings.env_dir)[0]
        if self.spares and is_common and (spare := self.spares.claim()) is not None:
            belongs_to = {"session_id": session_id, "cwd": str(cwd)}
            return StartedKernel(spare.host, spare.connection, belongs_to)
        return start_kernel(self._make_local_host(session_id, cwd, python, environment))

    def close(self) -> None:
        """Let go of everything; the kernels must have been stopped."""
        if self.spares is not None:
            self.spares.close()
        if self._zygotes is not None:
            self._zygotes.close()
        self._context.term()

    def _warm_up(self) -> None:
        """Let the zygote import while the caller does other things."""
        if self._zygotes is not None:
            self._zygotes.get(*self._interpreter(self._settings.env_dir))

    def _start_spare(self) -> StartedKernel:
        python, environment = self._interpreter(self._settings.env_dir)
        return start_kernel(self._make_local_host("", Path("/"), python, environment))

    def _interpreter(self, cwd: Path) -> tuple[str, dict[str, str]]:
        environment = child_environment(self._settings.variables)
        python = find_python(self._settings.python, cwd, environment)
        return python, environment_of(python, environment)

    def _make_local_host(
        self, session_id: str, cwd: Path, python: str, environment: dict[str, str]
    ) -> KernelHost:
        settings = LocalKernelSettings(
            python=python,
            cwd=cwd,
            environment=environment,
            env_id=self._settings.env_id,
            session_id=session_id,
            memory_limit_bytes=self._settings.memory_limit,
        )
        zygote = self._zygotes.get(python, environment) if self._zygotes else None
        return LocalKernelHost(settings, self._context, zygote)

    def _make_container_host(self, session_id: str, cwd: Path) -> KernelHost:
        # Only who runs containers pays for their machinery.
        from taskweaver_ext.ces.kernels.container.description import ContainerSettings
        from taskweaver_ext.ces.kernels.container.host import (
            ContainerKernelHost,
            ContainerKernelSettings,
        )

        settings = ContainerKernelSettings(
            container=self._settings.container or ContainerSettings(),
            cwd=cwd,
            env_id=self._settings.env_id,
            session_id=session_id,
            environment={**granted_by_name(), **self._settings.variables},
            memory_limit_bytes=self._settings.memory_limit,
        )
        return ContainerKernelHost(settings, self._context)

    def _start_behind_gateway(self, session_id: str, cwd: Path) -> StartedKernel:
        # Only who uses gateways pays for their machinery.
        from taskweaver_ext.ces.kernels.gateway.host import (
            GatewayKernelSettings,
            start_behind_gateway,
        )
        from taskweaver_ext.ces.kernels.gateway.shared_gateway import find_gateway

        settings = GatewayKernelSettings(
            gateway=self._settings.gateway or find_gateway(),
            cwd=cwd,
            env_id=self._settings.env_id,
            session_id=session_id,
            environment={**granted_by_name(), **self._settings.variables},
            memory_limit_bytes=self._settings.memory_limit,
        )
        return start_behind_gateway(settings)
