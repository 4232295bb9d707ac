"""One thread that reads the events of an engine and calls the watchers of its containers."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeAlias

ContainerChange: TypeAlias = Literal[
    "died", "out_of_memory", "paused", "resumed", "engine_gone", "engine_back"
]
OnChange: TypeAlias = Callable[[ContainerChange], None]

_OPEN_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.25
_CHANGES: Mapping[str, ContainerChange] = {
    "die": "died",
    "destroy": "died",
    "oom": "out_of_memory",
    "pause": "paused",
    "unpause": "resumed",
}

_log = logging.getLogger(__name__)


class EventStream(Protocol):
    """Events as they happen; `close` from another thread ends it."""

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None:
        """End it."""


class EngineEvents:
    """One thread that reads the engine's events and calls the watchers of containers.

    Threads:
        `_lock` guards all fields; it is not held while calling out or while
        talking to the engine. The thread exists while something is watched.
    """

    def __init__(
        self,
        open_stream: Callable[[], EventStream],
        has_ended: Callable[[str], bool],
        answers: Callable[[], bool],
    ) -> None:
        """Read nothing yet.

        Args:
            open_stream: Opens the stream of what happens to containers of ours from now on.
            has_ended: Says whether a container has ended or is gone.
            answers: Says whether the engine is there.
        """
        self._open_stream = open_stream
        self._has_ended = has_ended
        self._answers = answers
        self._lock = threading.Lock()
        self._watchers: dict[str, OnChange] = {}
        self._listening: _Listening | None = None

    def watch(self, container: str, on_change: OnChange) -> None:
        """Call back, on the thread, for what happens to a container from now on."""
        with self._lock:
            self._watchers[container] = on_change
            if self._listening is None:
                self._listening = _Listening(self._run)
            listening = self._listening
        # What happens before the engine listens to us would go unheard.
        listening.is_open.wait(_OPEN_SECONDS)

    def unwatch(self, container: str) -> None:
        """Stop calling back; the thread ends when nothing is left to watch."""
        with self._lock:
            self._watchers.pop(container, None)
            if self._watchers:
                return
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.stop()

    def close(self) -> None:
        """Stop calling back for all containers."""
        with self._lock:
            listening, self._listening = self._listening, None
            self._watchers.clear()
        if listening is not None:
            listening.stop()

    def _run(self, listening: _Listening) -> None:
        engine_is_gone = False
        while not listening.is_stopped.is_set():
            try:
                stream = self._open_stream()
                if not listening.adopt(stream):
                    break
                if engine_is_gone:
                    engine_is_gone = False
                    self._dispatch_to_all("engine_back")
                self._dispatch_missed_ends()
                listening.is_open.set()
                for event in stream:
                    self._dispatch(str(event.get("id")), str(event.get("Action")))
            except Exception as error:  # noqa: BLE001 - a broken stream raises all kinds of things
                _log.debug("the engine's events ended: %s", error)
            if listening.is_stopped.is_set():
                break
            if not engine_is_gone and not self._answers():
                engine_is_gone = True
                self._dispatch_to_all("engine_gone")
            listening.is_open.set()  # no caller waits for an engine that is not there
            listening.is_stopped.wait(_LOOK_AGAIN_SECONDS)

    def _dispatch_missed_ends(self) -> None:
        """Dispatch the ends of containers that came between two streams."""
        with self._lock:
            containers = list(self._watchers)
        for container in containers:
            if self._has_ended(container):
                self._dispatch(container, "die")

    def _dispatch(self, container: str, action: str) -> None:
        with self._lock:
            on_change = self._watchers.get(container)
        if on_change is not None and (change := _CHANGES.get(action)):
            on_change(change)

    def _dispatch_to_all(self, change: ContainerChange) -> None:
        with self._lock:
            watchers = list(self._watchers.values())
        for on_change in watchers:
            on_change(change)


class _Listening:
    """One run of the events thread.

    Threads:
        `_lock` guards `_stream` against being opened after it was stopped.
    """

    def __init__(self, run: Callable[[_Listening], None]) -> None:
        self.is_open = threading.Event()
        self.is_stopped = threading.Event()
        self._lock = threading.Lock()
        self._stream: EventStream | None = None
        self._thread = threading.Thread(
            target=run, args=(self,), name="taskweaver-engine-events", daemon=True
        )
        self._thread.start()

    def adopt(self, stream: EventStream) -> bool:
        """Keep a stream so that it can be closed; False when it is too late."""
        with self._lock:
            if self.is_stopped.is_set():
                stream.close()
                return False
            self._stream = stream
            return True

    def stop(self) -> None:
        """Close the stream, which ends the thread, and wait for it unless the engine hangs."""
        with self._lock:
            self.is_stopped.set()
            if self._stream is not None:
                with contextlib.suppress(OSError):
                    self._stream.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_OPEN_SECONDS)
