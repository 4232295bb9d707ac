"""A kernel in a Docker container.

It connects to sockets in a folder that both sides see. Where engine and client
share no machine, it listens on TCP ports published on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Any

import zmq

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.kernels.client.host import KernelConnection, KernelSettings
from taskweaver_ext.ces.kernels.container.connection import (
    ContainerConnection,
    ControlChannel,
    KernelChannels,
    PublishedPortChannels,
    SharedFolderChannels,
)
from taskweaver_ext.ces.kernels.container.container import Container
from taskweaver_ext.ces.kernels.container.description import (
    INSIDE_FOLDER,
    ContainerSettings,
    cwd_inside,
)
from taskweaver_ext.ces.kernels.container.engine import EngineError, EngineGoneError
from taskweaver_ext.ces.kernels.container.failures import missing_engine, start_failure
from taskweaver_ext.ces.kernels.container.monitor import (
    DEATH_SECONDS,
    CodeMustStop,
    ContainerEvent,
)
from taskweaver_ext.ces.kernels.container.prepared_container import (
    ContainerRequest,
    PreparedContainer,
)
from taskweaver_ext.ces.kernels.container.program_site import ContainerProgramSite
from taskweaver_ext.errors import KernelStartError

START_SECONDS = 60.0


class ContainerKernelHost:
    """A `KernelHost` for Docker containers.

    Threads:
        What happens to the container is handled on the threads that `Container` names; what
        they touch is safe from any thread.
    """

    def __init__(
        self,
        settings: KernelSettings,
        container: ContainerSettings,
        context: zmq.Context[zmq.Socket[bytes]],
    ) -> None:
        self._settings = settings
        self._request = ContainerRequest(
            container=container,
            cwd=settings.cwd,
            session_id=settings.session_id,
            environment=settings.environment,
        )
        self._context = context
        self._container: Container | None = None
        self._connection: ContainerConnection | None = None
        self._opened = contextlib.ExitStack()
        """Undoes what `start` has done."""

    @property
    def pid(self) -> int | None:
        """The kernel's process, where this machine can see it."""
        return None if self._connection is None else self._connection.kernel_pid

    @property
    def folder(self) -> None:
        """The container's own folder is not for records: its code can reach it."""

    @property
    def programs(self) -> ContainerProgramSite | None:
        """Where shells and programs of the session run, once the container does."""
        return None if self._container is None else self._container.programs

    @property
    def is_over(self) -> bool:
        """Whether the container is known to have ended."""
        return self._container is not None and self._container.is_over

    def start(self) -> KernelConnection:
        """Make and start the container and wait for the kernel's hello."""
        try:
            return self._start()
        except EngineGoneError as error:
            raise missing_engine(error) from error
        except TimeoutError as error:
            raise self._start_error(
                f"the kernel was not ready after {START_SECONDS:g} s"
            ) from error
        except ConnectionError as error:
            death = self.death()
            reason = f"the kernel ended at once ({death.detail})" if death else str(error)
            raise self._start_error(reason or "the connection to the kernel broke") from error
        except (EngineError, OSError, zmq.ZMQError) as error:
            raise self._start_error(str(error)) from error

    def death(self, wait_seconds: float = DEATH_SECONDS) -> KernelDeath | None:
        """How the container ended; waits a moment for the engine to say so."""
        return None if self._container is None else self._container.death(wait_seconds)

    def interrupt(self) -> None:
        """Ask the kernel to interrupt itself and its children."""
        if self._connection is not None:
            self._connection.interrupt()

    def kill(self) -> None:
        """Kill everything in the container."""
        if self._container is not None:
            self._container.kill()

    def stop(self) -> None:
        """Remove the container and everything that was made for it."""
        self._opened.close()

    def _start(self) -> ContainerConnection:
        prepared = PreparedContainer(self._request)
        self._opened.callback(prepared.close)
        channels: KernelChannels
        if prepared.transport == "ipc":
            channels = SharedFolderChannels(prepared.folder, prepared.chown)
        else:
            channels = PublishedPortChannels(prepared.key)
        self._opened.callback(channels.close)
        files = self._files(channels, prepared.key)
        self._container = container = Container(prepared, files, self._handle)
        self._opened.callback(container.stop)
        self._connection = connection = self._connect(container, channels, prepared.key)
        for message in container.shortcomings:
            connection.notify(HostNotice("limit", message))
        return connection

    def _files(self, channels: KernelChannels, key: str) -> dict[str, dict[str, Any]]:
        """What the kernel is started with."""
        return {
            "connection": {
                **channels.connection_file(),
                "signature_scheme": "hmac-sha256",
                "key": key,
            },
            "settings": {
                **channels.kernel_settings(),
                "connection_file": f"{INSIDE_FOLDER}/connection.json",
                **self._settings.for_runtime(),
            },
        }

    def _connect(
        self, container: Container, channels: KernelChannels, key: str
    ) -> ContainerConnection:
        inside, outside = str(cwd_inside(self._settings.cwd)), str(self._settings.cwd)
        attach = partial(channels.attach, published=container.published)
        with contextlib.ExitStack() as undo:
            wire = channels.open_wire(container.published, START_SECONDS, container.end)
            undo.callback(wire.close)
            death_descriptor = os.dup(container.end.fileno())
            undo.callback(os.close, death_descriptor)
            control = ControlChannel(self._context, key, attach)
            undo.callback(control.close)
            connection = ContainerConnection(
                context=self._context,
                key=key,
                wire=wire,
                attach=attach,
                control=control,
                death_descriptor=death_descriptor,
                limits_met=container.limits_met,
                paths=None if inside == outside else (inside, outside),
            )
            undo.pop_all()
            undo.callback(connection.close)
            connection.wait_until_ready(START_SECONDS)
            undo.pop_all()
        return connection

    def _handle(self, event: ContainerEvent) -> None:
        """Pass a notice on to code that runs, else to the next; of a pause, all is to know."""
        connection = self._connection
        if isinstance(event, CodeMustStop):
            self.interrupt()
        elif isinstance(event, HostNotice) and connection is not None:
            is_running = self.programs is not None and self.programs.is_running
            concerns_all = event.status in ("paused", "resumed") or not is_running
            if connection.is_running or concerns_all:
                connection.notify(event)

    def _start_error(self, reason: str) -> KernelStartError:
        log = "" if self._container is None else self._container.log_tail()
        return start_failure(self._request.container, self._settings.session_id, reason, log)
