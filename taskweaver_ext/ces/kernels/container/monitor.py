"""Watch one container: what happens to it, which limits it meets, and how it ends."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.kernels.client.host import ExecutionReply
from taskweaver_ext.ces.kernels.client.wire import Waker
from taskweaver_ext.ces.kernels.container.engine import Engine, EngineError, NotInEngineError
from taskweaver_ext.ces.kernels.container.engine_events import ContainerChange
from taskweaver_ext.ces.kernels.container.failures import death_of_container
from taskweaver_ext.ces.kernels.container.folder_watch import (
    NO_LIMIT,
    FolderLimit,
    FolderSize,
    FolderWatch,
)
from taskweaver_ext.ces.kernels.container.limits import (
    ContainerProcess,
    LimitCounter,
    growth_message,
)
from taskweaver_ext.ces.kernels.container.prepared_container import ContainerRequest

DEATH_SECONDS = 2.0
END_SECONDS = 1.0
"""How long the end of a container may take to be known after the last word from it."""
_LOOK_SECONDS = 0.5
_EXIT_SECONDS = 0.8
"""A container whose kernel ended has ended itself by then: only the connection to it broke."""
_OUT_OF_MEMORY_SECONDS = 3.0
_HEED_SECONDS = 1.5
"""What goes on filling its folder for so long after it was stopped is killed; at once if it adds
much in that time."""
_FORGIVEN_SECONDS = 5.0
"""What begins to do so again after this time is the doing of other code."""


@dataclass(frozen=True, slots=True)
class CodeMustStop:
    """The code fills its working directory: it must be interrupted."""


@dataclass(frozen=True, slots=True)
class ContainerEnded:
    """The container has ended, or is out of reach for ever."""


ContainerEvent: TypeAlias = HostNotice | CodeMustStop | ContainerEnded


class ContainerMonitor:
    """Watch a running container, and kill it.

    Threads:
        `on_event` is called on the thread of the engine's events, or on that of the folder's
        watch. What other threads read is written once, or by one of these alone.
    """

    def __init__(
        self,
        engine: Engine,
        container: str,
        pid: int,
        request: ContainerRequest,
        on_event: Callable[[ContainerEvent], None],
    ) -> None:
        """A monitor that does not listen to the engine yet.

        Args:
            pid: The container's first process, as the engine numbers it.
            on_event: Called with what happens to the container.
        """
        self._engine = engine
        self._container = container
        self._limits = limits = request.container.limits
        self._on_event = on_event
        self.end = Waker()
        """Woken when it has ended."""
        self.process = ContainerProcess.find(pid, container) if engine.shares_this_machine else None
        """Its first process, where this machine can see it."""
        self._folder_watch: FolderWatch | None = None
        self._folder_limit = FolderLimit(limits.folder_bytes, limits.folder_files)
        if self._folder_limit != NO_LIMIT:
            self._folder_watch = FolderWatch(
                request.cwd,
                self._folder_limit,
                self._handle_growth,
                request.session_id,
                unnamed_files=self.process.unnamed_files if self.process else None,
            )
        self._is_over = threading.Event()
        self._can_ask = threading.Event()
        self._closing = threading.Lock()
        self._is_closed = False
        self._death: KernelDeath | None = None
        self._kill_reason = ""
        self._is_paused = False
        self._limit_counter = self.count_limits()
        self._out_of_memory_at = -_OUT_OF_MEMORY_SECONDS
        self._stopped_for_folder_at = -_FORGIVEN_SECONDS
        self._added_when_stopped = FolderSize(0, 0)

    def start(self) -> None:
        """Watch from now on; raises EngineError."""
        self._engine.watch(self._container, self._handle_change)
        if self._engine.has_ended(self._container):  # before the engine's events came to us
            self._handle_change("died")
        if self._folder_watch is not None:
            self._folder_watch.start()

    @property
    def is_over(self) -> bool:
        """Whether the container is known to have ended."""
        return self._is_over.is_set()

    @property
    def is_paused(self) -> bool:
        """Whether the container is paused."""
        return self._is_paused

    def wait_until_over(self, seconds: float) -> bool:
        """Wait a moment for its end; return whether it has come."""
        with self._closing:
            process = None if self._is_closed else self.process
            descriptor = None if process is None else process.duplicate()
        if descriptor is None:
            return self._is_over.wait(seconds)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        try:
            return bool(poller.poll(seconds * 1000))
        finally:
            os.close(descriptor)

    def death(self, wait_seconds: float = DEATH_SECONDS) -> KernelDeath | None:
        """How it ended; waits a moment for the engine to say so."""
        can_see_it = self.process is not None and not self._is_closed
        if can_see_it and not self.wait_until_over(min(wait_seconds, _EXIT_SECONDS)):
            return self._death
        deadline = time.monotonic() + wait_seconds
        while self._death is None:
            self._can_ask.wait(max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
            self._death = self._find_death()
            if time.monotonic() >= deadline:
                break
        return self._death

    def death_of_lost(self) -> KernelDeath:
        """How it ended; for callers who have lost the connection to it, which is its end."""
        self.wait_until_over(2 * END_SECONDS)  # by then we have killed it if it lived on
        return self.death() or KernelDeath(
            cause="container_gone", detail="its container cannot be reached any more"
        )

    def kill(self) -> None:
        """Kill everything in it; without the engine where that is allowed."""
        self._report_limits_met()  # they cannot be counted afterwards
        # A paused process dies only once it goes on; the engine sees to that.
        if not self._is_paused and self.process is not None and self.process.kill():
            return
        with contextlib.suppress(EngineError):  # it has ended, or the engine has
            self._engine.kill(self._container)

    def kill_because(self, reason: str) -> None:
        """Kill it; its end will read like this."""
        self._kill_reason = self._kill_reason or reason
        self.kill()

    def count_limits(self) -> LimitCounter:
        """Counts the limits that are met from now on."""
        return LimitCounter(self._limits, self.process)

    def limits_met(self, reply: ExecutionReply | None) -> list[str]:
        """Which limits were met since this was asked last, and which an error names, in words."""
        return self._limit_counter.newly_met(reply)

    def close(self) -> None:
        """Stop watching, and let go of everything."""
        if self._folder_watch is not None:
            self._folder_watch.stop()
        self._engine.unwatch(self._container)
        with self._closing:
            self._is_closed = True
            if self.process is not None:
                self.process.close()
        self.end.close()

    def _handle_change(self, change: ContainerChange) -> None:
        """Called on the thread of the engine's events, once that listens."""
        if change == "died":
            self._can_ask.set()
            self._report_end()
        elif change == "out_of_memory":
            self._out_of_memory_at = time.monotonic()
            self._report_limits_met()
        elif change in ("paused", "resumed"):
            self._is_paused = change == "paused"
            advice = "; the code goes on when it is unpaused" if self._is_paused else ""
            status = "paused" if self._is_paused else "resumed"
            self._on_event(HostNotice(status, f"The container was {change}{advice}."))  # type: ignore[arg-type]
        elif change == "engine_gone":
            self._can_ask.set()  # as far as the engine could tell
            if self.process is None:
                self._report_end()  # nothing else can tell whether the kernel lives
        elif change == "engine_back":
            self._can_ask.clear()

    def _handle_growth(self, added: FolderSize) -> None:
        """On the folder watch's thread: have the code stopped, and kill what goes on regardless."""
        message = growth_message(self._folder_limit, added)
        seconds = time.monotonic() - self._stopped_for_folder_at
        goes_on = self._folder_limit.is_much(added.minus(self._added_when_stopped))
        if seconds < _HEED_SECONDS and not goes_on:
            return  # it may not have heard of it yet
        if seconds < _FORGIVEN_SECONDS:
            self.kill_because(f"killed, because {message}")
            return
        self._stopped_for_folder_at = time.monotonic()
        self._added_when_stopped = added
        self._on_event(HostNotice("limit", f"The code was stopped: {message}."))
        self._on_event(CodeMustStop())

    def _report_limits_met(self) -> None:
        for message in self._limit_counter.newly_met():
            self._on_event(HostNotice("limit", message))

    def _report_end(self) -> None:
        self._is_over.set()
        self.end.wake()
        self._on_event(ContainerEnded())

    def _find_death(self) -> KernelDeath | None:
        try:
            state = self._engine.state(self._container)
        except NotInEngineError:
            state = {"Status": "removing"}
        except EngineError:
            return KernelDeath(cause="engine_gone", detail="the Docker engine is gone")
        was_out_of_memory = not self._kill_reason and self._was_out_of_memory(state)
        death = death_of_container(
            state, self._limits.memory_bytes, was_out_of_memory=was_out_of_memory
        )
        if death is not None and self._kill_reason:
            return replace(death, detail=self._kill_reason)
        return death

    def _was_out_of_memory(self, state: Mapping[str, Any]) -> bool:
        """Whether lack of memory was the cause; the engine's flag stays up after a child's end."""
        if time.monotonic() - self._out_of_memory_at < _OUT_OF_MEMORY_SECONDS:
            return True
        return bool(state.get("OOMKilled")) and self._out_of_memory_at < 0
