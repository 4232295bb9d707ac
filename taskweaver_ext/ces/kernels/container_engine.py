"""The Docker engine: one line to it for all sessions of this process, one thread for its events.

The SDK ends here: nothing else imports it, and its errors leave this module
as one of the three below.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal, TypeAlias

import docker.errors
import requests.exceptions
import urllib3.exceptions
from docker import APIClient
from docker.types.daemon import CancellableStream

LABEL = "taskweaver_ext"
"""What all labels of ours begin with, and the label of everything of ours."""

ContainerChange: TypeAlias = Literal[
    "died", "out_of_memory", "paused", "resumed", "engine_gone", "engine_back"
]
OnChange: TypeAlias = Callable[[ContainerChange], None]

_CALL_SECONDS = 20
_STATE_SECONDS = 2
_BUILD_SECONDS = 900
_LOOK_AGAIN_SECONDS = 0.25
_CHANGES: Mapping[str, ContainerChange] = {
    "die": "died",
    "destroy": "died",
    "oom": "out_of_memory",
    "pause": "paused",
    "unpause": "resumed",
}

_log = logging.getLogger(__name__)


class EngineError(Exception):
    """The engine did not do what it was asked; the message is for people."""


class EngineGoneError(EngineError):
    """No engine answers."""


class NotInEngineError(EngineError):
    """The engine has no such image or container."""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What an engine says about itself that matters to us."""

    kernel_version: str
    operating_system: str
    processors: int
    is_rootless: bool
    remaps_users: bool
    unsupported_limits: tuple[str, ...]
    """Names of limits that it cannot enforce on this machine."""


class Engine:
    """Ask a Docker engine for things. Safe from any thread."""

    def __init__(self, url: str) -> None:
        """Connect; raises EngineGoneError."""
        self.url = url
        self._client = _connect(url, _CALL_SECONDS)
        self._impatient_client = _connect(url, _STATE_SECONDS, self._client.api_version)
        self._events = _Events(self)
        self._traits: EngineTraits | None = None
        self._uses = itertools.count()
        self.unremoved: set[str] = set()
        """Containers that could not be removed, because the engine was gone."""

    def is_used_first(self) -> bool:
        """True for whoever asks first in this process."""
        return next(self._uses) == 0

    @property
    def traits(self) -> EngineTraits:
        """What it says about itself; asked once."""
        if self._traits is None:
            with _translated(self.url):
                self._traits = _traits(self._client.info())
        return self._traits

    @property
    def shares_this_machine(self) -> bool:
        """Whether a socket file of ours can be used in its containers: not through a VM."""
        return (
            sys.platform == "linux"
            and self.url.startswith("unix://")
            and self.traits.kernel_version == os.uname().release
            and self.traits.operating_system != "Docker Desktop"
        )

    def create(self, name: str, description: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Create a container as the engine's API describes it; return its id and warnings."""
        with _translated(self.url):
            made: dict[str, Any] = self._client.create_container_from_config(  # type: ignore[no-untyped-call]
                description, name
            )
        return str(made["Id"]), list(made.get("Warnings") or ())

    def start(self, container: str) -> None:
        """Start a container."""
        with _translated(self.url):
            self._client.start(container)

    def inspect(self, container: str) -> dict[str, Any]:
        """Everything the engine knows about a container."""
        with _translated(self.url):
            found: dict[str, Any] = self._client.inspect_container(container)
        return found

    def state(self, container: str) -> dict[str, Any]:
        """Whether a container runs or how it ended; an engine that takes long counts as gone."""
        with _translated(self.url):
            found: dict[str, Any] = self._impatient_client.inspect_container(container)
        return dict(found["State"])

    def kill(self, container: str) -> None:
        """Kill everything in a container; a paused one too."""
        with _translated(self.url):
            self._client.kill(container)

    def remove(self, container: str) -> None:
        """Kill and remove a container; one that is gone or going already is no error."""
        try:
            with _translated(self.url):
                self._client.remove_container(container, force=True, v=True)
        except NotInEngineError:
            pass
        except EngineGoneError:
            self.unremoved.add(container)
            raise
        except EngineError as error:
            if "already in progress" not in str(error):
                raise
        self.unremoved.discard(container)

    def log_tail(self, container: str, lines: int) -> str:
        """The last lines that a container's first process wrote."""
        with _translated(self.url):
            text: bytes = self._client.logs(container, tail=lines)
        return text.decode("utf-8", "replace")

    def list_ours(self) -> list[dict[str, Any]]:
        """All containers that carry our label, running or not."""
        with _translated(self.url):
            found: list[dict[str, Any]] = self._client.containers(
                all=True, filters={"label": LABEL}
            )
        return found

    def ensure_network(self, name: str, options: Mapping[str, str]) -> None:
        """Make a bridge network of ours unless it exists."""
        with _translated(self.url):
            if not self._client.networks(names=[name]):
                self._client.create_network(
                    name, "bridge", options=dict(options), labels={LABEL: ""}, check_duplicate=True
                )

    def image_labels(self, image: str) -> dict[str, str] | None:
        """The labels of an image; None when the engine does not have it."""
        try:
            with _translated(self.url):
                found: dict[str, Any] = self._client.inspect_image(image)  # type: ignore[no-untyped-call]
        except NotInEngineError:
            return None
        return dict(found.get("Config", {}).get("Labels") or {})

    def pull(self, image: str) -> None:
        """Get an image from its registry; raises NotInEngineError when that does not have it."""
        repository, _, tag = image.rpartition(":")
        if not repository or "/" in tag:
            repository, tag = image, "latest"
        client = _connect(self.url, _BUILD_SECONDS)
        with contextlib.closing(client), _translated(self.url):
            for step in client.pull(repository, tag, stream=True, decode=True):
                _raise_if_failed(step)

    def import_image(self, tar: IO[bytes], image: str, changes: Sequence[str]) -> None:
        """Make an image of a root file system."""
        repository, _, tag = image.partition(":")
        client: Any = _connect(self.url, _BUILD_SECONDS)  # its types know of no file objects
        with contextlib.closing(client), _translated(self.url):
            client.import_image(tar, repository, tag, changes=list(changes))

    def build(
        self,
        context: IO[bytes],
        image: str,
        *,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        has_network: bool,
        say: Callable[[str], None],
    ) -> None:
        """Build an image from a tar with a Dockerfile; raises EngineError when a step fails."""
        client = _connect(self.url, _BUILD_SECONDS)
        with contextlib.closing(client), _translated(self.url):
            steps = client.build(
                fileobj=context,
                custom_context=True,
                tag=image,
                buildargs=dict(arguments),
                labels=dict(labels),
                network_mode=None if has_network else "none",
                rm=True,
                forcerm=True,
                decode=True,
            )
            for step in steps:
                _raise_if_failed(step)
                if text := str(step.get("stream", "")).strip():
                    say(text)

    def remove_image(self, image: str) -> None:
        """Take an image's name away, and the image if that was its last."""
        with contextlib.suppress(NotInEngineError), _translated(self.url):
            self._client.remove_image(image, force=True)

    def open_events(self) -> CancellableStream[Any]:
        """The stream of what happens to containers of ours, from now on."""
        with _translated(self.url):
            return self._client.events(decode=True, filters={"type": "container", "label": LABEL})

    def watch(self, container: str, on_change: OnChange) -> None:
        """Tell, on a thread of ours, what happens to a container."""
        self._events.watch(container, on_change)

    def unwatch(self, container: str) -> None:
        """Stop telling; the thread ends when nothing is left to watch."""
        self._events.unwatch(container)

    def close(self) -> None:
        """Let go of the line and the thread."""
        self._events.close()
        self._impatient_client.close()
        self._client.close()


class _Events:
    """One thread that hears the engine's events and tells whom they concern.

    Threads:
        `_lock` guards all fields; it is not held while calling out or while
        talking to the engine. The thread exists while something is watched.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._watchers: dict[str, OnChange] = {}
        self._listening: _Listening | None = None

    def watch(self, container: str, on_change: OnChange) -> None:
        with self._lock:
            self._watchers[container] = on_change
            if self._listening is None:
                self._listening = _Listening()
                thread = threading.Thread(
                    target=self._run,
                    args=(self._listening,),
                    name="taskweaver-engine-events",
                    daemon=True,
                )
                self._listening.thread = thread
                thread.start()
            listening = self._listening
        # What happens before the engine listens to us would go unheard.
        listening.is_open.wait(_CALL_SECONDS)

    def unwatch(self, container: str) -> None:
        with self._lock:
            self._watchers.pop(container, None)
            if self._watchers:
                return
        self.close()

    def close(self) -> None:
        with self._lock:
            listening, self._listening = self._listening, None
            self._watchers.clear()
        if listening is not None:
            listening.stop()

    def _run(self, listening: _Listening) -> None:
        engine_is_gone = False
        while not listening.is_stopped.is_set():
            try:
                stream = self._engine.open_events()
                if not listening.take(stream):
                    break
                if engine_is_gone:
                    engine_is_gone = False
                    self._tell_all("engine_back")
                self._tell_what_was_missed()
                listening.is_open.set()
                for event in stream:
                    self._tell(str(event.get("id")), str(event.get("Action")))
            except Exception as error:  # noqa: BLE001 - a broken stream raises all kinds of things
                _log.debug("the engine's events ended: %s", error)
            if not listening.is_stopped.is_set() and not self._answers() and not engine_is_gone:
                engine_is_gone = True
                self._tell_all("engine_gone")
            listening.is_open.set()
            listening.is_stopped.wait(_LOOK_AGAIN_SECONDS if engine_is_gone else 0)

    def _answers(self) -> bool:
        try:
            self._engine.list_ours()
        except EngineError:
            return False
        return True

    def _tell_what_was_missed(self) -> None:
        """Tell of containers that ended while nobody listened."""
        with self._lock:
            containers = list(self._watchers)
        for container in containers:
            try:
                has_ended = self._engine.state(container)["Status"] in ("exited", "dead")
            except NotInEngineError:
                has_ended = True
            if has_ended:
                self._tell(container, "die")

    def _tell(self, container: str, action: str) -> None:
        with self._lock:
            on_change = self._watchers.get(container)
        if on_change is not None and (change := _CHANGES.get(action)):
            on_change(change)

    def _tell_all(self, change: ContainerChange) -> None:
        with self._lock:
            watchers = list(self._watchers.values())
        for on_change in watchers:
            on_change(change)


@dataclass
class _Listening:
    """One life of the events thread."""

    thread: threading.Thread = field(default_factory=threading.current_thread)
    is_open: threading.Event = field(default_factory=threading.Event)
    is_stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards `stream` against being opened after it was stopped."""
    stream: CancellableStream[Any] | None = None

    def take(self, stream: CancellableStream[Any]) -> bool:
        """Keep a stream so that it can be closed; False when it is too late."""
        with self.lock:
            if self.is_stopped.is_set():
                stream.close()
                return False
            self.stream = stream
            return True

    def stop(self) -> None:
        """Close the stream, which ends the thread, and wait for it."""
        with self.lock:
            self.is_stopped.set()
            if self.stream is not None:
                with contextlib.suppress(OSError):
                    self.stream.close()
        if self.thread is not threading.current_thread():
            self.thread.join()


class _Engines:
    """The engines that this process uses, each connected once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[tuple[int, str], Engine] = {}

    def get(self, url: str) -> Engine:
        with self._lock:
            key = (os.getpid(), url)  # a forked child must not share its parent's sockets
            if key not in self._engines:
                self._engines[key] = Engine(url)
            return self._engines[key]


_engines = _Engines()


def shared_engine(url: str) -> Engine:
    """The engine at an address; raises EngineGoneError when it does not answer."""
    return _engines.get(url)


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn the SDK's errors into ours."""
    place = url.removeprefix("unix://")
    try:
        if place != url:
            _knock(place)
        yield
    except docker.errors.NotFound as error:
        raise NotInEngineError(str(error.explanation or error)) from error
    except docker.errors.APIError as error:
        raise EngineError(str(error.explanation or error).strip()) from error
    except (
        docker.errors.DockerException,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        why = ": permission denied" if isinstance(error, PermissionError) else ""
        raise EngineGoneError(f"cannot reach Docker at {place}{why}") from error


def _knock(path: str) -> None:
    """Raise an OSError when nobody listens; the SDK would leave a socket open in that case."""
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(_STATE_SECONDS)
        knocking.connect(path)


def _raise_if_failed(step: Mapping[str, Any]) -> None:
    if "error" in step:
        raise EngineError(str(step["error"]).strip())


def _connect(url: str, seconds: int, version: str = "auto") -> APIClient:
    with _translated(url):
        return APIClient(base_url=url, version=version, timeout=seconds)


def _traits(info: Mapping[str, Any]) -> EngineTraits:
    security = " ".join(info.get("SecurityOptions") or ())
    limits = {
        "memory": "MemoryLimit",
        "swap": "SwapLimit",
        "processes": "PidsLimit",
        "CPU": "CpuCfsQuota",
    }
    return EngineTraits(
        kernel_version=str(info.get("KernelVersion", "")),
        operating_system=str(info.get("OperatingSystem", "")),
        processors=int(info.get("NCPU", 1)),
        is_rootless="name=rootless" in security,
        remaps_users="name=userns" in security,
        unsupported_limits=tuple(name for name, flag in limits.items() if info.get(flag) is False),
    )
