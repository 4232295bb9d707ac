"""A kernel in a Docker container.

It connects to sockets in a folder that both sides see. Where engine and client
share no machine, it listens on TCP ports published on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import zmq

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.kernels.client.host import KernelConnection
from taskweaver_ext.ces.kernels.client.jupyter_messages import MessageFormat
from taskweaver_ext.ces.kernels.client.wire import CONTROL_PORT
from taskweaver_ext.ces.kernels.container.connection import (
    ContainerConnection,
    KernelLine,
    PublishedPortsLine,
    SharedFolderLine,
)
from taskweaver_ext.ces.kernels.container.container import BoxSettings, ContainerBox
from taskweaver_ext.ces.kernels.container.description import INSIDE_FOLDER, cwd_inside
from taskweaver_ext.ces.kernels.container.engine import EngineError, EngineGoneError
from taskweaver_ext.ces.kernels.container.failures import missing_engine, start_failure
from taskweaver_ext.ces.kernels.container.monitor import DEATH_SECONDS
from taskweaver_ext.ces.kernels.container.programs import ContainerPrograms
from taskweaver_ext.errors import KernelStartError

START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerKernelSettings(BoxSettings):
    """What one kernel in a container is started with."""

    env_id: str
    memory_limit_bytes: int | None = None


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
        self._box = ContainerBox(settings, on_notice=self._tell, interrupt=self.interrupt)
        self._line: KernelLine | None = None
        self._connection: ContainerConnection | None = None
        self._lock = threading.Lock()
        self._format = MessageFormat(self._box.key)
        self._control: zmq.Socket[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The kernel's process, where this machine can see it."""
        return self._connection.kernel_pid if self._connection is not None else None

    @property
    def folder(self) -> None:
        """The container's own folder is not for records: its code can reach it."""

    @property
    def programs(self) -> ContainerPrograms:
        """Where shells and programs of the session run, once the container does."""
        return self._box.programs

    @property
    def is_over(self) -> bool:
        """Whether the container has ended, as far as anybody knows."""
        return self._box.life.is_over

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
        return self._box.life.death(wait_seconds)

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
        self._box.life.kill()

    def stop(self) -> None:
        """Remove the container and everything that was made for it."""
        self._box.stop()
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
        if self._line is not None:
            self._line.close()

    def _start(self) -> ContainerConnection:
        box = self._box
        line: KernelLine
        if box.open() == "ipc":
            line = SharedFolderLine(box.folder, box.give_away)
        else:
            line = PublishedPortsLine(box.key)
        self._line = line
        published = box.start(
            {
                "connection": {
                    **line.connection_file(),
                    "signature_scheme": "hmac-sha256",
                    "key": box.key,
                },
                "settings": {
                    **line.kernel_settings(),
                    "connection_file": f"{INSIDE_FOLDER}/connection.json",
                    "env_id": self._settings.env_id,
                    "session_id": self._settings.session_id,
                    "memory_limit_bytes": self._settings.memory_limit_bytes,
                },
            }
        )
        connection = self._connect(line, published)
        for message in box.shortcomings:
            connection.tell(HostNotice("limit", message))
        return connection

    def _connect(self, line: KernelLine, published: Mapping[int, int]) -> ContainerConnection:
        life = self._box.life
        inside, outside = str(cwd_inside(self._settings.cwd)), str(self._settings.cwd)
        with contextlib.ExitStack() as opened:
            wire = line.open_wire(published, START_SECONDS, life.end)
            opened.callback(wire.close)
            death_descriptor = os.dup(life.end.fileno())
            opened.callback(os.close, death_descriptor)
            connection = ContainerConnection(
                line=line,
                context=self._context,
                key=self._box.key,
                wire=wire,
                death_descriptor=death_descriptor,
                limits_met=life.limits_met,
                paths=None if inside == outside else (inside, outside),
            )
            opened.pop_all()
            opened.callback(connection.close)
            self._open_control(line)
            connection.wait_until_ready(START_SECONDS)
            opened.pop_all()
        self._connection = connection
        return connection

    def _open_control(self, line: KernelLine) -> None:
        control = self._context.socket(zmq.DEALER)
        with self._lock:
            self._control = control  # `stop` closes it
        control.linger = 0
        line.attach(control, CONTROL_PORT)

    def _tell(self, notice: HostNotice) -> None:
        """Tell what runs, or the kernel's next code; of a pause, all that runs or will."""
        connection = self._connection
        concerns_all = notice.status in ("paused", "resumed") or not self._box.programs.is_running
        self._box.programs.tell(notice)
        if connection is not None and (connection.is_running or concerns_all):
            connection.tell(notice)

    def _start_error(self, reason: str) -> KernelStartError:
        return start_failure(
            self._settings.container, self._settings.session_id, reason, self._box.log_tail()
        )
