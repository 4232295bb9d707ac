"""The life of one container: what happens to it, which limits it meets, and how it ends."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from taskweaver_ext.ces.execution.results import HostNotice, KernelDeath
from taskweaver_ext.ces.kernels.client.wire import Waker
from taskweaver_ext.ces.kernels.container.engine import Engine, EngineError, NotInEngineError
from taskweaver_ext.ces.kernels.container.engine_events import ContainerChange
from taskweaver_ext.ces.kernels.container.failures import death_of_container
from taskweaver_ext.ces.kernels.container.limits import (
    ContainerLimits,
    ContainerProcess,
    LimitCounter,
)

DEATH_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_EXIT_SECONDS = 0.8
"""A container whose kernel ended has ended itself by then: only the line to it broke."""
_OUT_OF_MEMORY_SECONDS = 3.0


class ContainerLife:
    """Follow one container from its making to its end.

    Threads:
        The engine's events come on a thread of the engine, and the listeners
        are called on it. What other threads read is written once, or by that
        thread alone.
    """

    def __init__(
        self,
        limits: ContainerLimits,
        *,
        on_notice: Callable[[HostNotice], None],
        on_end: Callable[[], None],
    ) -> None:
        """A life that has not begun.

        Args:
            on_notice: Told what happens to the container.
            on_end: Called when it has ended.
        """
        self._limits = limits
        self._on_notice = on_notice
        self._on_end = on_end
        self._engine: Engine | None = None
        self._container: str | None = None
        self.process: ContainerProcess | None = None
        """Its first process, where this machine can see it."""
        self.end = Waker()
        """Woken when it has ended."""
        self._is_over = threading.Event()
        self._can_ask = threading.Event()
        self._closing = threading.Lock()
        self._is_closed = False
        self._death: KernelDeath | None = None
        self._kill_reason = ""
        self._is_paused = False
        self._limit_counter = LimitCounter(limits, None)
        self._out_of_memory_at = -_OUT_OF_MEMORY_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as far as anybody knows."""
        return self._is_over.is_set()

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

    def begin(self, engine: Engine, container: str) -> None:
        """The container was started: follow it from now on."""
        self._engine, self._container = engine, container
        engine.watch(container, self._changed)

    def has_started(self, state: Mapping[str, Any]) -> None:
        """The container runs, or has ended before we could follow it."""
        assert self._engine is not None
        assert self._container is not None
        if self._engine.shares_this_machine:
            self.process = ContainerProcess.find(state["State"]["Pid"], self._container)
        self._limit_counter = self.count_limits()
        if state["State"]["Status"] in ("exited", "dead"):
            self._changed("died")

    def death(self, wait_seconds: float = DEATH_SECONDS) -> KernelDeath | None:
        """How it ended; waits a moment for the engine to say so."""
        can_see_it = self.process is not None and not self._is_closed
        if can_see_it and not self.wait_until_over(min(wait_seconds, _EXIT_SECONDS)):
            return self._death
        deadline = time.monotonic() + wait_seconds
        while self._death is None and self._engine is not None and self._container is not None:
            self._can_ask.wait(max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
            self._death = self._find_death(self._engine, self._container)
            if time.monotonic() >= deadline:
                break
        return self._death

    def kill(self) -> None:
        """Kill everything in it; without the engine where that is allowed."""
        if self._engine is None or self._container is None:
            return
        self._tell_limits_met()  # nobody can count them afterwards
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

    def limits_met(self, reply: Mapping[str, Any]) -> list[str]:
        """Which limits were met since this was asked last, and which an error names, in words."""
        return self._limit_counter.newly_met(reply)

    def close(self) -> None:
        """Stop following it, and let go of everything."""
        if self._engine is not None and self._container is not None:
            self._engine.unwatch(self._container)
        with self._closing:
            self._is_closed = True
            if self.process is not None:
                self.process.close()
        self.end.close()

    def _changed(self, change: ContainerChange) -> None:
        """Called on the thread of the engine's events, once that listens."""
        if change == "died":
            self._can_ask.set()
            self._has_ended()
        elif change == "out_of_memory":
            self._out_of_memory_at = time.monotonic()
            self._tell_limits_met()
        elif change in ("paused", "resumed"):
            self._is_paused = change == "paused"
            advice = "; the code goes on when it is unpaused" if self._is_paused else ""
            status = "paused" if self._is_paused else "resumed"
            self._on_notice(HostNotice(status, f"The container was {change}{advice}."))  # type: ignore[arg-type]
        elif change == "engine_gone":
            self._can_ask.set()  # as far as the engine could tell
            if self.process is None:
                self._has_ended()  # nobody else could tell whether the kernel lives
        elif change == "engine_back":
            self._can_ask.clear()

    def _tell_limits_met(self) -> None:
        for message in self._limit_counter.newly_met({}):
            self._on_notice(HostNotice("limit", message))

    def _has_ended(self) -> None:
        self._is_over.set()
        self.end.wake()
        self._on_end()

    def _find_death(self, engine: Engine, container: str) -> KernelDeath | None:
        try:
            state = engine.state(container)
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
