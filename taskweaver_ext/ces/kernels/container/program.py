"""One program in a container, seen from outside."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.inside.spawner.process_tree import ProcessSeen
from taskweaver_ext.ces.inside.spawner.started_process import ProcessEnd
from taskweaver_ext.ces.kernels.client.checked_fields import CheckedFields
from taskweaver_ext.ces.kernels.client.wire import Waker
from taskweaver_ext.ces.kernels.container.limits import LimitCounter
from taskweaver_ext.ces.kernels.container.monitor import ContainerMonitor
from taskweaver_ext.ces.kernels.container.spawner import (
    PAUSED_SECONDS,
    ProcessStatus,
    SpawnerClient,
    SpawnerLostError,
    SpawnerSilentError,
    answer_seconds,
)
from taskweaver_ext.ces.programs.process_output import ReadEnd
from taskweaver_ext.errors import ProtocolError

_KILLED = -9
_KILL_SECONDS = 7.0
"""Longer than the spawner itself tries to kill a program's processes."""


class ContainerProgram:
    """A `RunningProcess` in a container."""

    def __init__(
        self,
        *,
        client: SpawnerClient,
        monitor: ContainerMonitor,
        started: object,
        status: ProcessStatus,
        stdin: int | None,
        stdout: ReadEnd,
        stderr: ReadEnd | None,
        limits: LimitCounter,
        on_collect: Callable[[ContainerProgram], None],
    ) -> None:
        """A process that was just started.

        Args:
            started: What the spawner says of it.
            on_collect: Called when it has been collected.

        Raises:
            OSError: There is no room for it here.
            ValueError: What is said of it makes no sense.
        """
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.mark, self.pid = _mark_and_pid(started)
        self._client = client
        self._monitor = monitor
        self._status = status
        self._limits = limits
        self._on_collect = on_collect
        self._notices: deque[HostNotice] = deque()
        self._waker = Waker()
        self.descriptor: int | None = self._waker.fileno()
        status.on_change = self._waker.wake
        if self.has_ended():
            self._waker.wake()

    def ticks(self) -> int:
        """The time in the container."""
        ticks = self._ask("ticks")
        return ticks if isinstance(ticks, int) else 0

    def has_ended(self) -> bool:
        """Whether it has ended, or its container has."""
        return self._status.code is not None or self._client.is_lost

    def notify(self, notice: HostNotice) -> None:
        """Something happens to the container; from any thread."""
        self._notices.append(notice)
        self._waker.wake()

    def read_notices(self) -> Iterable[HostNotice]:
        """What has happened to the container since this was asked last."""
        self._waker.clear()
        if self.has_ended():
            self._waker.wake()  # that stays so
        taken = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._notices.popleft())
        return taken

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._client.send("signal", {"process": self._status.number, "number": int(number)})

    def signal_group(self, number: int) -> None:
        """Send its group a signal."""
        self._client.send("signal_group", {"process": self._status.number, "number": int(number)})

    def members(self) -> list[ProcessSeen]:
        """What lives of it in the container."""
        found = self._ask("members", process=self._status.number)
        try:
            return [_process_seen(entry) for entry in found] if isinstance(found, list) else []
        except ProtocolError:
            return []  # forged: what lives there is unknown, and ends with the container

    def signal_members(
        self, members: Iterable[ProcessSeen], number: int, wait_seconds: float = 0.0
    ) -> None:
        """Send a signal to some of them, and wait a moment for their end."""
        self._insist_on(
            "signal_members",
            process=self._status.number,
            members=[asdict(seen) for seen in members],
            number=int(number),
            wait_seconds=wait_seconds,
        )

    def kill_all(self) -> None:
        """Kill it with everything it started."""
        self._insist_on("kill_all", process=self._status.number)

    def wait(self) -> int:
        """Its exit code; as killed, when its container ended with it."""
        code = self._status.code
        return _KILLED if code is None else code

    def collect(self) -> ProcessEnd:
        """Let go of it, and say how it ended."""
        end = self._insist_on("collect", process=self._status.number)
        self._client.forget(self._status)
        self._on_collect(self)
        self._waker.close()
        self.descriptor = None
        return _process_end(end, self._status.code)

    def death(self) -> KernelDeath | None:
        """How its container ended, if that is why it has."""
        is_lost = self._status.code is None and self._client.is_lost
        return self._monitor.death_of_lost() if is_lost else None

    def limits_met(self) -> list[str]:
        """The container's limits that were met since this was asked last."""
        return self._limits.newly_met()

    def _ask(self, what: str, **arguments: object) -> object:
        """Ask something that cannot fail there; None when there is no answer."""
        with contextlib.suppress(OSError, ValueError, SpawnerLostError, SpawnerSilentError):
            seconds = answer_seconds(is_paused=self._monitor.is_paused)
            return self._client.ask(what, arguments, seconds=seconds)
        return None

    def _insist_on(self, what: str, **arguments: object) -> object:
        """As `_ask`; a container that does not even do this is paused or stuck: it is killed."""
        seconds = PAUSED_SECONDS if self._monitor.is_paused else _KILL_SECONDS
        try:
            return self._client.ask(what, arguments, seconds=seconds)
        except SpawnerSilentError:
            self._monitor.kill_because("killed, because it did not answer when asked to stop")
        except (OSError, ValueError, SpawnerLostError):
            pass
        return None


def _mark_and_pid(started: object) -> tuple[str, int]:
    try:
        fields = CheckedFields(started, "A spawner")
        return fields.text("mark"), fields.count("pid")
    except ProtocolError as error:
        raise ValueError("what the container says about it makes no sense") from error


def _process_seen(entry: object) -> ProcessSeen:
    fields = CheckedFields(entry, "A spawner")
    return ProcessSeen(
        pid=fields.count("pid"),
        parent=fields.count("parent"),
        session=fields.count("session"),
        start_ticks=fields.count("start_ticks"),
        mark=fields.text("mark"),
    )


def _process_end(answer: object, code: int | None) -> ProcessEnd:
    """What the spawner says of an end; only its code when it says nothing sensible."""
    try:
        fields = CheckedFields(answer, "A spawner")
        memory, seconds = fields.whole_number("peak_memory_bytes"), fields.amount("cpu_seconds")
    except ProtocolError:
        return ProcessEnd(code)
    return ProcessEnd(code, memory, seconds, fields.value("was_out_of_memory") is True)
