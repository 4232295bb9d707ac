"""One container of ours, from its creation to its removal, with or without a kernel in it."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, assert_never

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.kernels.client.host import ExecutionReply
from taskweaver_ext.ces.kernels.client.wire import Waker
from taskweaver_ext.ces.kernels.container.engine import (
    EngineError,
    EngineFailedError,
    NotInEngineError,
)
from taskweaver_ext.ces.kernels.container.failures import missing_image
from taskweaver_ext.ces.kernels.container.monitor import (
    DEATH_SECONDS,
    CodeMustStop,
    ContainerEnded,
    ContainerEvent,
    ContainerMonitor,
)
from taskweaver_ext.ces.kernels.container.prepared_container import PreparedContainer
from taskweaver_ext.ces.kernels.container.program_site import ContainerProgramSite

_LOG_LINES = 30

_log = logging.getLogger(__name__)


class Container:
    """A container: creating this object creates, starts and watches it; `stop` removes it.

    Threads:
        `on_event` is called on a thread of the engine, or on the one that watches the working
        directory, after the programs in the container have heard of the event.
    """

    def __init__(
        self,
        prepared: PreparedContainer,
        files: Mapping[str, Mapping[str, Any]],
        on_event: Callable[[ContainerEvent], None] = lambda _event: None,
    ) -> None:
        """Create and start it, or leave nothing of it.

        Args:
            files: As in `PreparedContainer.write_files`.
            on_event: Called with what happens to it from now on.

        Raises:
            EngineError: The engine does not start it.
            KernelStartError: The engine does not have its image.
        """
        self._prepared = prepared
        self._engine = prepared.engine
        self._on_event = on_event
        prepared.write_files(files)
        self._id, warnings = self._create_and_start()
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove, self._id)
            state = self._engine.inspect(self._id)
            self.published = _published_ports(state)
            """Where its ports are found on this machine."""
            pid = state["State"]["Pid"]
            self._monitor = ContainerMonitor(
                self._engine, self._id, pid, prepared.request, self._handle
            )
            undo.callback(self._monitor.close)
            self.programs = ContainerProgramSite(prepared, self._monitor, self.published)
            self._monitor.start()
            process = self._monitor.process
            self._is_sealed = process is not None and process.seal_mounts()
            self.shortcomings = (*warnings, *self._find_shortcomings())
            """What it does not keep of what its settings promise."""
            undo.pop_all()
        for message in self.shortcomings:
            _log.warning("%s", message)

    @property
    def end(self) -> Waker:
        """Woken when it has ended."""
        return self._monitor.end

    @property
    def is_over(self) -> bool:
        """Whether it is known to have ended."""
        return self._monitor.is_over

    def death(self, wait_seconds: float = DEATH_SECONDS) -> KernelDeath | None:
        """How it ended; waits a moment for the engine to say so."""
        return self._monitor.death(wait_seconds)

    def limits_met(self, reply: ExecutionReply | None) -> list[str]:
        """Which limits were met since this was asked last, and which an error names, in words."""
        return self._monitor.limits_met(reply)

    def log_tail(self) -> str:
        """The last lines that its first process wrote."""
        try:
            return self._engine.log_tail(self._id, _LOG_LINES).strip()
        except EngineError:
            return ""

    def kill(self) -> None:
        """Kill everything in it."""
        self._monitor.kill()

    def stop(self) -> None:
        """Kill and remove it."""
        self._monitor.kill()
        self.programs.close()
        self._monitor.close()
        self._remove(self._id)

    def _handle(self, event: ContainerEvent) -> None:
        match event:
            case HostNotice():
                self.programs.notify(event)
            case CodeMustStop():
                self.programs.stop_everything()
            case ContainerEnded():
                self.programs.disconnect()
            case _:
                assert_never(event)
        self._on_event(event)

    def _create_and_start(self) -> tuple[str, list[str]]:
        """Do it, and try once more when the engine fails for a reason of its own.

        A port may be taken in the moment between its choice and its use, and an engine under
        load gives up on what it could do a moment later.

        Returns:
            Its id, and what the engine warns of.
        """
        try:
            return self._try_to_start()
        except EngineFailedError as error:
            _log.info("the engine failed to start a container, and is asked again: %s", error)
        try:
            return self._try_to_start()
        except EngineFailedError as error:
            raise EngineError(f"the engine failed at it twice: {error}") from error

    def _try_to_start(self) -> tuple[str, list[str]]:
        request = self._prepared.request
        name = f"taskweaver-{request.session_id}-{uuid.uuid4().hex[:8]}"
        try:
            container, warnings = self._engine.create(name, self._prepared.describe())
        except NotInEngineError as error:
            raise missing_image(request.container.image) from error
        try:
            self._engine.start(container)
        except BaseException:
            self._remove(container)
            raise
        return container, warnings

    def _remove(self, container: str) -> None:
        try:
            self._engine.remove(container)
        except EngineError as error:
            _log.warning(
                "the container %s is left behind (%s); it is removed when a container is"
                " started next, or by: taskweaver-ext doctor --clean",
                container,
                error,
            )

    def _find_shortcomings(self) -> Iterator[str]:
        limits = self._prepared.request.container.limits
        wanted = {"memory": limits.memory_bytes, "processes": limits.processes, "CPU": limits.cpus}
        if (process := self._monitor.process) is not None:
            missing = process.limits_not_in_force(limits)
        elif self._engine.shares_this_machine:
            # Its process is in no control group of its own, as with some rootless engines.
            missing = [name for name, limit in wanted.items() if limit is not None]
        else:
            missing = [n for n in self._engine.traits.unsupported_limits if wanted[n] is not None]
        if missing:
            yield f"The engine does not enforce these limits on this machine: {', '.join(missing)}."
        settings = self._prepared.request.container
        has_privileges = settings.keeps_capabilities or settings.may_gain_privileges
        if has_privileges and not self._is_sealed:
            yield (
                "Set-user-id bits and device nodes count in folders of this machine that the code"
                " sees: only root can change that."
            )
        network = self._prepared.network
        if network is not None:
            others = "containers" if network.leads_out else "machines and containers"
            yield (
                f"The container is reached by published ports, so it has a network: other {others}"
                " are blocked, but services of the host that listen on all addresses can be"
                " reached from it."
            )
        if network is not None and network.leads_out:
            yield "The engine cannot close the container's way to other machines."


def _published_ports(state: Mapping[str, Any]) -> dict[int, int]:
    ports = state["NetworkSettings"]["Ports"] or {}
    return {
        int(port.partition("/")[0]): int(bindings[0]["HostPort"])
        for port, bindings in ports.items()
        if bindings
    }
