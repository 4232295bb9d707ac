"""Kernel modes in one table: where kernels come from, and what else differs from place to place.

A mode is a member of `EnvMode` and a row of `KERNEL_MODES`; everything else asks the row.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import zmq

from taskweaver_ext.ces.kernels.client.host import (
    KernelHost,
    KernelSettings,
    StartedKernel,
    start_kernel,
)
from taskweaver_ext.ces.kernels.local.host import LocalKernelHost
from taskweaver_ext.ces.kernels.local.spares import SpareKernels
from taskweaver_ext.ces.kernels.local.zygote import Zygote, Zygotes, can_fork
from taskweaver_ext.ces.kernels.sandbox.host import SandboxedKernelHost
from taskweaver_ext.ces.kernels.sandbox.program_site import ProgramSandbox
from taskweaver_ext.ces.kernels.sandbox.running_sandbox import RunningSandbox, open_sandbox
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.program import ProgramLimits
from taskweaver_ext.ces.programs.site import ProgramSites
from taskweaver_ext.ces.sandbox.sandbox import refuse_folder, refuse_sandbox_folder
from taskweaver_ext.config.loading import load_sandbox
from taskweaver_ext.config.sandbox import SandboxSettings
from taskweaver_ext.config.settings import EnvMode as EnvMode
from taskweaver_ext.config.settings import ExecutionServiceConfig
from taskweaver_ext.machine.child_environment import (
    FOR_AGENTS,
    EnvironmentRules,
    child_environment,
    granted_by_name,
    rules_of,
)
from taskweaver_ext.machine.interpreters import environment_of, find_python

if TYPE_CHECKING:
    from taskweaver_ext.ces.kernels.container.description import ContainerSettings
    from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSourceSettings:
    """How kernels are started; `Environment` says what each of these means."""

    env_id: str
    env_dir: Path
    python: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    env_rules: EnvironmentRules = FOR_AGENTS
    memory_limit: int | None = None
    warm_start: bool = True
    preload: Sequence[str] = ()
    spare_kernels: int = 0
    service: ExecutionServiceConfig = field(default_factory=ExecutionServiceConfig)
    container: ContainerSettings | None = None
    gateway: GatewaySettings | None = None
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    guard: bool = False

    def for_kernel(
        self, session_id: str, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> KernelSettings:
        """Of one kernel; by default with the variables that are given by name, and none besides."""
        return KernelSettings(
            env_id=self.env_id,
            session_id=session_id,
            cwd=cwd,
            environment=environment or {**granted_by_name(), **self.variables},
            memory_limit_bytes=self.memory_limit,
        )


ProgramPlace: TypeAlias = Literal["here", "beside the kernel", "refused"]


class KernelSource(Protocol):
    """Starts the kernels of one environment, from any thread, and owns what they share."""

    def start(self, session_id: str, cwd: Path) -> StartedKernel:
        """Start a kernel for a session, or give one that is ready; raises KernelStartError."""

    def close(self) -> None:
        """Let go of everything; the kernels must have been stopped."""


class LocalKernels:
    """Kernels on this machine; they share zygotes, spares and a ZeroMQ context."""

    def __init__(self, settings: KernelSourceSettings) -> None:
        self._settings = settings
        is_warm = settings.warm_start and can_fork()
        interpreter = self._interpreter(settings.env_dir)  # first: there may be none
        self._zygotes = Zygotes(settings.preload) if is_warm else None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        if self._zygotes is not None:  # it imports while the caller does other things
            self._zygotes.get(*interpreter)
        count = settings.spare_kernels
        self.spares = SpareKernels(count, self._start_spare) if count > 0 else None

    def start(self, session_id: str, cwd: Path) -> StartedKernel:
        """Start a kernel, or give a spare one."""
        python, environment = self._interpreter(cwd)
        if self.spares and python == self._interpreter(self._settings.env_dir)[0]:
            spare = self.spares.claim()
            if spare is not None:
                belongs_to = {"session_id": session_id, "cwd": str(cwd)}
                return StartedKernel(spare.host, spare.connection, belongs_to)
        return start_kernel(self._make_host(session_id, cwd, python, environment))

    def close(self) -> None:
        """End spares and zygotes."""
        if self.spares is not None:
            self.spares.close()
        if self._zygotes is not None:
            self._zygotes.close()
        self._context.term()

    def _start_spare(self) -> StartedKernel:
        python, environment = self._interpreter(self._settings.env_dir)
        return start_kernel(self._make_host("", Path("/"), python, environment))

    def _interpreter(self, cwd: Path) -> tuple[str, dict[str, str]]:
        settings = self._settings
        environment = child_environment(settings.variables, rules=settings.env_rules)
        python = find_python(settings.python, cwd, environment)
        return python, environment_of(python, environment)

    def _make_host(
        self, session_id: str, cwd: Path, python: str, environment: dict[str, str]
    ) -> KernelHost:
        return LocalKernelHost(
            self._settings.for_kernel(session_id, cwd, environment),
            python,
            self._context,
            self._zygote(python, environment),
            restriction="guard" if self._settings.guard else None,
        )

    def _zygote(self, python: str, environment: dict[str, str]) -> Zygote | None:
        return self._zygotes.get(python, environment) if self._zygotes else None


class SandboxKernels(LocalKernels):
    """Kernels on this machine that have given up all but a folder."""

    def __init__(self, settings: KernelSourceSettings) -> None:
        sandbox = settings.sandbox
        if settings.memory_limit is not None:
            memory = min(settings.memory_limit, sandbox.memory_bytes or settings.memory_limit)
            sandbox = replace(sandbox, memory_bytes=memory)
        # A kernel that is started before its folder is known cannot be restricted to it.
        super().__init__(replace(settings, sandbox=sandbox, spare_kernels=0))
        self._lock = threading.Lock()
        self._sandboxes: weakref.WeakValueDictionary[str, RunningSandbox]
        self._sandboxes = weakref.WeakValueDictionary()
        self._told: set[str] = set()
        """Sessions that know what the machine cannot do for them."""

    def _make_host(
        self, session_id: str, cwd: Path, python: str, environment: dict[str, str]
    ) -> KernelHost:
        with self._lock:
            sandbox = self._sandboxes.get(session_id)
            if sandbox is None or not sandbox.use():  # what its programs run in, if any do
                sandbox = open_sandbox(cwd, self._settings.sandbox, python)
                self._sandboxes[session_id] = sandbox
            remarks = () if session_id in self._told else sandbox.remarks
            self._told.add(session_id)
        try:
            return SandboxedKernelHost(
                self._settings.for_kernel(session_id, cwd, environment),
                python,
                self._context,
                self._zygote(python, environment),
                sandbox,
                remarks=remarks,
            )
        except BaseException:
            sandbox.leave()
            raise

    def _interpreter(self, cwd: Path) -> tuple[str, dict[str, str]]:
        """Never one that code may have put into its working folder."""
        return super()._interpreter(Path("/"))


# Only callers that use containers or gateways pay for their machinery: below it is imported late.


def container_settings(
    service: ExecutionServiceConfig, given: ContainerSettings | None = None
) -> ContainerSettings:
    """How containers are made: as given, with the engine and the image that are set."""
    from taskweaver_ext.ces.kernels.container.description import ContainerSettings
    from taskweaver_ext.ces.kernels.container.image import DEFAULT_IMAGE

    settings = given or ContainerSettings(image=service.custom_image or DEFAULT_IMAGE)
    return replace(
        settings,
        engine_url=settings.engine_url or service.engine_url,
        runtime=settings.runtime or service.container_runtime,
        user=settings.user or service.container_user,
    )


def _named_gateway(service: ExecutionServiceConfig) -> GatewaySettings | None:
    """The gateway that is set; None where none is."""
    from taskweaver_ext.ces.kernels.gateway.api import GatewaySettings

    if not service.gateway_url:
        return None
    return GatewaySettings(
        url=service.gateway_url,
        token=service.gateway_token,
        kernel_name=service.gateway_kernel,
        ca_file=service.gateway_ca_file,
    )


class ContainerKernels:
    """Kernels in containers; they share a ZeroMQ context."""

    def __init__(self, settings: KernelSourceSettings) -> None:
        self._settings = settings
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def start(self, session_id: str, cwd: Path) -> StartedKernel:
        """Start a container with a kernel."""
        from taskweaver_ext.ces.kernels.container.host import ContainerKernelHost

        container = container_settings(self._settings.service, self._settings.container)
        settings = self._settings.for_kernel(session_id, cwd)
        return start_kernel(ContainerKernelHost(settings, container, self._context))

    def close(self) -> None:
        """End the context."""
        self._context.term()


class GatewayKernels:
    """Kernels behind a gateway."""

    def __init__(self, settings: KernelSourceSettings) -> None:
        self._settings = settings

    def start(self, session_id: str, cwd: Path) -> StartedKernel:
        """Have the gateway start a kernel; without one that is named, the shared one is used."""
        from taskweaver_ext.ces.kernels.gateway.host import start_behind_gateway
        from taskweaver_ext.ces.kernels.gateway.shared_gateway import SharedGateway

        named = self._settings.gateway or _named_gateway(self._settings.service)
        settings = self._settings.for_kernel(session_id, cwd)
        return start_behind_gateway(settings, named or SharedGateway().connect())

    def close(self) -> None:
        """Nothing is shared."""


@contextlib.contextmanager
def _programs_here(
    _cwd: Path, limits: ProgramLimits, service: ExecutionServiceConfig
) -> Iterator[tuple[ProgramSites, ProgramLimits]]:
    yield LocalSites(rules=rules_of(service, is_for_person=True)), limits


@contextlib.contextmanager
def _programs_in_sandbox(
    cwd: Path, limits: ProgramLimits, service: ExecutionServiceConfig
) -> Iterator[tuple[ProgramSites, ProgramLimits]]:
    sizes = {name: getattr(limits, name) for name in ("memory_bytes", "cpu_seconds", "file_bytes")}
    given = {name: size for name, size in sizes.items() if size is not None}
    rules = rules_of(service, is_for_person=True)
    sites = ProgramSandbox(cwd, replace(load_sandbox(), **given), rules=rules)
    try:
        yield sites, ProgramLimits()
    finally:
        sites.close()


@contextlib.contextmanager
def _programs_in_container(
    cwd: Path, limits: ProgramLimits, service: ExecutionServiceConfig
) -> Iterator[tuple[ProgramSites, ProgramLimits]]:
    from taskweaver_ext.ces.kernels.container.limits import ContainerLimits
    from taskweaver_ext.ces.kernels.container.program_container import ProgramContainer

    sizes = {"memory_bytes": limits.memory_bytes, "file_bytes": limits.file_bytes}
    given = ContainerLimits(**{name: size for name, size in sizes.items() if size is not None})
    settings = replace(container_settings(service), limits=given)
    container = ProgramContainer(cwd, settings, name="exec")
    try:
        yield container, ProgramLimits(cpu_seconds=limits.cpu_seconds)
    finally:
        container.close()


def _allow_folder(_cwd: Path) -> None:
    """Any will do."""


def _give_to_code_in_container(settings: KernelSourceSettings, cwd: Path) -> None:
    from taskweaver_ext.ces.kernels.container.code_user import give_to_code

    give_to_code(cwd, container_settings(settings.service, settings.container).user)


def _refuse_folder_of_root(settings: KernelSourceSettings, cwd: Path) -> None:
    from taskweaver_ext.ces.kernels.container.code_user import refuse_folder_of_root

    container = container_settings(settings.service, settings.container)
    refuse_folder_of_root(container.user, cwd, partial(_may_be_rootless, container.engine_url))


def _may_be_rootless(engine_url: str | None) -> bool:
    from taskweaver_ext.ces.kernels.container.engine import EngineError, shared_engine

    try:
        return shared_engine(engine_url or "").traits.is_rootless
    except EngineError:  # which is said when a container is to start
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMode:
    """What is particular to one mode."""

    open_source: Callable[[KernelSourceSettings], KernelSource]
    """Where the kernels of an environment come from."""
    programs: ProgramPlace
    """Where a session's shell and one-shot programs run."""
    program_sites: (
        Callable[
            [Path, ProgramLimits, ExecutionServiceConfig],
            AbstractContextManager[tuple[ProgramSites, ProgramLimits]],
        ]
        | None
    )
    """For programs alone, without a session: where they run, given the folder they see, what they
    may use and what is set, and which of these limits are left to each. None: nowhere."""
    is_confined: bool
    """Whether code reaches nothing of this machine but its working directory, which then may
    not hold the session's records, and a shell command needs no approval."""
    check_folder: Callable[[Path], None]
    """Raises ConfigError for a working directory that code may not have."""
    starts_here: bool
    """Whether code can work in the caller's current folder: it is on the same disk."""
    verifies_code: bool
    """Whether code that a model wrote is verified by default: nothing else protects us."""
    prepare_own_cwd: Callable[[KernelSourceSettings, Path], None] = lambda _settings, _cwd: None
    """Makes a working directory of ours, not of the caller's, fit for code; may raise OSError."""
    check_owner: Callable[[KernelSourceSettings, Path], None] = lambda _settings, _cwd: None
    """Raises ConfigError for a working directory of a user that code may not be."""


KERNEL_MODES: Mapping[EnvMode, KernelMode] = {
    EnvMode.Local: KernelMode(
        open_source=LocalKernels,
        programs="here",
        program_sites=_programs_here,
        is_confined=False,
        check_folder=_allow_folder,
        starts_here=True,
        verifies_code=True,
    ),
    EnvMode.Sandbox: KernelMode(
        open_source=SandboxKernels,
        programs="beside the kernel",
        program_sites=_programs_in_sandbox,
        is_confined=True,
        check_folder=refuse_sandbox_folder,
        starts_here=True,
        verifies_code=False,
    ),
    EnvMode.Container: KernelMode(
        open_source=ContainerKernels,
        programs="beside the kernel",
        program_sites=_programs_in_container,
        is_confined=True,
        check_folder=partial(refuse_folder, place="a container"),
        starts_here=True,
        verifies_code=False,
        prepare_own_cwd=_give_to_code_in_container,
        check_owner=_refuse_folder_of_root,
    ),
    EnvMode.Gateway: KernelMode(
        open_source=GatewayKernels,
        programs="refused",
        program_sites=None,
        is_confined=False,
        check_folder=_allow_folder,
        starts_here=False,
        verifies_code=False,
    ),
}
